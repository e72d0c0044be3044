//! Redaction: what must not be stored is taken out before anything is encoded.
//!
//! A value under an excluded key becomes `{"$redacted":"<key>"}`, so that a resume knows what
//! to ask for again; a match of a pattern becomes `[redacted:<name>]`. Only content is looked
//! at (items, values, arguments, texts), never ids or structure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::json::Json;

/// The fields of records and headers that hold what users and models said.
const CONTENT: &[&str] = &[
    "items",
    "value",
    "arguments",
    "content",
    "error",
    "prompt",
    "default",
    "metadata",
    "title",
    "description",
    "reason",
    "from",
    "to",
    "changes",
];

/// What to take out.
#[derive(Clone, Debug)]
pub struct Redaction {
    keys: BTreeSet<String>,
    patterns: Vec<(String, Regex)>,
}

impl Default for Redaction {
    /// Values under `api_key`, `credentials` and `access_token`, however they are spelt.
    fn default() -> Self {
        Self::none().with_keys(["api_key", "credentials", "access_token"])
    }
}

impl Redaction {
    /// Takes out nothing.
    pub fn none() -> Self {
        Self { keys: BTreeSet::new(), patterns: Vec::new() }
    }

    /// Also takes out values under these keys. Case, `_` and `-` do not matter: `api_key` also
    /// means `apiKey` and `API-KEY`.
    #[must_use]
    pub fn with_keys<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.keys.extend(keys.into_iter().map(|key| normal(key).into_owned()));
        self
    }

    /// Also takes out what matches a regular expression inside any text.
    pub fn with_pattern(mut self, name: impl Into<String>, pattern: &str) -> Result<Self> {
        let regex = Regex::new(pattern)
            .map_err(|error| Error::invalid("the pattern is not a regular expression").because(error))?;
        self.patterns.push((name.into(), regex));
        Ok(self)
    }

    /// Whether a key is excluded.
    pub fn excludes(&self, key: &str) -> bool {
        self.keys.contains(normal(key).as_ref())
    }

    /// The payload without what must not be stored: the same bytes if there is nothing to do,
    /// which is found out without parsing.
    pub(super) fn payload<'a>(&self, payload: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if !self.may_match(payload) {
            return Ok(Cow::Borrowed(payload));
        }
        let wrong = |error| Error::invalid("the records cannot be searched for secrets").because(error);
        let mut records: Vec<Map<String, Value>> = serde_json::from_slice(payload).map_err(wrong)?;
        let mut changed = false;
        for record in &mut records {
            for (kind, body) in record.iter_mut() {
                if let Value::Object(body) = body {
                    changed |= self.body(kind, body);
                }
            }
        }
        if !changed {
            return Ok(Cow::Borrowed(payload));
        }
        serde_json::to_vec(&records).map(Cow::Owned).map_err(wrong)
    }

    /// A value without what must not be stored.
    pub fn value(&self, json: &Json) -> Result<Json> {
        if !self.may_match(json.as_str().as_bytes()) {
            return Ok(json.clone());
        }
        let mut value = json.to_value()?;
        Ok(if self.walk(&mut value) { Json::from(value) } else { json.clone() })
    }

    /// A text without what must not be stored.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        self.string(&mut text);
        text
    }

    fn body(&self, kind: &str, body: &mut Map<String, Value>) -> bool {
        let mut changed = false;
        // A register is a key with a value, spelt differently.
        if kind == "register_set"
            && let Some(key) =
                body.get("key").and_then(Value::as_str).filter(|key| self.excludes(key)).map(str::to_owned)
        {
            changed |= replace(&key, body.get_mut("value"));
        }
        for (name, value) in body.iter_mut() {
            if CONTENT.contains(&name.as_str()) {
                changed |= self.walk(value);
            }
        }
        changed
    }

    fn walk(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(map) => map.iter_mut().fold(false, |changed, (key, value)| {
                let here = if self.excludes(key) { replace(key, Some(value)) } else { self.walk(value) };
                changed | here
            }),
            Value::Array(items) => items.iter_mut().fold(false, |changed, item| changed | self.walk(item)),
            Value::String(text) => self.string(text),
            _ => false,
        }
    }

    fn string(&self, text: &mut String) -> bool {
        let mut changed = false;
        for (name, regex) in &self.patterns {
            let marker = format!("[redacted:{name}]");
            if let Cow::Owned(replaced) = regex.replace_all(text, regex::NoExpand(&marker)) {
                *text = replaced;
                changed = true;
            }
        }
        changed
    }

    /// Whether it is worth parsing `json`: a pattern is configured, or an excluded key occurs.
    fn may_match(&self, json: &[u8]) -> bool {
        !self.patterns.is_empty() || (!self.keys.is_empty() && self.has_excluded_key(json))
    }

    /// Looks at object keys, and at the names of registers, without parsing the rest.
    fn has_excluded_key(&self, json: &[u8]) -> bool {
        let mut at = 0;
        while let Some(start) = memchr::memchr(b'"', &json[at..]).map(|offset| at + offset) {
            let mut end = start + 1;
            let mut escaped = false;
            loop {
                match memchr::memchr2(b'"', b'\\', &json[end..]) {
                    None => return false,
                    Some(offset) if json[end + offset] == b'\\' => {
                        escaped = true;
                        end += offset + 2;
                        if end > json.len() {
                            return false;
                        }
                    }
                    Some(offset) => {
                        end += offset;
                        break;
                    }
                }
            }
            let text = &json[start + 1..end];
            // Short strings only: an excluded key is short, and a long text is not a key. An
            // escape may hide a key, so it is not ruled out.
            if text.len() <= 128
                && let Ok(text) = std::str::from_utf8(text)
                && ((escaped && next_is_colon(json, end + 1)) || self.excludes(text))
            {
                return true;
            }
            at = end + 1;
        }
        false
    }
}

fn next_is_colon(json: &[u8], at: usize) -> bool {
    json[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Puts the marker in place of a value that is not one already.
fn replace(key: &str, value: Option<&mut Value>) -> bool {
    let marker = json!({ "$redacted": key });
    match value {
        Some(value) if *value != marker && !value.is_null() => {
            *value = marker;
            true
        }
        _ => false,
    }
}

/// Lower case without separators.
fn normal(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        Cow::Borrowed(key)
    } else {
        Cow::Owned(key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(redaction: &Redaction, input: &str, expected: &str) {
        let output = redaction.payload(input.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&output).unwrap(), expected);
    }

    #[test]
    fn excluded_keys_are_replaced_at_any_depth_and_spelling() {
        let redaction = Redaction::default();
        for key in ["api_key", "apiKey", "API-KEY", "api\\u005fkey"] {
            let input = format!(r#"[{{"log_append":{{"log":"m","items":[{{"a":[{{"{key}":"sk-1"}}]}}]}}}}]"#);
            let output = redaction.payload(input.as_bytes()).unwrap();
            let output = std::str::from_utf8(&output).unwrap();
            assert!(!output.contains("sk-1") && output.contains("$redacted"), "{output}");
        }
        check(
            &redaction,
            r#"[{"register_set":{"key":"access_token","value":"t"}}]"#,
            r#"[{"register_set":{"key":"access_token","value":{"$redacted":"access_token"}}}]"#,
        );
    }

    #[test]
    fn what_has_nothing_to_hide_keeps_its_bytes() {
        let redaction = Redaction::default();
        for input in [
            r#"[{"log_append":{"log":"m","items":[{"text":"my api_key: is safe",  "n":1.50}]}}]"#,
            r#"[{"log_append":{"log":"m","items":["api_key"]}}]"#,
            r#"[{"register_set":{"key":"k","value":"a\"b"}}]"#,
        ] {
            check(&redaction, input, input);
        }
    }

    #[test]
    fn patterns_apply_to_texts_but_not_to_structure() {
        let redaction = Redaction::none().with_pattern("token", r"tok_[a-z0-9]+").unwrap();
        check(
            &redaction,
            r#"[{"effect_outcome":{"effect":"tok_id","attempt":1,"status":"ok","value":["x tok_abc y"]}}]"#,
            r#"[{"effect_outcome":{"attempt":1,"effect":"tok_id","status":"ok","value":["x [redacted:token] y"]}}]"#,
        );
        assert_eq!(redaction.text("tok_1"), "[redacted:token]");
        assert!(Redaction::none().with_pattern("x", "(").is_err());
    }

    #[test]
    fn redacting_twice_changes_nothing_more() {
        let redaction = Redaction::default();
        let once = redaction.payload(br#"[{"register_set":{"key":"k","value":{"api_key":1}}}]"#).unwrap().into_owned();
        assert_eq!(redaction.payload(&once).unwrap(), once);
    }
}
