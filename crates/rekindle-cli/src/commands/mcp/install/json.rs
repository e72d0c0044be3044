//! An entry in a JSON file. Every other value stays as it was written, in its order.

use std::fmt;

use rekindle::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::jsonc;

/// An object whose values are kept as they were written.
#[derive(Default)]
struct Object(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Object {
    fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::invalid(format!("it is not a JSON object: {error}")))
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Puts a value in the place of the one with that name, or behind all others.
    fn put(&mut self, name: &str, text: String) -> Result<()> {
        let value = RawValue::from_string(text).map_err(|error| Error::invalid("it is no JSON").because(error))?;
        match self.0.iter_mut().rev().find(|(key, _)| key == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }

    fn written(&self, depth: usize) -> String {
        if self.0.is_empty() {
            return "{}".to_owned();
        }
        let (outer, inner) = ("  ".repeat(depth), "  ".repeat(depth + 1));
        let entries = self.0.iter().map(|(name, value)| format!("{inner}{}: {value}", Value::from(name.as_str())));
        format!("{{\n{}\n{outer}}}", entries.collect::<Vec<_>>().join(",\n"))
    }
}

/// `text` with `value` as `name` in the object `table`.
pub fn merged(text: &str, table: &str, name: &str, value: &Value) -> Result<String> {
    let (mark, bare) = match text.strip_prefix('\u{feff}') {
        Some(bare) => ("\u{feff}", bare),
        None => ("", text),
    };
    let mut whole = match Object::read(bare) {
        Ok(whole) => whole,
        Err(_) if bare.trim().is_empty() => Object::default(),
        Err(error) => {
            let with_comments = jsonc::merged(bare, table, name, value);
            // What is no JSON with comments either is told of as JSON.
            let told = |told: Error| if bare.contains("//") || bare.contains("/*") { told } else { error };
            return with_comments.map(|text| format!("{mark}{text}")).map_err(told);
        }
    };
    let mut servers = match whole.get(table) {
        Some(servers) => Object::read(servers.get())
            .map_err(|error| Error::invalid(format!("`{table}` in it: {}", error.message())))?,
        None => Object::default(),
    };
    let same = |old: &RawValue| serde_json::from_str::<Value>(old.get()).is_ok_and(|old| old == *value);
    if servers.get(name).is_some_and(same) {
        return Ok(text.to_owned());
    }
    let pretty = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    servers.put(name, pretty.replace('\n', "\n    "))?;
    whole.put(table, servers.written(1))?;
    Ok(format!("{mark}{}\n", whole.written(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_else_stays_as_it_was_written() {
        let before = "{\n  \"zoom\": 1.50,\n  \"mcpServers\": {\"b\": {\"command\":  \"x\"}, \"rekindle\": {}},\n  \"a\": [1,\n2]\n}";
        let after = merged(before, "mcpServers", "rekindle", &json!({ "command": "r" })).unwrap();
        assert_eq!(
            after,
            "{\n  \"zoom\": 1.50,\n  \"mcpServers\": {\n    \"b\": {\"command\":  \"x\"},\n    \"rekindle\": {\n      \"command\": \"r\"\n    }\n  },\n  \"a\": [1,\n2]\n}\n"
        );
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "{", "// words\n[]", "{\"mcpServers\": 1}", "{\"mcpServers\": []}", "{} {}"] {
            assert!(merged(text, "mcpServers", "rekindle", &json!({})).is_err(), "{text}");
        }
        assert!(merged(&"[".repeat(100_000), "mcpServers", "rekindle", &json!({})).is_err());
    }

    #[test]
    fn fuzzed_files() {
        let seeds = ["{\"mcpServers\": {\"a\": {\"x\": 1.0}}, \"b\": [1, 2]}", "{}", ""];
        rekindle_fuzz::fuzz!("json-file").seeds(seeds).words(["\"mcpServers\":", "\"rekindle\":", ",}"]).text(|text| {
            let written = merged(text, "mcpServers", "rekindle", &serde_json::json!({"command": "rekindle"})).ok()?;
            // What was JSON with comments stays so, and a mark before it stays.
            let without_mark = |text: &str| text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
            let bare = without_mark(text);
            if Object::read(&bare).is_ok() || bare.trim().is_empty() {
                let whole = Object::read(&without_mark(&written)).unwrap();
                let servers = Object::read(whole.get("mcpServers").unwrap().get()).unwrap();
                let entry: Value = serde_json::from_str(servers.get("rekindle").unwrap().get()).unwrap();
                assert_eq!(entry["command"], "rekindle", "{written}");
            }
            Some(())
        });
    }
}
