//! Text of strangers, made fit for a drawing: cleaned, measured, shortened, escaped.

/// The longest text that is shown, in characters: marks that take no width may be many.
const LONGEST: usize = 120;

/// On one line, without anything that is not to be seen or turns the text around.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_whitespace() {
            if !clean.is_empty() && !clean.ends_with(' ') {
                clean.push(' ');
            }
        } else if !is_hidden(character) {
            clean.push(character);
        }
    }
    clean.truncate(clean.trim_end().len());
    clean
}

/// Control characters, marks for the direction of text, and what XML does not allow.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
                | '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}'
        )
}

/// About how wide the text is in a font of this size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.36,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
        'A'..='Z' | '<' | '>' | '=' | '+' | '~' | '#' | '&' => 0.76,
        '\u{300}'..='\u{36F}' | '\u{200B}'..='\u{200D}' | '\u{FE00}'..='\u{FE0F}' => 0.0,
        '\u{1100}'..='\u{11FF}' | '\u{2E80}'..='\u{D7FF}' | '\u{F900}'..='\u{FAFF}' | '\u{FE30}'..='\u{FE6F}' => 1.2,
        '\u{FF00}'..='\u{FF60}' | '\u{1F000}'..='\u{3FFFF}' => 1.3,
        '\u{2000}'..='\u{2BFF}' => 0.9,
        _ => 0.61,
    }
}

/// The text, cut with an ellipsis if it is wider than `widest`.
pub(super) fn shorten(text: &str, size: f64, widest: f64) -> String {
    let mut used = 0.0;
    // Where to cut if the text turns out to be too long: the ellipsis needs its place, too.
    let mut cut = 0;
    for (count, (at, character)) in text.char_indices().enumerate() {
        if used + em('…') * size <= widest {
            cut = at;
        }
        used += em(character) * size;
        if used > widest || count >= LONGEST {
            // No half of a joined emoji.
            return format!("{}…", text[..cut].trim_end_matches(['\u{200D}', ' ']));
        }
    }
    text.to_owned()
}

/// The text on two lines, if it is too wide for one; the second is cut if it must be.
pub(super) fn wrap(text: &str, size: f64, widest: f64) -> Vec<String> {
    let whole = |end: usize| width(&text[..end], size) <= widest;
    // Beyond this many characters nothing fits on a line.
    let near = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
    let spaces = text[..near].match_indices(' ').map(|(at, _)| at);
    match spaces.take_while(|at| whole(*at)).last() {
        Some(space) if !(near == text.len() && whole(near)) => {
            vec![text[..space].to_owned(), shorten(&text[space + 1..], size, widest)]
        }
        _ => vec![shorten(text, size, widest)],
    }
}

/// Escaped for the text and the attributes of XML.
pub(super) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars().filter(|character| !is_hidden(*character)) {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cleaned() {
        assert_eq!(clean("  a\r\n\tb\u{0}\u{1b}[c \u{202e}d\u{FFFF} "), "a b[c d");
        assert_eq!(clean("\u{0}"), "");
        assert_eq!(clean("\u{1F469}\u{200D}\u{1F680}"), "\u{1F469}\u{200D}\u{1F680}");
    }

    #[test]
    fn long_text_is_cut_to_its_place() {
        assert_eq!(shorten("short", 10.0, 100.0), "short");
        for text in ["x".repeat(300), "漢".repeat(300), "👩\u{200D}🚀".repeat(90), "m ".repeat(90), "l".repeat(99)]
        {
            for widest in [0.0, 5.0, 40.0, 200.0] {
                let cut = shorten(&text, 10.0, widest);
                assert!(cut.ends_with('…') && !cut.contains("\u{200D}…") && !cut.contains(" …"), "{cut}");
                assert!(width(&cut, 10.0) <= f64::max(widest, 9.0), "{cut}");
            }
        }
        let marks = "e\u{301}\u{301}".to_owned() + &"\u{301}".repeat(5000);
        assert!(shorten(&marks, 10.0, 50.0).chars().count() <= LONGEST + 1);
    }

    #[test]
    fn text_goes_on_two_lines() {
        let check = |text: &str, lines: &[&str]| assert_eq!(wrap(text, 10.0, 45.0), lines, "{text}");
        check("", &[""]);
        check("one", &["one"]);
        check("one two", &["one two"]);
        check("one two three", &["one two", "three"]);
        check("one two three four", &["one two", "three…"]);
        check("onetwothreefour five", &["onetw…"]);
        check(&"a ".repeat(400), &["a a a a a", "a a a a…"]);
    }

    #[test]
    fn xml_is_escaped() {
        assert_eq!(xml("<a b=\"c\" d='e'>&\u{0}"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
    }
}
