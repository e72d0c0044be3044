//! JSON Schemas, compiled once and checked often.

use std::fmt;

use rekindle_core::{Error, Json, Result};

use super::effort::Effort;

/// A compiled JSON Schema.
pub(crate) struct Schema {
    compiled: jsonschema::Validator,
    effort: Effort,
}

impl Schema {
    /// Compiles `schema`.
    pub(crate) fn new(schema: &Json) -> Result<Self> {
        let value = schema.to_value()?;
        let compiled = jsonschema::validator_for(&value);
        let compiled = compiled.map_err(|error| Error::invalid(format!("the JSON Schema is not valid: {error}")))?;
        Ok(Self { compiled, effort: Effort::new(&value) })
    }

    /// What is wrong with `value`, if anything: one line for each of the first few faults.
    pub(crate) fn faults(&self, value: &Json) -> Result<(), String> {
        let value = value.to_value().map_err(|error| error.to_string())?;
        self.effort.check(&value).map_err(|too_much| too_much.to_string())?;
        let mut faults = self.compiled.iter_errors(&value).take(5).map(|error| {
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
    fn a_check_that_would_never_end_is_refused() {
        let levels = (0..50)
            .map(|n| format!(r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}},"##, n + 1));
        let schema = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{}"d50":{{}}}}}}"##, levels.collect::<String>());
        let schema = Schema::new(&Json::parse(schema).unwrap()).unwrap();
        assert!(schema.faults(&Json::parse("{}").unwrap()).unwrap_err().contains("steps"));
    }

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

    /// The first line is the schema, the second the value.
    #[test]
    fn fuzzed_schemas() {
        let seeds = [
            "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":1}},\"required\":[\"n\"]}\n{\"n\":1}",
            "{\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a\"}}},\"$ref\":\"#/$defs/a\"}\n[[],[[]]]",
            "{\"anyOf\":[{\"pattern\":\"^(a+)+$\"},{\"enum\":[1,2]},{\"not\":{}}],\"maxLength\":3}\n\"aaaaaaaaaaaaaaaaaaaaaaaaaaaab\"",
        ];
        let words = [
            "\"$ref\":\"#\"",
            "\"$id\":\"x\"",
            "\"$ref\":\"http://127.0.0.1:1/x\"",
            "\"multipleOf\":0.1",
            "\"pattern\":\"(?=a)\\\\1\"",
            "\"uniqueItems\":true",
            "\"minItems\":",
            "\"allOf\":[",
            "\"if\":{",
            "\"const\":",
        ];
        rekindle_fuzz::fuzz!("schema").seeds(seeds).words(words).costly(4).memory(16 << 20, 2_000).text(|text| {
            let (schema, value) = text.split_once('\n')?;
            let schema = Schema::new(&Json::parse(schema).ok()?).ok()?;
            let _ = schema.faults(&Json::parse(value).ok()?);
            Some(())
        });
    }
}
