//! An entry in a JSON file with comments and commas behind the last value, as editors keep their settings.
//! Nothing that stands there is written anew: the entry is put in between, and what came of it is checked.

use rekindle::{Error, Result};
use serde_json::{Map, Value};

/// `text` with `value` as `name` in the object `table`. An entry of that name that says something else stays: it may
/// hold comments.
pub fn merged(text: &str, table: &str, name: &str, value: &Value) -> Result<String> {
    let bare = plain(text);
    let before = parsed(&bare)?;
    let mut wanted = before.clone();
    let servers = wanted.entry(table).or_insert_with(|| Value::Object(Map::new()));
    let servers = servers.as_object_mut().ok_or_else(|| Error::invalid(format!("`{table}` in it is no object")))?;
    match servers.insert(name.to_owned(), value.clone()) {
        Some(old) if old == *value => return Ok(text.to_owned()),
        Some(_) => return Err(Error::invalid(format!("`{table}.{name}` is there, in a file with comments"))),
        None => {}
    }
    let entry = serde_json::json!({ name: value });
    let (at, depth, entry) = match value_of(&bare, table) {
        Some(at) => (at, 2, entry),
        None => (bare.find('{').unwrap_or_default(), 1, serde_json::json!({ table: entry })),
    };
    let after = put(text, &bare, at, depth, &entry);
    // Whatever stands there, this is what it means now, or nothing is written.
    match parsed(&plain(&after)) {
        Ok(now) if now == wanted => Ok(after),
        _ => Err(Error::invalid(format!("`{table}` stands there in a way that cannot be added to"))),
    }
}

/// `text` with the one entry of `object` as the first of the object that begins at `at`.
fn put(text: &str, bare: &str, at: usize, depth: usize, object: &Value) -> String {
    let pretty = serde_json::to_string_pretty(object).unwrap_or_else(|_| object.to_string());
    let entry = pretty.strip_prefix('{').and_then(|entry| entry.strip_suffix('}')).unwrap_or_default().trim_end();
    let entry = entry.replace('\n', &format!("\n{}", "  ".repeat(depth - 1)));
    let rest = &text[at + 1..];
    let empty = bare[at + 1..].trim_start().starts_with('}');
    let end = if empty { format!("\n{}", "  ".repeat(depth - 1)) } else { ",".to_owned() };
    format!("{}{{{entry}{end}{rest}", &text[..at])
}

fn parsed(bare: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(bare).map_err(|error| Error::invalid(format!("it is not a JSON object: {error}")))
}

/// The text with spaces where comments and commas behind the last value are; every place stays the same.
fn plain(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        let end = match bytes[at] {
            b'"' => end_of_string(&bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => find(&bytes, at, b"\n").unwrap_or(bytes.len()),
            b'/' if bytes.get(at + 1) == Some(&b'*') => find(&bytes, at + 2, b"*/").map_or(bytes.len(), |end| end + 2),
            _ => at + 1,
        };
        match bytes[at] {
            b'/' if end > at + 1 => blank(&mut bytes[at..end]),
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at = end;
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Spaces instead of all that is there but the ends of lines.
fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(wanted.len()).position(|window| window == wanted).map(|found| from + found)
}

/// Where the text behind the string that begins at `at` goes on.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while next < bytes.len() && bytes[next] != b'"' {
        next += if bytes[next] == b'\\' { 2 } else { 1 };
    }
    (next + 1).min(bytes.len())
}

/// Where the value of a key of the outermost object begins.
fn value_of(bare: &str, key: &str) -> Option<usize> {
    let bytes = bare.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    let mut found = None;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = end_of_string(bytes, at);
                let behind = bare.get(end..).unwrap_or_default().trim_start();
                let named = serde_json::from_str::<String>(bare.get(at..end).unwrap_or_default());
                if depth == 1 && behind.starts_with(':') && named.is_ok_and(|named| named == key) {
                    found = Some(bare.len() - behind[1..].trim_start().len());
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(text: &str) -> Result<String> {
        merged(text, "servers", "rekindle", &json!({ "args": ["mcp"], "command": "r" }))
    }

    #[test]
    fn every_comment_stays() {
        let before =
            "// Settings, see \"docs\"\n{\n  \"theme\": \"One // Dark\", /* mine */\n  \"tabs\": [1, 2,],\n}\n";
        let after = put(before).unwrap();
        assert_eq!(
            after,
            "// Settings, see \"docs\"\n{\n  \"servers\": {\n    \"rekindle\": {\n      \"args\": [\n        \"mcp\"\n      ],\n      \
             \"command\": \"r\"\n    }\n  },\n  \"theme\": \"One // Dark\", /* mine */\n  \"tabs\": [1, 2,],\n}\n"
        );
        assert_eq!(put(&after).unwrap(), after, "once is enough");
    }

    #[test]
    fn it_stands_beside_the_others() {
        for before in [
            "{ /* x */ \"servers\": { // none yet\n  } }",
            "{ \"a\": {\"servers\": {}}, \"servers\": {\"b\": {\"command\": \"x\",},}, }",
            "{ \"\\u0073ervers\": {\"b\": 1} // escaped\n}",
        ] {
            let after = put(before).unwrap();
            let now = parsed(&plain(&after)).unwrap();
            assert_eq!(now["servers"]["rekindle"]["command"], "r", "{after}");
        }
    }

    #[test]
    fn what_cannot_be_added_to_is_refused() {
        for text in [
            "",
            "// only words",
            "[] // a list",
            "{ // open",
            "{} {} //",
            "{\"servers\": 1, }",
            "{\"servers\": [], }",
            "{\"servers\": {\"rekindle\": {} /* mine */}}",
            "{\"a\": \"\\",
            "/*",
            "{\"a\":1,,}//",
        ] {
            assert!(put(text).is_err(), "{text}");
        }
    }

    /// A file that can be read stays one when something is added, with everything that was in it.
    #[test]
    fn fuzzed_files() {
        let seeds = [
            "{\n  // c\n  \"servers\": {\n    \"a\": {\"x\": 1}, // d\n  },\n}",
            "{}",
            "{\"a\": \"// no\", /* b */ \"servers\": {}}",
        ];
        rekindle_fuzz::fuzz!("jsonc").seeds(seeds).words(["//", "/*", "*/", "\\\"", "\"servers\":", ",}"]).text(
            |text| {
                let written = put(text).ok()?;
                let (before, after) = (parsed(&plain(text)).unwrap_or_default(), parsed(&plain(&written)).unwrap());
                for (key, value) in before.iter().filter(|(key, _)| *key != "servers") {
                    assert_eq!(after.get(key), Some(value), "{written}");
                }
                Some(())
            },
        );
    }
}
