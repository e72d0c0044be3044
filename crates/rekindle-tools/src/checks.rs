//! What every builder checks. Faults are collected, so that one error names them all.

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{ToolOptions, ToolSpec};
use rekindle::{Error, Json, Result};
use serde_json::Value;

use crate::template::{Reference, Template};

/// The largest JSON Schema of a tool, in bytes.
pub(crate) const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// How deep a JSON Schema may go.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 64;
/// The longest name of a tool.
pub(crate) const MAX_NAME: usize = 64;

/// What is wrong with a tool that is being built.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    pub(crate) fn add(&mut self, fault: impl Into<String>) {
        self.0.push(fault.into());
    }

    pub(crate) fn check(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.0.push(fault());
        }
    }

    /// A template; an empty one and a fault if it is none. Arguments it names must be in `schema`.
    pub(crate) fn template(&mut self, place: &str, text: &str, secrets: bool, schema: &Value) -> Template {
        let template = Template::parse(text).unwrap_or_else(|fault| {
            self.add(format!("{place}: {fault}"));
            Template { pieces: Vec::new() }
        });
        for reference in template.references() {
            match reference {
                Reference::Secret(_) if !secrets => {
                    self.add(format!("{place}: `{reference}` is allowed in headers and environment variables only"));
                }
                Reference::Arguments(path) if !declares(schema, path) => {
                    self.add(format!("{place}: `{reference}` is not among the parameters"));
                }
                _ => {}
            }
        }
        template
    }

    /// The error that names them all, if there are any.
    pub(crate) fn into_result(self, kind: &str, name: &str) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(format!("{kind} `{name}`: {}", self.0.join("; ")))),
        }
    }
}

/// Checks what a model is told, and gives the schema back as a tree.
pub(crate) fn spec(faults: &mut Faults, spec: &ToolSpec) -> Value {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    faults.check(!spec.name.is_empty() && spec.name.len() <= MAX_NAME && spec.name.chars().all(legal), || {
        format!("a name has 1 to {MAX_NAME} letters, digits, `_` and `-`")
    });
    match schema(&spec.parameters) {
        Ok(schema) => schema,
        Err(fault) => {
            faults.add(fault);
            Value::Null
        }
    }
}

/// Checks the policy: `check` needs something that checks.
pub(crate) fn options(faults: &mut Faults, options: &ToolOptions, can_check: bool, hint: &str) {
    faults.check(can_check || options.in_doubt != Some(InDoubtPolicy::Check), || {
        format!("the policy `check` needs {hint}")
    });
}

/// Checks the schema of a tool's arguments: its size, its depth, and that it is one for objects.
pub(crate) fn schema(schema: &Json) -> std::result::Result<Value, String> {
    if schema.as_str().len() > MAX_SCHEMA_BYTES {
        return Err(format!("its schema has {} bytes, more than {MAX_SCHEMA_BYTES}", schema.as_str().len()));
    }
    if schema.depth() > MAX_SCHEMA_DEPTH {
        return Err(format!("its schema is {} levels deep, more than {MAX_SCHEMA_DEPTH}", schema.depth()));
    }
    let value = schema.to_value().map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("its schema is no JSON object".to_owned());
    }
    match value.get("type").map(|kind| kind.as_str().unwrap_or("something else")) {
        None | Some("object") => {}
        Some(other) => return Err(format!("its schema takes {other} for the arguments, and models send an object")),
    }
    jsonschema::validator_for(&value).map_err(|error| format!("its schema is not valid: {error}"))?;
    Ok(value)
}

/// Whether a schema may let an argument of that name through. Only a plain schema is judged: one
/// that refers elsewhere, or says that it is open, may.
fn declares(schema: &Value, path: &[String]) -> bool {
    let Some(name) = path.first() else { return true };
    const OPEN: [&str; 6] = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if"];
    let open = OPEN.iter().any(|key| schema.get(key).is_some())
        || !matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)))
        || schema.is_null();
    open || schema.get("properties").and_then(|properties| properties.get(name)).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_that_nobody_can_give_is_a_fault() {
        let check = |schema: Value, expected| assert_eq!(declares(&schema, &["a".into()]), expected, "{schema}");
        check(json!({"properties": {"a": {}}}), true);
        check(json!({"properties": {"b": {}}}), false);
        check(json!({"type": "object"}), false);
        check(json!({"additionalProperties": true}), true);
        check(json!({"additionalProperties": {"type": "string"}}), true);
        check(json!({"additionalProperties": false}), false);
        check(json!({"anyOf": []}), true);
    }

    #[test]
    fn schemas_are_checked() {
        let check = |text: &str| schema(&Json::parse(text).unwrap());
        assert!(check(r#"{"type":"object"}"#).is_ok());
        assert!(check("true").unwrap_err().contains("no JSON object"));
        assert!(check(r#"{"type":"string"}"#).unwrap_err().contains("takes string"));
        assert!(check(r#"{"type":["object"]}"#).unwrap_err().contains("something else"));
        assert!(check(r#"{"properties":{"a":{"type":"nonsense"}}}"#).unwrap_err().contains("not valid"));
        let deep = format!("{}1{}", "[".repeat(80), "]".repeat(80));
        assert!(check(&format!(r#"{{"x":{deep}}}"#)).unwrap_err().contains("deep"));
    }

    #[test]
    fn fuzzed_schemas() {
        let seeds =
            [r#"{"type":"object","properties":{"a":{"type":"string"}}}"#, r##"{"$ref":"#/$defs/a","$defs":{"a":{}}}"##];
        let words = ["\"$ref\":\"#\"", "\"allOf\":[", "\"additionalProperties\":", "\"pattern\":\"(\""];
        rekindle_fuzz::fuzz!("tool-schema").seeds(seeds).words(words).costly(4).memory(16 << 20, 2_000).text(|text| {
            let value = schema(&Json::parse(text).ok()?).ok()?;
            let _ = declares(&value, &["a".to_owned(), "b".to_owned()]);
            Some(())
        });
    }
}
