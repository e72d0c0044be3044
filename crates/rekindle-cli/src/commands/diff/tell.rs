//! The difference of two states as people read it: `+` for what came, `-` for what went, `~` for
//! what changed.

use rekindle::Json;
use rekindle::core::{LogDiff, RegisterChange, RegisterDiff, StateDiff};
use rekindle::message::Message;
use serde_json::Value;
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::nested::{self, Change, Place};
use super::text;
use crate::ui::spans::Spans;
use crate::ui::{fit, style};
use crate::words::{conversation, number, value};

/// How much is shown, and how.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// How wide.
    pub columns: usize,
    /// Long texts by words instead of lines.
    pub words: bool,
    /// Cuts nothing.
    pub full: bool,
}

/// What differs, and whether something was cut.
pub fn lines(diff: &StateDiff, how: Style) -> (Vec<String>, bool) {
    let mut told = Told { style: how, lines: Vec::new(), cut: false };
    diff.logs.iter().for_each(|log| told.log(log));
    let (kept, shown): (Vec<_>, Vec<_>) =
        diff.registers.iter().partition(|register| !how.full && is_engines(register.key.as_str()));
    for register in shown {
        for place in places(register) {
            told.place(&place);
        }
    }
    if !kept.is_empty() {
        let names: Vec<_> = kept.iter().map(|register| register.key.as_str()).collect();
        let text = format!("~ kept by the engine: {}", names.join(", "));
        told.cut = true;
        told.lines.push(Spans::new().styled(text, style::DIM).line(how.columns));
    }
    (told.lines, told.cut)
}

/// Whether a register is the engine's own: counters and positions that change with every step.
fn is_engines(key: &str) -> bool {
    let own = ["loop", "budget", "definition", "started", "breaker", "groups", "cursor", "decided", "stopping"];
    let name = key.strip_prefix("node/").and_then(|rest| rest.rsplit('/').next()).unwrap_or(key);
    own.contains(&name)
}

/// The places of a register that differ.
pub fn places(register: &RegisterDiff) -> Vec<Place> {
    let path = register.key.as_str();
    let read = |json: &Json| json.to_value().unwrap_or_else(|_| Value::String(json.to_string()));
    let one = |change| vec![Place { path: path.to_owned(), change }];
    match &register.change {
        RegisterChange::Added(value) => one(Change::Added(read(value))),
        RegisterChange::Removed(value) => one(Change::Removed(read(value))),
        RegisterChange::Changed { from, to } => nested::places(path, &read(from), &read(to)),
    }
}

/// What is to be said of a log: the items that went and came, aligned.
fn steps(log: &LogDiff) -> Vec<Step<'_>> {
    let text = |items: &[Json]| items.iter().map(|item| item.as_str().to_owned()).collect::<Vec<_>>();
    let mut steps = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &text(&log.removed), &text(&log.added)) {
        let (old, new) = (&log.removed[op.old_range()], &log.added[op.new_range()]);
        let (from, to) = (log.common + op.old_range().start, log.common + op.new_range().start);
        match op {
            DiffOp::Equal { .. } => {}
            DiffOp::Replace { .. } if old.len() == new.len() => {
                steps.extend(old.iter().zip(new).enumerate().map(|(at, (old, new))| Step::Changed(to + at, old, new)));
            }
            _ => {
                steps.extend(old.iter().enumerate().map(|(at, item)| Step::Removed(from + at, item)));
                steps.extend(new.iter().enumerate().map(|(at, item)| Step::Added(to + at, item)));
            }
        }
    }
    steps
}

/// One item of a log that differs.
enum Step<'a> {
    Added(usize, &'a Json),
    Removed(usize, &'a Json),
    Changed(usize, &'a Json, &'a Json),
}

struct Told {
    style: Style,
    lines: Vec<String>,
    cut: bool,
}

impl Told {
    fn log(&mut self, log: &LogDiff) {
        let (added, removed) = (log.added.len(), log.removed.len());
        let mut counts = vec![format!("{} the same", log.common)];
        counts.extend((removed > 0).then(|| format!("{removed} removed")));
        counts.extend((added > 0).then(|| format!("{added} added")));
        let header = Spans::new().styled(log.log.as_str(), style::BOLD);
        let header = header.styled(format!(": {}", counts.join(", ")), style::DIM);
        self.lines.push(header.line(self.style.columns));
        for step in steps(log) {
            match step {
                Step::Added(at, item) => self.item("+", style::GOOD, at, item),
                Step::Removed(at, item) => self.item("-", style::BAD, at, item),
                Step::Changed(at, old, new) => self.changed_item(at, old, new),
            }
        }
    }

    fn item(&mut self, sign: &str, colour: anstyle::Style, at: usize, item: &Json) {
        let name = match Message::from_json(item) {
            Ok(message) => conversation::who(&message),
            Err(_) => String::new(),
        };
        let head = Spans::new().styled(format!("{sign} {at} {name}"), colour);
        let (texts, cut) = self.text_of(item);
        self.cut |= cut;
        if let [only] = texts.as_slice() {
            let line = head.plain(": ").plain(only);
            self.cut |= line.width() > self.room();
            self.lines.push(line.line(self.room()));
            return;
        }
        let room = self.room();
        self.lines.push(head.line(room));
        self.lines.extend(texts.iter().map(|text| Spans::new().plain(format!("    {text}")).line(room)));
    }

    fn changed_item(&mut self, at: usize, old: &Json, new: &Json) {
        let who = |item: &Json| Message::from_json(item).map(|message| conversation::who(&message)).ok();
        if who(old) != who(new) {
            self.item("-", style::BAD, at, old);
            self.item("+", style::GOOD, at, new);
            return;
        }
        let name = who(new).unwrap_or_default();
        self.lines.push(Spans::new().styled(format!("~ {at} {name}"), style::WARN).line(self.room()));
        self.texts(&whole_text(old), &whole_text(new));
    }

    fn place(&mut self, place: &Place) {
        let (sign, colour) = match place.change {
            Change::Added(_) => ("+", style::GOOD),
            Change::Removed(_) => ("-", style::BAD),
            Change::Changed(..) => ("~", style::WARN),
        };
        let head = Spans::new().styled(format!("{sign} {}", place.path), colour);
        let line = match &place.change {
            Change::Added(value) | Change::Removed(value) => head.plain(format!(": {}", self.short(value))),
            Change::Changed(Value::String(from), Value::String(to)) if self.style.words || text::is_long(from, to) => {
                self.lines.push(head.plain(":").line(self.room()));
                return self.texts(from, to);
            }
            Change::Changed(from, to) => {
                let (from, to) = (self.short(from), self.short(to));
                let line = head.clone().plain(format!(": {from} → {to}"));
                if line.width() <= self.room() {
                    line
                } else {
                    self.lines.push(head.plain(":").line(self.room()));
                    self.lines.push(Spans::new().plain(format!("    {from}")).line(self.room()));
                    Spans::new().plain(format!("    → {to}"))
                }
            }
        };
        self.cut |= line.width() > self.room();
        self.lines.push(line.line(self.room()));
    }

    fn texts(&mut self, from: &str, to: &str) {
        let lines = text::lines(from, to, self.style.words, self.style.full);
        let most = if self.style.full { usize::MAX } else { 40 };
        self.cut |= lines.len() > most;
        self.lines.extend(lines.into_iter().take(most).map(|line| format!("    {line}")));
    }

    /// The lines of an item, few enough to be read.
    fn text_of(&self, item: &Json) -> (Vec<String>, bool) {
        let text = whole_text(item);
        let (mut lines, mut cut) = value::cut(&text, self.style.full);
        if !self.style.full && lines.len() > 8 {
            lines.truncate(8);
            cut = true;
        }
        (lines, cut)
    }

    fn short(&self, value: &Value) -> String {
        let text = value.to_string();
        if self.style.full { crate::ui::printable(&text) } else { fit(&text, 160) }
    }

    /// How wide a line may be: where all is asked for, nothing is cut.
    fn room(&self) -> usize {
        if self.style.full { usize::MAX } else { self.style.columns }
    }
}

/// An item as text: what was said, calls and results each on a line.
fn whole_text(item: &Json) -> String {
    let Ok(message) = Message::from_json(item) else { return item.to_string() };
    let said = |part: &rekindle::message::Part| match part {
        rekindle::message::Part::Text(text) => text.clone(),
        other => conversation::said(other, 4_000),
    };
    message.parts.iter().map(said).collect::<Vec<_>>().join("\n")
}

/// How much differs, by log and register.
pub fn stat(diff: &StateDiff) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for log in &diff.logs {
        let counted = |sign: &str, count: usize| if count > 0 { format!("{sign}{count} ") } else { String::new() };
        let (mut added, mut removed, mut changed) = (0, 0, 0);
        for step in steps(log) {
            match step {
                Step::Added(..) => added += 1,
                Step::Removed(..) => removed += 1,
                Step::Changed(..) => changed += 1,
            }
        }
        rows.push((log.log.to_string(), counted("+", added) + &counted("-", removed) + &counted("~", changed)));
    }
    for register in &diff.registers {
        let what = match &register.change {
            RegisterChange::Added(_) => "+".to_owned(),
            RegisterChange::Removed(_) => "-".to_owned(),
            RegisterChange::Changed { .. } => format!("~ {}", number(places(register).len(), "place")),
        };
        rows.push((register.key.to_string(), what));
    }
    rows
}

/// What differs in a few lines: what was said and what is in the memory; the rest by name.
pub fn brief(diff: &StateDiff, columns: usize) -> Vec<String> {
    const MOST: usize = 6;
    let style = Style { columns, words: false, full: false };
    let mut told = Told { style, lines: Vec::new(), cut: false };
    for step in diff.logs.iter().flat_map(steps) {
        let (sign, colour, item) = match step {
            Step::Added(_, item) => ("+", style::GOOD, item),
            Step::Removed(_, item) => ("-", style::BAD, item),
            Step::Changed(_, _, item) => ("~", style::WARN, item),
        };
        let line =
            Spans::new().styled(format!("{sign} "), colour).plain(conversation::one_line(item, columns.min(400)));
        told.lines.push(line.line(columns));
    }
    let (memory, others): (Vec<_>, Vec<_>) =
        diff.registers.iter().partition(|register| register.key.as_str().starts_with("memory/"));
    memory.into_iter().flat_map(places).for_each(|place| told.place(&place));
    if told.lines.len() > MOST {
        let left = told.lines.len() - MOST;
        told.lines.truncate(MOST);
        told.lines.push(format!("{}and {left} more{}", style::DIM, style::RESET));
    }
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|register| register.key.as_str()).collect();
        told.lines.push(Spans::new().styled(format!("~ {}", names.join(", ")), style::DIM).line(columns));
    }
    told.lines
}

#[cfg(test)]
mod tests {
    use rekindle::State;
    use rekindle::core::record::{LogAppend, RegisterSet};
    use rekindle::core::{LogName, Record, RegisterKey};
    use serde_json::json;

    use super::*;

    fn state(messages: &[&str], registers: &[(&str, Value)]) -> State {
        let items = messages.iter().map(|text| Message::user(*text).to_json().unwrap()).collect();
        let mut records = vec![Record::from(LogAppend::new(LogName::new("messages").unwrap(), items))];
        for (key, value) in registers {
            records.push(RegisterSet::new(RegisterKey::new(key).unwrap(), value.clone().into()).into());
        }
        let mut state = State::default();
        records.iter().for_each(|record| state.apply(record).unwrap());
        state
    }

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn differences_read_well() {
        let long = "a text that is too long to be said beside another on one line";
        let from =
            state(&["one", "two", "three"], &[("memory/a", json!(3)), ("memory/t", json!(long)), ("x", json!(1))]);
        let to = state(
            &["one", "2", "three", "four\nand more"],
            &[
                ("memory/a", json!(5)),
                ("memory/b", json!({"c": [1]})),
                ("memory/t", json!(long.replace("too", "very"))),
            ],
        );
        let diff = StateDiff::between(&from, &to);
        let (lines, cut) = lines(&diff, Style { columns: 80, words: false, full: false });
        let expected = [
            "messages: 1 the same, 2 removed, 3 added",
            "~ 1 user",
            "    [-two-]{+2+}",
            "+ 3 user",
            "    four",
            "    and more",
            "~ memory/a: 3 → 5",
            r#"+ memory/b: {"c":[1]}"#,
            "~ memory/t:",
            "    a text that is [-too-]{+very+} long to be said beside anoth…",
            "- x: 1",
        ];
        let shown = plain(&lines);
        assert_eq!(shown[..9], expected[..9], "{shown:#?}");
        assert!(shown[9].contains("[-too-]{+very+}") && shown[10] == expected[10] && !cut, "{shown:#?}");
        assert_eq!(stat(&diff)[0], ("messages".to_owned(), "+1 ~1 ".to_owned()));
        let brief = plain(&brief(&diff, 80));
        assert_eq!(brief[..2], ["~ user: 2", "+ user: four and more"]);
        assert_eq!(brief.last().unwrap(), "~ x");
    }

    #[test]
    fn differences_fit_forty_columns() {
        let to = state(&["a rather long message that does not fit"], &[("memory/a", json!("x".repeat(100)))]);
        let (lines, cut) =
            lines(&StateDiff::between(&State::default(), &to), Style { columns: 40, words: false, full: false });
        assert!(cut && lines.iter().all(|line| crate::ui::width(line) <= 40), "{lines:#?}");
    }
}
