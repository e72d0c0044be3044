//! The work of checking a value against a JSON Schema, found out without doing it. A few references
//! that each lead to the next one twice make a billion steps of a schema of a hundred lines; such a check is
//! refused before it begins, because nothing could stop it.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// The most steps a check may take: some seconds.
const MOST_STEPS: u64 = 2_000_000;
/// The depth to which schemas may lead into each other: what the stack of a thread holds, here and where values are checked.
const DEEPEST: usize = 300;

/// Keywords whose schema, or list of schemas, is for the same value.
const SAME: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords whose schemas, by names, are for the same value.
const SAME_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose schemas are for every part of the value.
const PARTS: [&str; 8] = [
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "prefixItems",
];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The reason why a check is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMuch {
    /// Too many steps.
    Steps,
    /// Schemas lead into each other too deeply, or to themselves.
    Depth,
}

impl std::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps => {
                write!(f, "checking it takes more than {MOST_STEPS} steps: references in its schema multiply")
            }
            Self::Depth => write!(f, "references in its schema lead more than {DEEPEST} levels deep, or to themselves"),
        }
    }
}

/// A schema whose references are known.
#[derive(Debug)]
pub(crate) struct Effort {
    /// Nothing for a schema without references: its work grows with its size and that of the value only.
    schema: Option<Referring>,
}

#[derive(Debug)]
struct Referring {
    root: Value,
    /// The places of schemas with an `$id` or an anchor, as JSON Pointers.
    named: HashMap<String, Vec<String>>,
}

impl Effort {
    pub(crate) fn new(schema: &Value) -> Self {
        let mut named = HashMap::new();
        let refers = survey(schema, String::new(), &mut named);
        Self { schema: refers.then(|| Referring { root: schema.clone(), named }) }
    }

    /// An error if checking `value` takes too many steps.
    pub(crate) fn check(&self, value: &Value) -> Result<(), TooMuch> {
        let Some(schema) = &self.schema else { return Ok(()) };
        let mut count = Count { schema, known: HashMap::new(), under_way: HashSet::new() };
        count.steps(&schema.root, value, 0).map(drop)
    }
}

/// Notes names of schemas; whether there are references.
fn survey(schema: &Value, place: String, named: &mut HashMap<String, Vec<String>>) -> bool {
    let mut refers = false;
    let below = |name: &str| format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(text) = value.as_str() {
                    refers |= REFERENCES.contains(&name.as_str());
                    let known = match name.as_str() {
                        "$anchor" | "$dynamicAnchor" => Some(format!("#{text}")),
                        "$id" | "id" => Some(last_part(text).to_owned()),
                        _ => None,
                    };
                    known.into_iter().for_each(|known| named.entry(known).or_default().push(place.clone()));
                }
                refers |= survey(value, below(name), named);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                refers |= survey(value, below(&index.to_string()), named);
            }
        }
        _ => {}
    }
    refers
}

/// The end of an address, by which schemas of one document refer to each other.
fn last_part(address: &str) -> &str {
    let address = address.trim_end_matches('#');
    address.rsplit('/').next().unwrap_or(address)
}

impl Referring {
    /// All schemas a reference may mean. One to another document means none here, and is refused elsewhere.
    fn targets(&self, reference: &str) -> Vec<&Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let at = |place: &String| self.root.pointer(place);
        let bases: Vec<&Value> = match document.is_empty() {
            true => vec![&self.root],
            false => self.named.get(last_part(document)).into_iter().flatten().filter_map(at).collect(),
        };
        match fragment {
            "" => bases,
            pointer if pointer.starts_with('/') => {
                let pointer = decoded(pointer);
                // Relative to a document inside this one, or to the whole.
                bases
                    .iter()
                    .filter_map(|base| base.pointer(&pointer))
                    .chain(self.root.pointer(&pointer))
                    .take(2)
                    .collect()
            }
            anchor => self.named.get(&format!("#{anchor}")).into_iter().flatten().filter_map(at).collect(),
        }
    }
}

/// A JSON Pointer of a fragment, without percent signs.
fn decoded(pointer: &str) -> String {
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Counts the steps of a check that remembers nothing. This one does: each schema with each part of the value
/// is looked at once.
struct Count<'a> {
    schema: &'a Referring,
    known: HashMap<(*const Value, *const Value), u64>,
    under_way: HashSet<(*const Value, *const Value)>,
}

impl<'a> Count<'a> {
    fn steps(&mut self, schema: &'a Value, value: &Value, depth: usize) -> Result<u64, TooMuch> {
        let Value::Object(fields) = schema else { return Ok(1) };
        let key = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        if depth > DEEPEST || !self.under_way.insert(key) {
            return Err(TooMuch::Depth);
        }
        if self.known.len() as u64 > MOST_STEPS {
            return Err(TooMuch::Steps);
        }
        let mut total = 1_u64;
        for (name, sub) in fields {
            let more = self.of_keyword(name, sub, value, depth + 1)?;
            total = total.saturating_add(more);
            if total > MOST_STEPS {
                return Err(TooMuch::Steps);
            }
        }
        // What was evaluated is found out by evaluating once more.
        if fields.contains_key("unevaluatedProperties") || fields.contains_key("unevaluatedItems") {
            total = total.saturating_mul(2);
        }
        self.under_way.remove(&key);
        self.known.insert(key, total);
        Ok(total)
    }

    fn of_keyword(&mut self, name: &str, sub: &'a Value, value: &Value, depth: usize) -> Result<u64, TooMuch> {
        if let (true, Some(reference)) = (REFERENCES.contains(&name), sub.as_str()) {
            let targets = self.schema.targets(reference);
            return self.sum(targets.into_iter().map(|target| (target, value)), depth);
        }
        if SAME.contains(&name) {
            return self.sum(schemas(sub).map(|schema| (schema, value)), depth);
        }
        if SAME_BY_NAME.contains(&name) {
            return self.sum(by_name(sub).map(|(_, schema)| (schema, value)), depth);
        }
        if name == "properties" {
            let part = |(name, schema): (&'a String, &'a Value)| Some((schema, value.get(name)?));
            let parts: Vec<_> = by_name(sub).filter_map(part).collect();
            return self.sum(parts.into_iter(), depth);
        }
        if name == "patternProperties" || PARTS.contains(&name) {
            let subs: Vec<&'a Value> = if name == "patternProperties" {
                by_name(sub).map(|(_, schema)| schema).collect()
            } else {
                schemas(sub).collect()
            };
            let parts: Vec<&Value> = match value {
                Value::Object(fields) => fields.values().collect(),
                Value::Array(items) => items.iter().collect(),
                _ => Vec::new(),
            };
            let pairs = subs.iter().flat_map(|schema| parts.iter().map(move |part| (*schema, *part)));
            return self.sum(pairs, depth);
        }
        Ok(1)
    }

    fn sum<'v>(&mut self, pairs: impl Iterator<Item = (&'a Value, &'v Value)>, depth: usize) -> Result<u64, TooMuch> {
        let mut total = 0_u64;
        for (schema, value) in pairs {
            total = total.saturating_add(self.steps(schema, value, depth)?);
            if total > MOST_STEPS {
                return Err(TooMuch::Steps);
            }
        }
        Ok(total)
    }
}

/// A schema, or those in a list.
fn schemas(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(items) => items.iter(),
        one => std::slice::from_ref(one).iter(),
    }
}

fn by_name(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// References that each lead to the next one twice.
    fn doubled(levels: usize, keyword: &str) -> Value {
        let mut definitions = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            definitions.insert(format!("d{level}"), json!({ keyword: [next, next] }));
        }
        definitions.insert(format!("d{levels}"), json!({ "type": "object" }));
        json!({ "$ref": "#/$defs/d0", "$defs": definitions })
    }

    #[test]
    fn what_takes_too_long_is_found_out_at_once() {
        let check = |schema: Value, value: Value, expected: Result<(), TooMuch>| {
            assert_eq!(Effort::new(&schema).check(&value), expected, "{schema}");
        };
        let (steps, depth) = (Err(TooMuch::Steps), Err(TooMuch::Depth));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            check(doubled(5, keyword), json!({}), Ok(()));
            check(doubled(50, keyword), json!({}), steps);
        }
        check(json!({ "$ref": "#" }), json!(1), depth);
        check(json!({ "allOf": [{ "$ref": "#/$defs/a" }], "$defs": { "a": { "$ref": "#" } } }), json!(1), depth);
        // A tree is as much work as it is large.
        let tree = json!({ "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
        let mut value = json!({});
        (0..60).for_each(|_| value = json!({ "left": value }));
        check(tree, value, Ok(()));
        // Looked at twice on each level.
        let twice = json!({ "properties": { "a": { "allOf": [{ "$ref": "#" }, { "$ref": "#" }] } } });
        let mut value = json!({});
        (0..60).for_each(|_| value = json!({ "a": value }));
        check(twice.clone(), json!({ "a": { "a": {} } }), Ok(()));
        check(twice, value, steps);
        let list = json!({ "items": { "$ref": "#/$defs/item" }, "$defs": { "item": { "type": "integer" } } });
        check(list, (0..10_000).collect(), Ok(()));
        let chain: serde_json::Map<String, Value> =
            (0..3_000).map(|n| (format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1) }))).collect();
        check(json!({ "$ref": "#/$defs/d0", "$defs": chain }), json!(1), depth);
    }

    #[test]
    fn references_are_followed_by_every_name() {
        let bomb = |name: &str, reference: &str| {
            let mut schema = doubled(50, "allOf");
            schema["$defs"]["d0"][name] = json!("start");
            schema["$ref"] = json!(reference);
            schema
        };
        for (name, reference) in [
            ("$anchor", "#start"),
            ("$dynamicAnchor", "#start"),
            ("$id", "start"),
            ("$id", "https://example.com/start#"),
            ("title", "#/%24defs/d0"),
            ("title", "#/$defs/d0"),
        ] {
            let schema = bomb(name, reference);
            assert_eq!(Effort::new(&schema).check(&json!({})), Err(TooMuch::Steps), "{name} {reference}");
        }
    }
}
