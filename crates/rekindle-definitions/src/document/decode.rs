//! Typed values of a file. What serde says is wrong is put into words for people, at the place it
//! is about.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{Document, child, did_you_mean, list};
use crate::fault::{Fault, Faults, short};

/// What a message begins with that must not be shown with its line.
pub(crate) const SECRET_BY_VALUE: &str = "a secret is given by reference, never by value";

pub(super) fn decode<T: DeserializeOwned>(document: &Document, value: Value, pointer: &str) -> Result<T, Faults> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let at = error.path().iter().fold(pointer.to_owned(), |at, segment| match segment {
            Segment::Seq { index } => format!("{at}/{index}"),
            // The name of a variant that stands for itself is no place.
            Segment::Map { key } | Segment::Enum { variant: key } => child(&at, key),
            Segment::Unknown => at,
        });
        let message = error.inner().to_string();
        Words { document, at, message: &message }.fault().into()
    })
}

/// What serde said, and where.
struct Words<'a> {
    document: &'a Document,
    at: String,
    message: &'a str,
}

impl Words<'_> {
    fn fault(self) -> Fault {
        let message = self.message;
        if let Some(rest) = between(message, "unknown field `", "`") {
            return self.unknown_key(rest);
        }
        if let Some(name) = between(message, "unknown variant `", "`") {
            let known: Vec<&str> = quoted(message).into_iter().skip_while(|quoted| *quoted != name).skip(1).collect();
            let at = self.value_of(|value| value.as_str() == Some(name) || value.get(name).is_some());
            let fault = self.document.fault(&at, format!("`{}` is not known here", short(name)));
            return with_names(fault, name, &known, "use one of");
        }
        if let Some(name) = between(message, "missing field `", "`") {
            return self.document.key_fault(&self.at, format!("`{name}` is missing"));
        }
        if message.contains("untagged enum Condition") {
            return self.condition();
        }
        if message.contains(SECRET_BY_VALUE) {
            let hint = "write @env:VARIABLE or @file:path";
            return self.document.key_fault(&self.at, SECRET_BY_VALUE).with_hint(hint).without_excerpt();
        }
        match wrong_type(message) {
            Some((found, text)) => {
                let at = self.value_of(|value| is_found(value, found));
                self.document.fault(&at, text)
            }
            None => {
                // A hint may follow behind a line break.
                let (text, hint) = message.split_once('\n').unwrap_or((message, ""));
                let at = self.value_of(|value| {
                    value.as_str().is_some_and(|text| quoted(message).first().is_some_and(|first| *first == text))
                });
                let fault = self.document.fault(&at, text);
                if hint.is_empty() { fault } else { fault.with_hint(hint) }
            }
        }
    }

    fn unknown_key(&self, name: &str) -> Fault {
        let known: Vec<&str> = quoted(self.message).into_iter().skip_while(|quoted| *quoted != name).skip(1).collect();
        // The path may end with the key or with the object around it.
        let inside = child(&self.at, name);
        let at = if self.document.at(&inside).is_some() { inside } else { self.at.clone() };
        let fault = self.document.key_fault(&at, format!("unknown key `{}`", short(name)));
        with_names(fault, name, &known, "the keys here are")
    }

    /// The place of the only value inside what is located that `fits`, since flattened and tagged
    /// forms lose the last part of the path.
    fn value_of(&self, fits: impl Fn(&Value) -> bool) -> String {
        let Some(Value::Object(fields)) = self.document.at(&self.at) else { return self.at.clone() };
        let mut found = fields.iter().filter(|(_, value)| fits(value)).map(|(name, _)| child(&self.at, name));
        match (found.next(), found.next()) {
            (Some(only), None) => only,
            _ => self.at.clone(),
        }
    }

    /// What is wrong with a condition: the type that reads it only knows that something is.
    fn condition(&self) -> Fault {
        let mut open = vec![self.at.clone()];
        while let Some(at) = open.pop() {
            match self.document.at(&at) {
                Some(Value::Object(fields)) if at.ends_with("/when") || fields.len() <= CONDITION.len() => {
                    if let Some(name) = fields.keys().find(|name| !CONDITION.contains(&name.as_str())) {
                        let fault =
                            self.document.key_fault(&child(&at, name), format!("unknown key `{}`", short(name)));
                        return with_names(fault, name, &CONDITION, "the keys of a condition are");
                    }
                    let inner = ["all", "any"].iter().flat_map(|list| {
                        let items = fields.get(*list).and_then(Value::as_array).map_or(0, Vec::len);
                        let at = child(&at, list);
                        (0..items).map(move |number| format!("{at}/{number}"))
                    });
                    open.extend(inner.chain(fields.get("not").map(|_| child(&at, "not"))));
                }
                Some(Value::Null) | None | Some(Value::Object(_)) => {}
                Some(_) => return self.document.fault(&at, "expected a condition, e.g. {memory: score, at_least: 1}"),
            }
        }
        let hint = "write `all`, `any`, `not` or `failed` alone, or a test such as {memory: score, at_least: 1}";
        self.document.fault(&self.at, "this is no condition").with_hint(hint)
    }
}

/// The keys of conditions.
const CONDITION: [&str; 15] = [
    "all",
    "any",
    "not",
    "failed",
    "memory",
    "at",
    "is",
    "is_not",
    "one_of",
    "less_than",
    "at_most",
    "more_than",
    "at_least",
    "contains",
    "exists",
];

fn with_names(fault: Fault, name: &str, known: &[&str], introduction: &str) -> Fault {
    match did_you_mean(name, known.iter().copied()) {
        Some(hint) => fault.with_hint(hint),
        None if known.is_empty() => fault,
        None => fault.with_hint(format!("{introduction} {}", list(known.iter().copied()))),
    }
}

/// What was found and what to say, if a message of serde is about a type or a value.
fn wrong_type(message: &str) -> Option<(&str, String)> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|begin| between(message, begin, "\0"))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    Some((found, format!("expected {}, found {}", expectation(expected), finding(found))))
}

fn expectation(expected: &str) -> String {
    let numbers = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
    match expected {
        "a string" | "string" | "str" => "text".into(),
        "a boolean" => "`true` or `false`".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object with keys".into(),
        "f64" | "f32" => "a number".into(),
        _ if numbers.contains(&expected) => "a whole number".into(),
        _ if expected.starts_with("struct ") => "an object with keys".into(),
        _ if expected.starts_with("a nonzero ") => "a whole number above 0".into(),
        _ => expected.to_owned(),
    }
}

fn finding(found: &str) -> String {
    let bare = |rest: &str| rest.trim_matches('`').to_owned();
    match found {
        "map" => "an object with keys".into(),
        "sequence" => "a list".into(),
        "null" | "unit value" => "nothing".into(),
        _ => match found.split_once(' ') {
            Some(("string", text)) => format!("the text {}", short(text)),
            Some(("integer", number)) => format!("the number {}", bare(number)),
            Some(("floating", number)) => format!("the number {}", bare(number.trim_start_matches("point "))),
            Some(("boolean", value)) => bare(value),
            _ => found.to_owned(),
        },
    }
}

/// Whether `value` is what serde describes as `found`.
fn is_found(value: &Value, found: &str) -> bool {
    match value {
        Value::Null => found == "null" || found == "unit value",
        Value::Bool(yes) => found == format!("boolean `{yes}`"),
        Value::Number(number) => found.ends_with(&format!("`{number}`")),
        Value::String(text) => found == format!("string {text:?}"),
        Value::Array(_) => found == "sequence",
        Value::Object(_) => found == "map",
    }
}

/// What stands between `begin` and `end`, or behind `begin`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(begin)? + begin.len()..];
    Some(rest.find(end).map_or(rest, |end| &rest[..end]))
}

/// Every word in backticks.
pub(crate) fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}
