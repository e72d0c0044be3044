//! A call's arguments become an argument vector, variables and input. No value is ever split, or
//! read by a shell.

use std::collections::BTreeMap;

use rekindle::tool::ToolError;
use serde_json::Value;

use super::{CommandTool, Feed, What};
use crate::process::{FENCE, KEY, Start};
use crate::template::{Piece, Template, Values, written};

impl CommandTool {
    /// What is started for a call, and what it reads.
    pub(super) fn start(&self, values: &Values<'_>) -> Result<(Start, Vec<u8>), ToolError> {
        let environment = self.variables(values)?;
        let command = match &self.what {
            What::Command(command) => arguments(command, values, self.dashes)?,
            What::Shell(script) => vec!["sh".to_owned(), "-c".to_owned(), script.clone()],
        };
        let stdin = match &self.stdin {
            Feed::Nothing => Vec::new(),
            Feed::Text(template) => template.fill(values)?.unwrap_or_default().into_bytes(),
            Feed::Arguments => values.arguments.to_string().into_bytes(),
        };
        Ok((self.starting(command, environment), stdin))
    }

    /// What is started to find out whether a call happened.
    pub(super) fn start_check(&self, command: &[Template], values: &Values<'_>) -> Result<Start, ToolError> {
        let environment = self.variables(values)?;
        Ok(self.starting(arguments(command, values, self.dashes)?, environment))
    }

    fn starting(&self, command: Vec<String>, environment: BTreeMap<String, String>) -> Start {
        Start { command, environment, directory: self.directory.clone() }
    }

    fn variables(&self, values: &Values<'_>) -> Result<BTreeMap<String, String>, ToolError> {
        let mut variables = self.base.clone();
        for (name, template) in &self.environment {
            match template.fill(values)? {
                Some(value) => variables.insert(name.clone(), no_nul(name, value)?),
                // Said to be something else, which is not there: not what it was.
                None => variables.remove(name),
            };
        }
        if matches!(self.what, What::Shell(_)) {
            variables.extend(shell_variables(values.arguments)?);
        }
        variables.insert(KEY.into(), values.idempotency_key.into());
        variables.insert(FENCE.into(), values.fence.to_string());
        variables.insert("REKINDLE_SESSION".into(), values.session.clone());
        Ok(variables)
    }
}

/// The argument vector.
fn arguments(command: &[Template], values: &Values<'_>, dashes: bool) -> Result<Vec<String>, ToolError> {
    let mut filled = Vec::new();
    // After `--`, programs take nothing for an option any more.
    let mut only_operands = dashes;
    for template in command {
        only_operands |= template.plain() == Some("--");
        for value in element(template, values)? {
            let by_model = matches!(template.pieces.first(), Some(Piece::Value(_)));
            let number = value.parse::<f64>().is_ok_and(f64::is_finite);
            if by_model && !only_operands && value.starts_with('-') && value.len() > 1 && !number {
                return Err(ToolError::failed(format!(
                    "an argument begins with `-`, so that `{}` could take it for an option",
                    filled.first().map_or("the program", String::as_str)
                )));
            }
            filled.push(no_nul("an argument", value)?);
        }
    }
    Ok(filled)
}

/// What an element of the vector becomes: nothing, one argument, or several.
fn element(template: &Template, values: &Values<'_>) -> Result<Vec<String>, ToolError> {
    match template.whole().and_then(|reference| reference.find(values)) {
        Some(Value::Array(items)) => Ok(items.iter().map(written).collect()),
        _ => Ok(template.fill(values)?.into_iter().collect()),
    }
}

/// The arguments of a call as variables for a script.
fn shell_variables(arguments: &Value) -> Result<BTreeMap<String, String>, ToolError> {
    let mut variables = BTreeMap::from([("REKINDLE_ARGUMENTS".to_owned(), arguments.to_string())]);
    for (name, value) in arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let value = no_nul(name, written(value))?;
        if variables.insert(variable(name), value).is_some() {
            return Err(ToolError::failed(format!("two arguments are both `{}`", variable(name))));
        }
    }
    Ok(variables)
}

/// The variable that an argument becomes.
pub(super) fn variable(argument: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("REKINDLE_ARG_{}", argument.chars().map(legal).collect::<String>())
}

/// Two parameters that would be the same variable, if there are any.
pub(super) fn shell_collision(schema: &Value) -> Option<(&str, &str)> {
    let mut taken = BTreeMap::new();
    let names = schema.get("properties").and_then(Value::as_object)?.keys();
    names.map(String::as_str).find_map(|name| Some((taken.insert(variable(name), name)?, name)))
}

fn no_nul(what: &str, value: String) -> Result<String, ToolError> {
    match value.contains('\0') {
        true => Err(ToolError::failed(format!("{what} has a NUL in it, which no program can be given"))),
        false => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(command: &[&str], given: Value, expected: Result<&[&str], &str>) {
        let command: Vec<_> = command.iter().map(|text| Template::parse(text).unwrap()).collect();
        let values = Values {
            arguments: &given,
            idempotency_key: "k",
            fence: Default::default(),
            session: "s".into(),
            secrets: BTreeMap::new(),
        };
        let filled = arguments(&command, &values, false).map_err(|error| error.message().to_owned());
        let expected = expected.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(filled, expected.map_err(str::to_owned), "{given}");
    }

    #[test]
    fn each_element_is_filled_in_by_itself() {
        let command = ["p", "-n", "${arguments.a}", "x=${arguments.b}", "${arguments.c}"];
        check(
            &command,
            json!({"a": "; rm -rf / $(x) `y`\n", "b": "1 2", "c": ["u v", 3, {"k": null}]}),
            Ok(&["p", "-n", "; rm -rf / $(x) `y`\n", "x=1 2", "u v", "3", r#"{"k":null}"#]),
        );
        check(&command, json!({"b": true}), Ok(&["p", "-n", "x=true"]));
        check(&command, json!({"b": "", "a": "", "c": []}), Ok(&["p", "-n", "", "x="]));
        check(&command, json!({}), Err("there is no value for `${arguments.b}`"));
    }

    #[test]
    fn no_value_becomes_an_option() {
        let dash = Err("an argument begins with `-`, so that `p` could take it for an option");
        check(&["p", "${arguments.a}"], json!({"a": "-rf"}), dash);
        check(&["p", "${arguments.a}${arguments.b}"], json!({"a": "-", "b": "x"}), dash);
        check(&["p", "${arguments.a}"], json!({"a": ["x", "--all"]}), dash);
        check(&["p", "--", "${arguments.a}"], json!({"a": "-rf"}), Ok(&["p", "--", "-rf"]));
        check(&["p", "${arguments.a}", "--"], json!({"a": "-"}), Ok(&["p", "-", "--"]));
        check(&["p", "${arguments.a}"], json!({"a": -5}), Ok(&["p", "-5"]));
        check(&["p", "--name=${arguments.a}"], json!({"a": "-x"}), Ok(&["p", "--name=-x"]));
        // A value does not end the options: only the declared command does.
        check(&["p", "${arguments.a}", "${arguments.b}"], json!({"a": "--", "b": "-x"}), dash);
    }

    #[test]
    fn a_nul_is_refused() {
        check(
            &["p", "${arguments.a}"],
            json!({"a": "x\0y"}),
            Err("an argument has a NUL in it, which no program can be given"),
        );
        assert!(shell_variables(&json!({"a": "\0"})).is_err());
    }

    #[test]
    fn arguments_become_variables() {
        let variables = shell_variables(&json!({"city-name": "Oslo", "n": 1, "none": null})).unwrap();
        let expected = [
            ("REKINDLE_ARGUMENTS", r#"{"city-name":"Oslo","n":1,"none":null}"#),
            ("REKINDLE_ARG_CITY_NAME", "Oslo"),
            ("REKINDLE_ARG_N", "1"),
        ];
        assert_eq!(variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
        assert!(shell_variables(&json!({"a-b": 1, "a_b": 2})).is_err());
        assert_eq!(shell_collision(&json!({"properties": {"a-b": {}, "a_b": {}}})), Some(("a-b", "a_b")));
    }
}
