//! A figure: what was measured, beside its floor and its bar; and how figures are shown.

use std::fmt;

use serde::Serialize;

/// What the ratio of a figure to its floor must keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Bar {
    fn number(self) -> f64 {
        match self {
            Self::AtMost(number) | Self::AtLeast(number) => number,
        }
    }

    fn is_kept_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(number) => write!(f, "<= {number}"),
            Self::AtLeast(number) => write!(f, ">= {number}"),
        }
    }
}

/// One measured number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The group it belongs to.
    pub group: &'static str,
    /// What was measured.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Of the number and of its floor.
    pub unit: &'static str,
    /// What the machine itself needs, measured in the same run.
    pub floor: f64,
    /// What the ratio of the two must keep to.
    pub bar: Bar,
}

impl Figure {
    /// The number over its floor.
    pub fn ratio(&self) -> f64 {
        self.value / self.floor
    }

    /// Whether the bar is kept. A ratio that is not a number keeps none.
    pub fn is_ok(&self) -> bool {
        self.ratio().is_finite() && self.bar.is_kept_by(self.ratio())
    }

    /// One line of JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Line {
            group: self.group,
            name: &self.name,
            value: rounded(self.value),
            unit: self.unit,
            floor: rounded(self.floor),
            ratio: rounded(self.ratio()),
            bar: self.bar.number(),
            ok: self.is_ok(),
        })
    }
}

/// The fields of a figure as `--json` shows them, in this order.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    name: &'a str,
    value: f64,
    unit: &'a str,
    floor: f64,
    ratio: f64,
    bar: f64,
    ok: bool,
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// A table for people.
pub fn table(figures: &[Figure]) -> String {
    let mut rows = vec![["group", "figure", "value", "floor", "unit", "ratio", "bar", ""].map(str::to_owned)];
    rows.extend(figures.iter().map(|figure| {
        [
            figure.group.to_owned(),
            figure.name.clone(),
            shown(figure.value),
            shown(figure.floor),
            figure.unit.to_owned(),
            format!("{:.2}", figure.ratio()),
            figure.bar.to_string(),
            if figure.is_ok() { "ok" } else { "MISSED" }.to_owned(),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers stand to the right.
            match matches!(column, 2 | 3 | 5) {
                true => line.push_str(&format!("{cell:>width$}  ")),
                false => line.push_str(&format!("{cell:<width$}  ")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn shown(number: f64) -> String {
    match number {
        number if number.abs() < 1_000.0 => format!("{number:.1}"),
        number => grouped(&format!("{number:.0}")),
    }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, floor: f64, bar: Bar) -> Figure {
        Figure { group: "journal", name: "commit".into(), value, unit: "us", floor, bar }
    }

    #[test]
    fn bars_have_a_direction() {
        let check = |value, bar, expected| assert_eq!(figure(value, 100.0, bar).is_ok(), expected, "{value} {bar}");
        check(150.0, Bar::AtMost(1.5), true);
        check(151.0, Bar::AtMost(1.5), false);
        check(600.0, Bar::AtLeast(6.0), true);
        check(599.0, Bar::AtLeast(6.0), false);
        assert!(!figure(1.0, 0.0, Bar::AtLeast(1.0)).is_ok());
        assert!(!figure(0.0, 0.0, Bar::AtMost(1.0)).is_ok());
    }

    #[test]
    fn json_has_the_promised_fields_in_order() {
        let json = figure(123.45678, 100.0, Bar::AtMost(1.5)).json().unwrap();
        let expected = r#"{"group":"journal","name":"commit","value":123.457,"unit":"us","floor":100.0,"ratio":1.235,"bar":1.5,"ok":true}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn tables_line_up_and_say_what_was_missed() {
        let table = table(&[figure(12_345_678.0, 10.0, Bar::AtMost(1.5)), figure(600.04, 100.0, Bar::AtLeast(6.0))]);
        let expected = "\
group    figure       value  floor  unit       ratio  bar
journal  commit  12,345,678   10.0  us    1234567.80  <= 1.5  MISSED
journal  commit       600.0  100.0  us          6.00  >= 6    ok
";
        assert_eq!(table, expected);
    }
}
