//! The difference of two texts: by lines, or by words on a line.

use std::time::{Duration, Instant};

use similar::{ChangeTag, TextDiff};

use crate::ui::{printable, style};

/// How long two texts are compared at most; then what is found must do.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many lines around a change are shown.
const AROUND: usize = 2;
/// How much of what stayed is shown beside a changed word.
const BESIDE: usize = 30;
/// A text of more than this is not said on one line with another.
const LONG: usize = 40;

/// Whether two texts are better shown by what differs in them.
pub fn is_long(from: &str, to: &str) -> bool {
    from.contains('\n') || to.contains('\n') || from.chars().count().max(to.chars().count()) > LONG
}

/// What differs: by words if asked to or if neither has a second line, else by lines.
pub fn lines(from: &str, to: &str, words: bool, full: bool) -> Vec<String> {
    if words || !(from.contains('\n') || to.contains('\n')) {
        return by_words(from, to, full).lines().map(str::to_owned).collect();
    }
    by_lines(from, to, full)
}

fn by_lines(from: &str, to: &str, full: bool) -> Vec<String> {
    let diff = TextDiff::configure().deadline(Instant::now() + PATIENCE).diff_lines(from, to);
    let around = if full { usize::MAX / 4 } else { AROUND };
    let mut lines = Vec::new();
    for (number, group) in diff.grouped_ops(around).iter().enumerate() {
        if number > 0 {
            lines.push(format!("{}…{}", style::DIM, style::RESET));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let text = printable(change.value().trim_end_matches(['\r', '\n']));
            lines.push(match change.tag() {
                ChangeTag::Delete => format!("{}- {text}{}", style::BAD, style::RESET),
                ChangeTag::Insert => format!("{}+ {text}{}", style::GOOD, style::RESET),
                ChangeTag::Equal => format!("  {text}"),
            });
        }
    }
    lines
}

/// `the [-old-]{+new+} text`, readable without colour too.
fn by_words(from: &str, to: &str, full: bool) -> String {
    let diff = TextDiff::configure().deadline(Instant::now() + PATIENCE).diff_words(from, to);
    let mut parts: Vec<(ChangeTag, String)> = Vec::new();
    for change in diff.iter_all_changes() {
        match parts.last_mut() {
            Some((tag, text)) if *tag == change.tag() => text.push_str(change.value()),
            _ => parts.push((change.tag(), change.value().to_owned())),
        }
    }
    let last = parts.len().saturating_sub(1);
    let mut line = String::new();
    for (number, (tag, text)) in parts.iter().enumerate() {
        let text = printable(text);
        match tag {
            ChangeTag::Delete => line.push_str(&format!("{}[-{text}-]{}", style::BAD, style::RESET)),
            ChangeTag::Insert => line.push_str(&format!("{}{{+{text}+}}{}", style::GOOD, style::RESET)),
            ChangeTag::Equal if full => line.push_str(&text),
            ChangeTag::Equal => line.push_str(&kept(&text, number == 0, number == last)),
        }
    }
    line
}

/// What stayed between two changes: its ends are enough to find the place.
fn kept(text: &str, first: bool, last: bool) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (head, tail) = (if first { 0 } else { BESIDE }, if last { 0 } else { BESIDE });
    if characters.len() <= head + tail + 3 {
        return text.to_owned();
    }
    let begin: String = characters[..head].iter().collect();
    let end: String = characters[characters.len() - tail..].iter().collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &str, to: &str, words: bool, expected: &[&str]) {
        let plain: Vec<_> =
            lines(from, to, words, false).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(plain, expected);
    }

    #[test]
    fn texts_differ_by_lines_or_words() {
        check("a\nb\nc\n", "a\nx\nc\n", false, &["  a", "- b", "+ x", "  c"]);
        check("take the old road", "take the new road", false, &["take the [-old-]{+new+} road"]);
        check("a\nold b", "a\nnew b", true, &["a", "[-old-]{+new+} b"]);
        let far = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let changed = far.replace('9', "nine").replace('0', "null");
        check(far, &changed, false, &["- 0", "+ null", "  1", "  2", "…", "  7", "  8", "- 9", "+ nine"]);
        let long = format!("{} end", "same words and ".repeat(20));
        check(&long, &long.replace("end", "ends"), false, &["…ame words and same words and  [-end-]{+ends+}"]);
    }
}
