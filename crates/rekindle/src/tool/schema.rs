//! JSON Schemas, compiled once and checked often.

use std::fmt;

use rekindle_core::{Error, Json, Result};

/// A compiled JSON Schema.
pub(crate) struct Schema(jsonschema::Validator);

impl Schema {
    /// Compiles `schema`.
    pub(crate) fn new(schema: &Json) -> Result<Self> {
        let value = schema.to_value()?;
        let compiled = jsonschema::validator_for(&value);
        compiled.map(Self).map_err(|error| Error::invalid(format!("the JSON Schema is not valid: {error}")))
    }

    /// What is wrong with `value`, if anything: one line for each of the first few faults.
    pub(crate) fn faults(&self, value: &Json) -> Result<(), String> {
        let value = value.to_value().map_err(|error| error.to_string())?;
        let mut faults = self.0.iter_errors(&value).take(5).map(|error| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
        });
        match faults.next() {
            None => Ok(()),
            Some(first) => Err(faults.fold(first, |all, fault| format!("{all}; {fault}"))),
        }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_place() {
        let schema =
            Json::parse(r#"{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n"]}"#);
        let schema = Schema::new(&schema.unwrap()).unwrap();
        let check = |text: &str| schema.faults(&Json::parse(text).unwrap());
        assert_eq!(check(r#"{"n":1}"#), Ok(()));
        assert!(check(r#"{"n":0}"#).unwrap_err().starts_with("/n: "));
        assert!(check("{}").unwrap_err().contains("\"n\" is a required property"));
        assert!(Schema::new(&Json::parse(r#"{"type":"nonsense"}"#).unwrap()).is_err());
    }
}
