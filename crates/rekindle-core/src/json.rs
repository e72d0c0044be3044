//! Verbatim JSON: kept byte for byte as it came in, shared without copying, parsed on demand.

use std::fmt;
use std::sync::Arc;

use memchr::memchr2;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;

/// One JSON value as text. Cloning shares the text; equality is by text. It is stored as it is,
/// except that line breaks between its tokens become spaces.
///
/// ```
/// use rekindle_core::Json;
/// let json = Json::parse(r#"{"n": 1.50}"#)?;
/// assert_eq!(json.as_str(), r#"{"n": 1.50}"#);
/// assert_eq!(json.to_value()?["n"], 1.5);
/// # Ok::<(), rekindle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

impl Json {
    /// Serialises `value`.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        serde_json::value::to_raw_value(value)
            .map(Self::from)
            .map_err(|error| Error::invalid("the value cannot be written as JSON").because(error))
    }

    /// Checks that `text` is one JSON value and keeps it as it is.
    pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
        RawValue::from_string(text.into())
            .map(Self::from)
            .map_err(|error| Error::invalid("the text is not one JSON value").because(error))
    }

    /// The JSON `null`.
    pub fn null() -> Self {
        Self(Arc::from(RawValue::NULL.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The value as a tree.
    pub fn to_value(&self) -> Result<Value, Error> {
        self.decode()
    }

    /// The value as a typed one.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.as_str())
            .map_err(|error| Error::invalid("the stored value does not have the expected shape").because(error))
    }

    /// How deeply arrays and objects nest in it.
    pub fn depth(&self) -> usize {
        depth(self.as_str().as_bytes())
    }

    /// Whether both share one text; a cheap sufficient test of equality.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Arc::from(raw))
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::of(&value).expect("a tree of JSON values can always be written")
    }
}

impl From<&str> for Json {
    /// A JSON string with that content.
    fn from(text: &str) -> Self {
        Self::of(text).expect("a string can always be written as JSON")
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

/// Replaces line breaks by spaces. In valid JSON they stand between tokens only, where white
/// space says nothing, so the value stays the same and fits on one line.
pub(crate) fn put_on_one_line(text: &mut [u8]) {
    let mut at = 0;
    while let Some(offset) = text.get(at..).and_then(|rest| memchr2(b'\n', b'\r', rest)) {
        at += offset;
        text[at] = b' ';
    }
}

/// How deeply arrays and objects nest in `text`, which must be valid JSON.
pub(crate) fn depth(text: &[u8]) -> usize {
    walk(text, |_, _, _| ())
}

/// Walks over `text` and gives every string in it to `visit`: its raw content, whether there is an
/// escape in it, and where it ends. Returns how deeply arrays and objects nest. Jumps over the
/// content of strings, so the cost follows the structure and not the length of the texts.
pub(crate) fn walk(text: &[u8], mut visit: impl FnMut(&[u8], bool, usize)) -> usize {
    let (mut depth, mut deepest, mut at) = (0usize, 0usize, 0usize);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                let (end, escaped) = string_end(text, at);
                visit(&text[(at + 1).min(end)..end], escaped, end);
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// The index of the quote that closes the string opened at `start`, or the end of the text, and
/// whether there is an escape in it.
pub(crate) fn string_end(text: &[u8], start: usize) -> (usize, bool) {
    let (mut at, mut escaped) = (start + 1, false);
    while let Some(offset) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += offset;
        if text[at] == b'"' {
            return (at, escaped);
        }
        escaped = true;
        at += 2;
    }
    (text.len(), escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_depth(text: &str, expected: usize) {
        assert_eq!(depth(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn depth_counts_structure_only() {
        check_depth("1", 0);
        check_depth("[]", 1);
        check_depth(r#"{"a":[{"b":"[[[["}],"c":"\"[["}"#, 3);
        check_depth(&format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)), 5_000);
        check_depth("\"\\", 0);
    }

    #[test]
    fn text_is_kept_verbatim() {
        let text = r#"{"b":1, "a":1.0e2,"big":123456789012345678901234567890}"#;
        let json = Json::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        assert_eq!(serde_json::from_str::<Json>(text).unwrap(), json);
        assert!(Json::parse("{").is_err());
    }
}
