//! Marks: what stands in a journal for a secret in arguments and in the memory.
//!
//! `{"$redacted":"NAME"}` stands for the secret as a whole. `{"$redacted":"NAME","parts":["Bearer ",["NAME"]]}`
//! stands for a text that holds it: texts are as they are, `["NAME"]` is a secret, and `["NAME","encoded"]` one in
//! another form, which cannot be put together again.
//!
//! A mark in the memory is filled in when the secret is known. Tools and models must not be able to ask for
//! that, so a mark that comes from outside is [disarmed](disarm) before it gets into the memory.

use std::collections::BTreeSet;

use rekindle_core::Json;
use serde_json::{Map, Value, json};

use super::finder::Finder;

const MARK: &str = "$redacted";
const PARTS: &str = "parts";

/// Returns whether a value is, or holds, the mark of something that is never stored.
pub(crate) fn is_redacted(value: &Json) -> bool {
    value.as_str().contains(r#""$redacted""#)
}

/// Returns whether two keys are the same but for case, `_` and `-`.
pub(crate) fn is_same_key(a: &str, b: &str) -> bool {
    let letters = |key: &str| -> String {
        key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
    };
    a == b || letters(a) == letters(b)
}

/// Puts marks in place of the secrets in a value.
pub(super) fn mark(finder: &Finder, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(marked) = marked(finder, text) {
                *value = marked;
            }
        }
        Value::Number(number) => {
            let number = number.to_string();
            if finder.replaced_number(&number).is_some()
                && let Some(marked) = marked(finder, &number)
            {
                *value = marked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mark(finder, item)),
        Value::Object(fields) => {
            let marked = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                mark(finder, &mut field);
                (finder.replaced(&key).unwrap_or(key), field)
            });
            *fields = marked.collect();
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The mark that stands for a text, if a secret is in it.
fn marked(finder: &Finder, text: &str) -> Option<Value> {
    let mut parts = Vec::new();
    let (mut first, mut behind) = (None, 0);
    for found in finder.matches(text) {
        if (found.start, found.end, found.plain) == (0, text.len(), true) {
            return Some(json!({ MARK: found.name }));
        }
        first = first.or(Some(found.name));
        if found.start > behind {
            parts.push(json!(text[behind..found.start]));
        }
        parts.push(if found.plain { json!([found.name]) } else { json!([found.name, "encoded"]) });
        behind = found.end;
    }
    let first = first?;
    if behind < text.len() {
        parts.push(json!(text[behind..]));
    }
    Some(json!({ MARK: first, PARTS: parts }))
}

/// The name in a mark.
fn name_of(fields: &Map<String, Value>) -> Option<&str> {
    let is_mark = fields.len() == 1 || fields.len() == 2 && fields.contains_key(PARTS);
    fields.get(MARK).filter(|_| is_mark).and_then(Value::as_str)
}

/// The names of the secrets that the marks in a value stand for.
pub(crate) fn names(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(value, &mut found);
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            if let Some(name) = name_of(fields) {
                found.insert(name.to_owned());
            }
            let parts = fields.get(PARTS).and_then(Value::as_array).into_iter().flatten();
            let named = parts.filter_map(|part| part.get(0).and_then(Value::as_str)).map(str::to_owned);
            found.extend(named.filter(|_| fields.contains_key(MARK)));
            fields.values().for_each(|field| collect(field, found));
        }
        _ => {}
    }
}

/// Puts the secrets in place of their marks, as far as `known` has them; whether none is left.
pub(crate) fn fill(value: &mut Value, known: &dyn Fn(&str) -> Option<Value>) -> bool {
    match value {
        Value::Array(items) => fill_all(items.iter_mut(), known),
        Value::Object(fields) => match name_of(fields) {
            Some(name) => {
                let filled = match fields.get(PARTS) {
                    None => known(name),
                    Some(parts) => joined(parts, known),
                };
                let found = filled.is_some();
                if let Some(filled) = filled {
                    *value = filled;
                }
                found
            }
            None => fill_all(fields.values_mut(), known),
        },
        _ => true,
    }
}

/// Fills each of them, also those behind one that stays marked.
fn fill_all<'a>(values: impl Iterator<Item = &'a mut Value>, known: &dyn Fn(&str) -> Option<Value>) -> bool {
    let mut all = true;
    for value in values {
        all &= fill(value, known);
    }
    all
}

fn joined(parts: &Value, known: &dyn Fn(&str) -> Option<Value>) -> Option<Value> {
    let mut text = String::new();
    for part in parts.as_array()? {
        match part {
            Value::String(plain) => text.push_str(plain),
            Value::Array(secret) => match secret.as_slice() {
                [Value::String(name)] => text.push_str(known(name)?.as_str()?),
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(Value::String(text))
}

/// Takes the meaning from marks that came from outside: `{"$redacted":…}` becomes `{"redacted":…}`. One that
/// stands under the key it names, or that `is_kept`, stays.
pub(crate) fn disarm(value: &mut Value, key: &str, is_kept: &dyn Fn(&str) -> bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| disarm(item, key, is_kept)),
        Value::Object(fields) => {
            let own = |name: &str| is_same_key(name, key) || is_kept(name);
            let whole = fields.len() == 1;
            match fields.get(MARK) {
                Some(Value::String(name)) if whole && own(name) => return,
                Some(_)
                    if fields.contains_key(PARTS)
                        && names(&Value::Object(fields.clone())).iter().all(|n| is_kept(n)) =>
                {
                    return;
                }
                Some(_) => {
                    let name = fields.remove(MARK).unwrap_or_default();
                    fields.insert("redacted".to_owned(), name);
                }
                None => {}
            }
            fields.iter_mut().for_each(|(key, field)| disarm(field, key, is_kept));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::finder::plain_name;
    use super::*;

    fn finder() -> Finder {
        let name = plain_name("api_key");
        Finder::new([(&name, "sk-1234567890")]).unwrap()
    }

    #[test]
    fn marks_stand_for_secrets_and_are_filled_in_again() {
        let finder = finder();
        let known = |name: &str| (name == "api_key").then(|| json!("sk-1234567890"));
        let check = |value: Value, marked: Value| {
            let mut found = value.clone();
            mark(&finder, &mut found);
            assert_eq!(found, marked);
            assert!(fill(&mut found, &known));
            assert_eq!(found, value);
        };
        check(json!("sk-1234567890"), json!({"$redacted": "api_key"}));
        check(
            json!({"auth": ["Bearer sk-1234567890!"], "n": 1}),
            json!({"auth": [{"$redacted": "api_key", "parts": ["Bearer ", ["api_key"], "!"]}], "n": 1}),
        );
        check(json!({"a": "b"}), json!({"a": "b"}));
        let mut encoded = json!("aHVudA c2stMTIzNDU2Nzg5MA==");
        mark(&finder, &mut encoded);
        assert!(!encoded.to_string().contains("NDU2Nz"), "{encoded}");
        assert_eq!(names(&encoded), BTreeSet::from(["api_key".to_owned()]));
        assert!(!fill(&mut encoded, &known), "what was encoded cannot be put together again");
        assert!(!fill(&mut json!({"a": {"$redacted": "other"}}), &known));
    }

    #[test]
    fn marks_from_outside_mean_nothing() {
        let check = |mut value: Value, expected: Value| {
            disarm(&mut value, "output", &|_| false);
            assert_eq!(value, expected);
        };
        check(json!({"$redacted": "api_key"}), json!({"redacted": "api_key"}));
        check(json!([{"x": {"$redacted": "api_key"}}]), json!([{"x": {"redacted": "api_key"}}]));
        let parts = json!({"$redacted": "output", "parts": ["a", ["api_key"]]});
        check(parts, json!({"redacted": "output", "parts": ["a", ["api_key"]]}));
        check(json!({"$redacted": {"$redacted": "api_key"}}), json!({"redacted": {"redacted": "api_key"}}));
        // Under its own key it can only mean the value of that key.
        check(json!({"apiKey": {"$redacted": "api_key"}}), json!({"apiKey": {"$redacted": "api_key"}}));
    }
}
