//! Reading requests: texts of messages, and whether a request is as expected.

use rekindle::Json;
use rekindle::message::{Message, Part};
use rekindle::model::{ModelError, ModelRequest};
use rekindle::reduction::View;
use serde_json::Value;

use crate::script::Expect;

/// The text of the last message and the results of tools in it; empty if there is none.
pub(crate) fn last_text(view: &View) -> Result<String, ModelError> {
    view.items().next_back().map_or_else(|| Ok(String::new()), text_of)
}

/// The text of a message in its stored form and the results of tools in it.
pub(crate) fn text_of(item: &Json) -> Result<String, ModelError> {
    let message = Message::from_json(item).map_err(not_a_message)?;
    Ok(message.parts.iter().map(text_of_part).collect())
}

pub(crate) fn not_a_message(error: rekindle::Error) -> ModelError {
    ModelError::fatal(format!("a message of the request cannot be read: {error}"))
}

fn text_of_part(part: &Part) -> String {
    match part {
        Part::Text(text) => text.clone(),
        Part::ToolResult(result) => match result.content.to_value() {
            Ok(Value::String(text)) => text,
            _ => result.content.as_str().to_owned(),
        },
        _ => String::new(),
    }
}

/// Says how `request` differs from what is expected, or nothing if it does not.
pub(crate) fn difference(expect: &Expect, request: &ModelRequest) -> Result<Option<String>, ModelError> {
    let last = last_text(&request.view)?;
    let system = request.system.as_deref().unwrap_or_default();
    Ok(misses("the last message", expect.last_contains.as_deref(), &last)
        .or_else(|| misses("the system text", expect.system_contains.as_deref(), system))
        .or_else(|| other_tools(expect, request))
        .or_else(|| match expect.messages {
            Some(expected) if expected != request.view.len() => {
                Some(format!("expected {expected} messages, but {} were sent", request.view.len()))
            }
            _ => None,
        })
        .or_else(|| differs("previous", expect.previous.as_deref(), request.previous.as_deref()))
        .or_else(|| differs("partial", expect.partial.as_deref(), request.partial.as_deref())))
}

fn misses(what: &str, expected: Option<&str>, found: &str) -> Option<String> {
    let expected = expected.filter(|expected| !found.contains(expected))?;
    Some(format!("expected {what} to contain {expected:?}, but it is {found:?}"))
}

fn differs(what: &str, expected: Option<&str>, found: Option<&str>) -> Option<String> {
    let expected = expected.filter(|expected| found != Some(expected))?;
    match found {
        Some(found) => Some(format!("expected `{what}` to be {expected:?}, but it is {found:?}")),
        None => Some(format!("expected `{what}` to be {expected:?}, but there is none")),
    }
}

fn other_tools(expect: &Expect, request: &ModelRequest) -> Option<String> {
    let mut expected: Vec<&str> = expect.tools.as_ref()?.iter().map(String::as_str).collect();
    let mut found: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    expected.sort_unstable();
    found.sort_unstable();
    (expected != found).then(|| format!("expected the tools {expected:?}, but they are {found:?}"))
}
