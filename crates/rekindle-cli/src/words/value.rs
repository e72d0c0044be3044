//! Values: short on a line, or whole over several.

use rekindle::{Error, Json, Result};
use serde_json::Value;

use crate::ui::{fit, printable};

/// How much of a value is shown unless all of it is asked for.
const LINES: usize = 40;
const CHARACTERS: usize = 4_000;

/// A value on one line.
pub fn short(value: &Json, columns: usize) -> String {
    fit(value.as_str(), columns)
}

/// The lines of a value, and whether some were left out.
pub fn lines(value: &Value, full: bool) -> (Vec<String>, bool) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    cut(&text, full)
}

/// The lines of a text, and whether some were left out.
pub fn cut(text: &str, full: bool) -> (Vec<String>, bool) {
    if full {
        return (text.lines().map(printable).collect(), false);
    }
    let mut left = CHARACTERS;
    let mut kept = Vec::new();
    for line in text.lines() {
        if kept.len() == LINES || left == 0 {
            return (kept, true);
        }
        let length = line.chars().count();
        if length > left {
            kept.push(printable(&line.chars().take(left).collect::<String>()) + "…");
            return (kept, true);
        }
        left -= length;
        kept.push(printable(line));
    }
    (kept, false)
}

/// A value as people type it: JSON, or else a text.
pub fn typed(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|_| Json::from(text))
}

/// The same where `schema` is to be met: a number is a text where a text is wanted.
pub fn typed_for(text: &str, schema: Option<&Json>) -> Json {
    let value = typed(text);
    let schema = schema.and_then(|schema| schema.to_value().ok()).unwrap_or_default();
    match schema.get("type").and_then(Value::as_str) {
        Some("string") if !value.as_str().starts_with('"') => Json::from(text),
        _ => value,
    }
}

/// A value that must be JSON.
pub fn json(text: &str, what: &str) -> Result<Json> {
    Json::parse(text)
        .map_err(|error| error.hint(format!("{what} are JSON, in quotes of the shell: '{{\"name\": \"value\"}}'")))
}

/// What stands in `-` or in the argument itself.
pub fn text_or_input(text: &str) -> Result<String> {
    use std::io::Read as _;
    const MOST: u64 = 4 << 20;
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    let input = std::io::stdin().lock();
    input
        .take(MOST + 1)
        .read_to_string(&mut read)
        .map_err(|error| Error::invalid("standard input cannot be read as text").because(error))?;
    if read.len() as u64 > MOST {
        return Err(Error::limit("bytes on standard input", read.len() as u64, MOST));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_json_or_text() {
        let check = |text: &str, schema: Option<&str>, expected: &str| {
            let schema = schema.map(|schema| Json::parse(schema).unwrap());
            assert_eq!(typed_for(text, schema.as_ref()).as_str(), expected);
        };
        check("5", None, "5");
        check("by train", None, r#""by train""#);
        check(r#"{"a":1}"#, None, r#"{"a":1}"#);
        check("5", Some(r#"{"type":"string"}"#), r#""5""#);
        check(r#""5""#, Some(r#"{"type":"string"}"#), r#""5""#);
        check("5", Some(r#"{"type":"integer"}"#), "5");
        check("many", Some(r#"{"type":"integer"}"#), r#""many""#);
    }

    #[test]
    fn long_texts_are_cut_unless_asked_for() {
        let long = "line\n".repeat(100);
        assert_eq!(cut(&long, false).0.len(), LINES);
        assert!(cut(&long, false).1 && !cut(&long, true).1);
        let wide = "x".repeat(10_000);
        assert_eq!(cut(&wide, false).0[0].chars().count(), CHARACTERS + 1);
        assert_eq!(cut("a\u{7}\nb", false), (vec!["a\u{fffd}".to_owned(), "b".to_owned()], false));
    }
}
