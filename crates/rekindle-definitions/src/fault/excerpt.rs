//! The piece of a line that is shown with a fault. Values that look like secrets are left out.

/// How much of a line is kept before and after the place.
const BEFORE: usize = 60;
const AFTER: usize = 100;

/// Words in the names of keys whose values are not shown.
const PRIVATE: [&str; 7] = ["key", "secret", "token", "password", "bearer", "authorization", "credential"];

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// The text.
    pub(crate) text: String,
    /// Where in it the place begins, in characters.
    pub(crate) offset: usize,
    /// Whether something was left out before it.
    pub(crate) cut_before: bool,
    /// Whether something was left out after it.
    pub(crate) cut_after: bool,
}

impl Excerpt {
    /// Of `line`, around the character number `column` (from 0).
    pub(crate) fn of(line: &str, column: usize) -> Self {
        let first = column.saturating_sub(BEFORE);
        let hidden = private_from(line);
        let until = hidden.map_or(usize::MAX, |byte| line[..byte].chars().count());
        let kept: String = line.chars().take(until).skip(first).take(BEFORE + AFTER).collect();
        let length = kept.chars().count();
        let cut_after = hidden.is_some() || line.chars().nth(first + length).is_some();
        Self { text: kept, offset: (column - first).min(length), cut_before: first > 0, cut_after }
    }
}

/// Where in `line` something begins that looks like a secret given by value.
fn private_from(line: &str) -> Option<usize> {
    line.char_indices().filter(|(_, c)| matches!(c, ':' | '=')).find_map(|(at, _)| {
        let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '"' | '\'' | ' ');
        let before = &line[..at];
        let start = before.char_indices().rev().take_while(|(_, c)| legal(*c)).last().map_or(at, |(start, _)| start);
        // How many tokens may be used is no secret.
        let word = before[start..].to_lowercase().replace("tokens", "");
        let value = line[at + 1..].trim_start().trim_start_matches(['"', '\'']);
        let is_private = PRIVATE.iter().any(|private| word.contains(private));
        (is_private && !value.is_empty() && !value.starts_with(['@', '{', '[', '$', '#'])).then_some(at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, column: usize, text: &str, offset: usize) {
        let excerpt = Excerpt::of(line, column);
        assert_eq!((excerpt.text.as_str(), excerpt.offset), (text, offset), "{line}");
    }

    #[test]
    fn secrets_are_not_shown() {
        check("  apikey: sk-1234", 2, "  apikey:", 2);
        check("model: {name: x, api_key: 'sk-1234'}", 0, "model: {name: x, api_key:", 0);
        check("api_key = \"@env:KEY\"", 0, "api_key = \"@env:KEY\"", 0);
        check("name: x", 6, "name: x", 6);
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = "ä".repeat(10_000);
        let excerpt = Excerpt::of(&line, 5_000);
        assert_eq!((excerpt.text.chars().count(), excerpt.offset), (BEFORE + AFTER, BEFORE));
        assert!(excerpt.cut_before && excerpt.cut_after);
        assert_eq!(Excerpt::of("", 0).offset, 0);
        assert_eq!(Excerpt::of("ab", 9).offset, 2);
    }
}
