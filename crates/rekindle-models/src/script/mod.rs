//! The script: plain data, read from a file or built in code. What it means stands in the crate's
//! documentation; who acts on it is the scripted model.

mod build;
mod check;

use std::path::Path;

use rekindle::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a scripted model answers, turn by turn. The crate's documentation shows it as a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Script {
    /// The name of the model.
    pub name: String,
    /// How the turns are counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: By,
    /// Whether the last turn answers for ever, instead of an error after it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeat_last: bool,
    /// The answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
}

/// How turns are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum By {
    /// By the answers the request shows: right in every process.
    #[default]
    Messages,
    /// By the answers this process gave.
    Calls,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Turn {
    /// Makes it answer whenever this fits, out of the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// What the request must look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// What the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// What the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What it says, in the pieces it is streamed in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<String>,
    /// Streams `text` in pieces of that many characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<usize>,
    /// The tools it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// What it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
    /// The provider's id of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Why it stops.
    #[serde(skip_serializing_if = "is_default")]
    pub stop: Stop,
    /// Milliseconds before it begins.
    #[serde(skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// Milliseconds between two pieces.
    #[serde(skip_serializing_if = "is_default")]
    pub chunk_delay_ms: u64,
    /// How the first attempts fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// A tool the model calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Call {
    /// The id of the call; without it one is made from the place of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The arguments as they are sent, JSON or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_text: Option<String>,
}

/// What an answer uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TurnUsage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Cost in millionths of the currency unit.
    pub cost_micros: u64,
}

/// Why an answer stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// It is done, or wants tools called.
    #[default]
    End,
    /// It reached the limit of tokens.
    Length,
    /// A filter stopped it.
    Filtered,
}

/// How the first attempts at a turn fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// Whether asking again may help.
    #[serde(default = "yes")]
    pub retry: bool,
    /// How long the provider wants to be left alone, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How many pieces are streamed first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after_chunks: usize,
    /// How many attempts fail.
    #[serde(default = "one")]
    pub times: u32,
}

/// When a turn answers out of the count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct When {
    /// The last message has this in its text or in the result of a tool.
    pub last_contains: String,
}

/// What a request must look like. What is left out is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Expect {
    /// The last message has this in its text or in the result of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_contains: Option<String>,
    /// What the author of the agent says has this in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_contains: Option<String>,
    /// The names of the tools, in any order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How many messages are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<usize>,
    /// The provider's id of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// What was said before the answer was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl Script {
    /// Reads JSON. An error says what is wrong, where.
    ///
    /// ```
    /// use rekindle_models::Script;
    ///
    /// let error = Script::from_json(r#"{"name": "m", "turns": [{"txt": "hi"}]}"#).unwrap_err();
    /// assert!(error.message().contains("unknown field `txt`"));
    /// assert!(error.message().contains("line 1 column"));
    /// ```
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let script: Self =
            serde_json::from_str(text).map_err(|error| Error::invalid(format!("the script is not right: {error}")))?;
        script.check()?;
        Ok(script)
    }

    /// Reads a file of JSON.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("the script {} cannot be read", path.display());
            match error.kind() {
                std::io::ErrorKind::NotFound => Error::not_found(message).because(error),
                _ => Error::invalid(message).because(error),
            }
        })?;
        Self::from_json(&text).map_err(|error| Error::invalid(format!("{}: {}", path.display(), error.message())))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_scripts() {
        let seed = r#"{"name":"m","by":"messages","repeat_last":true,"turns":[
            {"when":{"last_contains":"ping"},"text":"pong","usage":{"input_tokens":3,"output_tokens":4}},
            {"text":"x","calls":[{"name":"f","arguments":{"a":1}}]}]}"#;
        let words = ["\"error\":{\"message\":\"x\"}", "\"expect\":{\"messages\":1}", "\"chunks\":", "\"delay_ms\":"];
        rekindle_fuzz::fuzz!("script").seeds([seed]).words(words).text(|text| {
            let script = Script::from_json(text).ok()?;
            let again = Script::from_json(&serde_json::to_string(&script).unwrap()).unwrap();
            assert_eq!(again, script);
            Some(())
        });
    }
}
