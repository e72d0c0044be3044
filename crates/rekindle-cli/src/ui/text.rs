//! Text that fits where it stands and does nothing to a terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// `text` without characters a terminal would obey: ids, titles and errors come from anywhere.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether a terminal does something else with it than to show it. What turns the direction of text
/// makes it read as something it is not: an approval is for what is seen.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && c != '\n' && c != '\t'
}

/// `text` on one line.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    printable(&line)
}

/// `text` without colours; movements of the cursor stay.
pub fn without_colours(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(start);
        kept.push_str(before);
        let end = sequence[2..].find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |end| end + 3);
        if !sequence[..end].ends_with('m') {
            kept.push_str(&sequence[..end]);
        }
        rest = &sequence[end..];
    }
    kept.push_str(rest);
    kept
}

/// How many columns `text` takes; styles take none.
pub fn width(text: &str) -> usize {
    if text.contains('\u{1b}') { anstream::adapter::strip_str(text).to_string().width() } else { text.width() }
}

/// `text` in at most `columns`, its end cut off if need be.
pub fn shorten(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

/// One line of `text` in at most `columns`.
pub fn fit(text: &str, columns: usize) -> String {
    // A long text is not read to its end only to be cut.
    let head: String = text.chars().take(columns.saturating_mul(4).saturating_add(8)).collect();
    shorten(&one_line(&head), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(shorten("hello", 5), "hello");
        assert_eq!(shorten("hello!", 5), "hell…");
        assert_eq!(shorten("日本語", 4), "日…");
        assert_eq!(fit("a\n  b\tc", 10), "a b c");
        assert_eq!(printable("a\u{1b}[31mb"), "a\u{fffd}[31mb");
        assert_eq!(printable("rm \u{202e}txt.a\u{2066}"), "rm \u{fffd}txt.a\u{fffd}");
    }

    #[test]
    fn styles_take_no_columns() {
        assert_eq!(width("\u{1b}[31mred\u{1b}[0m"), 3);
    }

    /// Nothing that a terminal obeys comes through, and what is cut fits.
    #[test]
    fn fuzzed_text() {
        let seeds = ["plain", "a\u{1b}[31mred\u{1b}[0m", "日本語 \u{202e}x", "\u{9b}2J\u{7f}", "e\u{301}🦀\u{200d}"];
        rekindle_fuzz::fuzz!("terminal").seeds(seeds).words(["\u{1b}]0;", "\u{7}", "\u{1b}[", "\u{2066}", "\r"]).text(
            |text| {
                for shown in [printable(text), one_line(text), fit(text, 20), shorten(&printable(text), 10)] {
                    assert!(!shown.chars().any(is_obeyed), "{shown:?}");
                }
                assert!(!one_line(text).contains('\n'));
                for columns in [0, 1, 2, 7, 80] {
                    assert!(fit(text, columns).width() <= columns.max(1), "{columns}");
                }
                let _ = (width(text), without_colours(text));
            },
        );
    }
}
