//! One line made of pieces with their own styles, cut where it does not fit.

use anstyle::Style;
use unicode_width::UnicodeWidthChar as _;

use super::text::{printable, width};

/// Pieces of a line.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<(String, Style)>);

impl Spans {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a plain piece more.
    #[must_use]
    pub fn plain(self, text: impl AsRef<str>) -> Self {
        self.styled(text, Style::new())
    }

    /// With a piece more, styled.
    #[must_use]
    pub fn styled(mut self, text: impl AsRef<str>, style: Style) -> Self {
        let text = printable(&text.as_ref().replace(['\n', '\t'], " "));
        if !text.is_empty() {
            self.0.push((text, style));
        }
        self
    }

    /// How many columns it takes.
    pub fn width(&self) -> usize {
        self.0.iter().map(|(text, _)| width(text)).sum()
    }

    /// The line, in at most `columns`.
    pub fn line(&self, columns: usize) -> String {
        let mut line = String::new();
        let fits = self.width() <= columns;
        // The sign that something was cut needs a column too.
        let mut left = if fits { columns } else { columns.saturating_sub(1) };
        for (text, style) in &self.0 {
            let whole = width(text) <= left;
            let shown = if whole { text.clone() } else { head(text, left) };
            left -= width(&shown);
            line.push_str(&format!("{}{shown}{}", style.render(), style.render_reset()));
            if !whole {
                break;
            }
        }
        if !fits && columns > 0 {
            line.push('…');
        }
        line.trim_end().to_owned()
    }
}

/// As much of `text` as fits.
fn head(text: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::style;

    fn check(columns: usize, expected: &str) {
        let spans = Spans::new().styled("01kg", style::NAME).plain(" two\nwords ").styled("日本", style::DIM);
        assert_eq!(anstream::adapter::strip_str(&spans.line(columns)).to_string(), expected);
    }

    #[test]
    fn a_line_is_cut_over_its_pieces() {
        check(80, "01kg two words 日本");
        check(19, "01kg two words 日本");
        check(18, "01kg two words 日…");
        check(17, "01kg two words …");
        check(15, "01kg two words…");
        check(10, "01kg two …");
        check(5, "01kg…");
        check(4, "01k…");
        check(3, "01…");
        check(0, "");
    }
}
