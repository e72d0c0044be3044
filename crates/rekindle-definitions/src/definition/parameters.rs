//! What a tool takes: a JSON Schema, or in short the parameters by name.
//!
//! It is a schema if it has `$ref`, `$schema` or `type: object`. Otherwise each key is a parameter,
//! and its value the name of a type, or a schema which may say `optional: true`.

use serde_json::{Map, Value, json};

use crate::document::{child, did_you_mean, list};

/// The types of parameters.
const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "any"];

/// What is wrong with a parameter: where below the parameters, what, and what to do about it.
pub(crate) type Wrong = (String, String, String);

/// The JSON Schema of what is written.
pub(crate) fn schema_of(written: &Map<String, Value>) -> Result<Value, Wrong> {
    let is_schema = written.get("type").is_some_and(|kind| kind == "object")
        || written.contains_key("$ref")
        || written.contains_key("$schema");
    if is_schema {
        return Ok(Value::Object(written.clone()));
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, value) in written {
        let (schema, optional) = parameter(value).map_err(|(why, hint)| (child("", name), why, hint))?;
        properties.insert(name.clone(), schema);
        if !optional {
            required.push(name.clone());
        }
    }
    Ok(json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false }))
}

/// The schema of one parameter, and whether it may be left out.
fn parameter(value: &Value) -> Result<(Value, bool), (String, String)> {
    match value {
        Value::String(kind) => Ok((of_type(kind)?, false)),
        Value::Object(fields) => {
            let mut fields = fields.clone();
            let optional = match fields.remove("optional") {
                None => false,
                Some(Value::Bool(optional)) => optional,
                Some(_) => return Err(("`optional` is `true` or `false`".into(), "write `optional: true`".into())),
            };
            if let Some(Value::String(kind)) = fields.get("type") {
                let kind = of_type(kind)?;
                match kind.get("type") {
                    Some(kind) => fields.insert("type".into(), kind.clone()),
                    None => fields.remove("type"),
                };
            }
            Ok((Value::Object(fields), optional))
        }
        _ => Err(("a parameter is the name of a type, or an object".into(), hint())),
    }
}

fn of_type(name: &str) -> Result<Value, (String, String)> {
    match TYPES.contains(&name) {
        true if name == "any" => Ok(json!({})),
        true => Ok(json!({ "type": name })),
        false => {
            let near = did_you_mean(name, TYPES).map(|near| format!("{near} ")).unwrap_or_default();
            let short: String = name.chars().take(40).collect();
            Err((format!("there is no type `{short}`"), format!("{near}the types are {}", list(TYPES))))
        }
    }
}

fn hint() -> String {
    "write e.g. {city: string, days: {type: integer, optional: true}}".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: Value, expected: Value) {
        assert_eq!(schema_of(written.as_object().unwrap()).unwrap(), expected);
    }

    #[test]
    fn parameters_may_be_written_in_short() {
        let schema = json!({ "type": "object", "properties": { "type": { "type": "string" } } });
        check(schema.clone(), schema);
        check(json!({ "$ref": "#/x" }), json!({ "$ref": "#/x" }));
        check(
            json!({ "city": "string", "days": { "type": "integer", "optional": true, "minimum": 1 }, "x": "any" }),
            json!({
                "type": "object",
                "properties": { "city": { "type": "string" }, "days": { "type": "integer", "minimum": 1 }, "x": {} },
                "required": ["city", "x"],
                "additionalProperties": false,
            }),
        );
        check(
            json!({ "type": "string" }),
            json!({ "type": "object", "properties": { "type": { "type": "string" } }, "required": ["type"], "additionalProperties": false }),
        );
    }

    #[test]
    fn unknown_types_are_refused() {
        let wrong = schema_of(json!({ "n": "int" }).as_object().unwrap()).unwrap_err();
        assert_eq!((wrong.0.as_str(), wrong.1.as_str()), ("/n", "there is no type `int`"));
        assert!(wrong.2.starts_with("did you mean `integer`?"), "{}", wrong.2);
        assert!(schema_of(json!({ "n": 5 }).as_object().unwrap()).is_err());
        assert!(schema_of(json!({ "n": { "optional": "yes" } }).as_object().unwrap()).is_err());
    }
}
