//! The JSON of events. Servers that cut text by the units of UTF-16 may cut a character in two, and
//! each half is no character: it is shown as missing rather than that the whole answer is refused.

use rekindle::model::ModelError;
use serde_json::Value;

/// What stands for half a character.
const MISSING: &str = "\\ufffd";

/// The JSON of an event. What is malformed may be whole the next time.
pub(crate) fn parsed(data: &str) -> Result<Value, ModelError> {
    serde_json::from_str(data).or_else(|error| {
        let mended = serde_json::from_str(&without_halves(data)).ok();
        mended.ok_or_else(|| ModelError::passing(format!("the stream holds malformed JSON: {error}")))
    })
}

/// `json` with a mark in place of each escape that is half a character.
fn without_halves(json: &str) -> String {
    let mut rest = json;
    let mut whole = String::with_capacity(json.len());
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        // An escape is two bytes, or six with the digits.
        let length = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                whole.push_str(MISSING);
                rest = &escape[6..];
                continue;
            }
            _ => escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end),
        };
        let (escape, after) = escape.split_at(length);
        whole.push_str(escape);
        rest = after;
    }
    whole + rest
}

/// The unit that `\uXXXX` at the beginning of `text` stands for.
fn unit(text: &str) -> Option<u16> {
    text.strip_prefix("\\u").and_then(|digits| u16::from_str_radix(digits.get(..4)?, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Option<&str>) {
        assert_eq!(parsed(json).ok().as_ref().and_then(Value::as_str), expected, "{json}");
    }

    #[test]
    fn halves_of_characters_are_marked() {
        check(r#""a\ud83e""#, Some("a\u{fffd}"));
        check(r#""\udd80 b""#, Some("\u{fffd} b"));
        check(r#""\ud83e\ud83e\udd80\udd80""#, Some("\u{fffd}🦀\u{fffd}"));
        check(r#""\ud83e\n\\ud83e\"""#, Some("\u{fffd}\n\\ud83e\""));
    }

    #[test]
    fn what_is_whole_stays_and_what_is_broken_is_an_error() {
        check(r#""\ud83e\udd80 \u00fc ü""#, Some("🦀 ü ü"));
        for broken in ["", "\"", "\"\\", "\"\\u", "\"\\ud83e", r#""\ud8"#, "\"\\ü\"", "{"] {
            check(broken, None);
            assert!(parsed(broken).unwrap_err().retry);
        }
    }

    #[test]
    fn fuzzed_events() {
        let seeds = [r#""\ud83e\udd80 \u00fc""#, r#"{"a":"\ud83e","b":["\udd80"]}"#];
        let words = ["\\ud83e", "\\udd80", "\\u", "\\\\", "ü"];
        rekindle_fuzz::fuzz!("event-json").seeds(seeds).words(words).text(|text| {
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                assert_eq!(parsed(text).ok(), Some(value));
            }
            parsed(text)
        });
    }
}
