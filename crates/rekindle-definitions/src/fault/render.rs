//! Faults drawn with the line they are in.

use unicode_width::UnicodeWidthChar;

use super::{Excerpt, Fault, is_invisible};

/// How wide a tab is drawn.
const TAB: usize = 4;

/// The fault over several lines, without a line break at the end.
pub(super) fn render(fault: &Fault) -> String {
    let mut lines = vec![format!("error: {}", fault.message)];
    let number = fault.line.map(|line| line.to_string()).unwrap_or_default();
    let gutter = " ".repeat(number.len());
    if let Some(place) = fault.place() {
        lines.push(format!("{gutter}--> {place}"));
    }
    if let Some(excerpt) = &fault.excerpt {
        let (text, marks) = draw(excerpt, fault.length);
        lines.push(format!("{gutter} |"));
        lines.push(format!("{number} | {text}"));
        lines.push(format!("{gutter} | {marks}"));
    }
    if let Some(hint) = &fault.hint {
        lines.push(format!("{gutter} = hint: {hint}"));
    }
    lines.join("\n")
}

/// The text as it is drawn, and the marks below it.
fn draw(excerpt: &Excerpt, length: usize) -> (String, String) {
    let mut text = String::from(if excerpt.cut_before { "…" } else { "" });
    let mut width = usize::from(excerpt.cut_before);
    let (mut start, mut end) = (None, None);
    for (number, c) in excerpt.text.chars().enumerate() {
        if number == excerpt.offset {
            start = Some(width);
        }
        if number == excerpt.offset + length.max(1) {
            end = Some(width);
        }
        width += put(&mut text, c);
    }
    let start = start.unwrap_or(width);
    let end = end.unwrap_or(width).max(start + 1);
    if excerpt.cut_after {
        text.push('…');
    }
    (text, format!("{}{}", " ".repeat(start), "^".repeat(end - start)))
}

/// Draws one character; how wide it is.
fn put(text: &mut String, c: char) -> usize {
    if c == '\t' {
        text.push_str(&" ".repeat(TAB));
        return TAB;
    }
    if c.is_control() || is_invisible(c) {
        let escaped: String = c.escape_unicode().collect();
        text.push_str(&escaped);
        return escaped.len();
    }
    text.push(c);
    c.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, column: usize, length: usize, expected: &str) {
        let fault = Fault {
            line: Some(12),
            column: Some(column),
            length,
            excerpt: Some(Excerpt::of(line, column - 1)),
            ..Fault::new("unknown key `promt`").with_file("agent.yaml").with_hint("did you mean `prompt`?")
        };
        assert_eq!(fault.render(), expected);
    }

    #[test]
    fn faults_are_drawn_with_their_line() {
        let expected = "error: unknown key `promt`\n  --> agent.yaml:12:5\n   |\n12 |     promt: hello\n   |     ^^^^^\n   = hint: did you mean `prompt`?";
        check("    promt: hello", 5, 5, expected);
        let wide = "error: unknown key `promt`\n  --> agent.yaml:12:5\n   |\n12 |     日本 x\n   |          ^\n   = hint: did you mean `prompt`?";
        check("\t日本 x", 5, 0, wide);
    }

    #[test]
    fn control_characters_are_escaped() {
        let (text, marks) = draw(&Excerpt::of("a\u{1b}[31mb", 6), 1);
        assert_eq!((text.as_str(), marks.as_str()), ("a\\u{1b}[31mb", "           ^"));
    }
}
