//! The published schemas, and the examples of the documentation.

use std::path::PathBuf;

use rekindle_definitions::{Definition, Document, Format, SchemaName, schema, schema_names};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_published_schemas_are_those_of_the_code() {
    for (name, kind) in schema_names() {
        let path = root().join(format!("schemas/{name}.schema.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(&schema(kind)).unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(published == text, "{} differs: run the test with UPDATE_GOLDEN=1", path.display());
    }
}

fn validator(name: SchemaName) -> jsonschema::Validator {
    jsonschema::validator_for(&schema(name)).unwrap()
}

#[test]
fn every_key_has_a_description() {
    fn look(value: &Value, at: &str, missing: &mut Vec<String>) {
        let Some(fields) = value.as_object() else { return };
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if property.get("description").is_none()
                && property.get("const").is_none()
                && property.get("$ref").is_none()
            {
                missing.push(format!("{at}.{name}"));
            }
        }
        fields
            .iter()
            .filter(|(name, _)| *name != "properties")
            .for_each(|(name, field)| look(field, &format!("{at}/{name}"), missing));
        if let Some(Value::Object(inner)) = fields.get("properties") {
            inner.iter().for_each(|(name, field)| look(field, &format!("{at}.{name}"), missing));
        }
    }
    for (name, kind) in schema_names() {
        let mut missing = Vec::new();
        look(&schema(kind), name, &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
    }
}

/// The examples of the documentation: the language and the text of each.
fn examples() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("docs/files.md")).unwrap();
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (None, Some((_, text))) => text.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    found
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let mut kinds = Vec::new();
    for (language, text) in examples() {
        let format = match language.as_str() {
            "yaml" => Format::Yaml,
            "toml" => Format::Toml,
            "json" => Format::Json,
            _ => continue,
        };
        let document = Document::parse("docs/files.md", &text, format).unwrap();
        let value = document.value();
        let name = match value {
            Value::Object(fields) if fields.contains_key("turns") => SchemaName::Script,
            Value::Object(fields) if fields.contains_key("steps") => SchemaName::Plan,
            Value::Object(fields) if fields.contains_key("nodes") => SchemaName::Graph,
            Value::Object(fields) if fields.contains_key("name") => SchemaName::Agent,
            // A piece of a file.
            _ => continue,
        };
        let faults: Vec<String> =
            validator(name).iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(faults.is_empty(), "{faults:?}\n{text}");
        match name {
            SchemaName::Script => drop(document.decode::<rekindle_models::Script>("").unwrap()),
            _ => drop(Definition::parse("docs/files.md", &text, format).map_err(|faults| faults.excerpts()).unwrap()),
        }
        kinds.push(name);
    }
    for (_, name) in schema_names() {
        assert!(kinds.contains(&name), "no example of {name:?}");
    }
}

/// A script that says everything a script can say.
const SCRIPT: &str = r#"{
  "name": "all", "by": "calls", "repeat_last": true,
  "turns": [
    {"when": {"last_contains": "x"}, "text": "y", "stream": 2, "delay_ms": 1, "chunk_delay_ms": 1, "stop": "length"},
    {"expect": {"last_contains": "a", "system_contains": "b", "tools": ["t"], "messages": 1, "previous": "p", "partial": "q"},
     "reasoning": "r", "calls": [{"id": "i", "name": "t", "arguments": {}}, {"name": "t", "arguments_text": "{"}],
     "usage": {"input_tokens": 1, "output_tokens": 2, "cost_micros": 3}, "response": "id"},
    {"chunks": ["a", "b"],
     "error": {"message": "m", "retry": false, "retry_after_ms": 5, "after_chunks": 1, "times": 2}}
  ]
}"#;

#[test]
fn the_schema_of_scripts_is_that_of_the_scripted_model() {
    let value: Value = serde_json::from_str(SCRIPT).unwrap();
    let script: rekindle_models::Script = serde_json::from_value(value.clone()).unwrap();
    let faults: Vec<_> = validator(SchemaName::Script).iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    // Every key of the schema is in the script, so nothing is in the schema that the model does not know.
    let written = serde_json::to_value(&script).unwrap().to_string();
    let definitions = schema(SchemaName::Script);
    let all = definitions["$defs"].as_object().unwrap().values().chain([&definitions]);
    for name in all.filter_map(|object| object["properties"].as_object()).flat_map(|keys| keys.keys()) {
        assert!(written.contains(&format!("\"{name}\":")) || name == "after_chunks", "`{name}` is not tried");
    }
}
