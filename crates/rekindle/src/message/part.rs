//! The parts of a message. A part is written as an object with one entry, so that the bytes of
//! arguments and results stay as they came.

use std::borrow::Cow;
use std::fmt;

use rekindle_core::Json;
use rekindle_core::record::Extra;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One part of a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text(String),
    /// What the model thought.
    Reasoning(Reasoning),
    /// An image that stands elsewhere.
    Image(Reference),
    /// A file that stands elsewhere.
    File(Reference),
    /// The model calls a tool.
    ToolCall(ToolCall),
    /// A tool answers.
    ToolResult(ToolResult),
    /// A kind this version does not know, kept verbatim.
    Unknown(String, Json),
}

/// What a model thought on its way to an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The thought, as far as the provider shows it.
    pub text: String,
    /// What the provider wants back to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// Something that stands elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Where.
    pub uri: String,
    /// Of what type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// The model calls a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments; if they were not JSON, a string with what was sent.
    pub arguments: Json,
    /// Why the arguments are not JSON, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool answers a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call: String,
    /// The tool.
    pub name: String,
    /// Any JSON.
    pub content: Json,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error: bool,
    /// Whether it was made up to close an open call, rather than received.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// Ends the turn, with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ToolCall {
    /// A call of `name` with `arguments`.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Json) -> Self {
        Self { id: id.into(), name: name.into(), arguments, malformed: None, extra: Extra::new() }
    }

    /// A call whose arguments came as text, which may not be JSON. No text at all stands for no
    /// arguments.
    pub fn from_text(id: impl Into<String>, name: impl Into<String>, arguments: &str) -> Self {
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        match Json::parse(text) {
            Ok(arguments) => Self::new(id, name, arguments),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let malformed = Some(source.unwrap_or_else(|| error.to_string()));
                Self { malformed, ..Self::new(id, name, Json::from(arguments)) }
            }
        }
    }
}

impl ToolResult {
    /// The answer to `call`.
    pub fn new(call: &ToolCall, content: Json) -> Self {
        Self {
            call: call.id.clone(),
            name: call.name.clone(),
            content,
            error: false,
            synthetic: false,
            terminate: None,
            extra: Extra::new(),
        }
    }

    /// The failure of `call`.
    pub fn failed(call: &ToolCall, message: &str) -> Self {
        Self { error: true, ..Self::new(call, Json::from(message)) }
    }
}

impl Part {
    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Text(text) => map.serialize_entry("text", text)?,
            Self::Reasoning(reasoning) => map.serialize_entry("reasoning", reasoning)?,
            Self::Image(reference) => map.serialize_entry("image", reference)?,
            Self::File(reference) => map.serialize_entry("file", reference)?,
            Self::ToolCall(call) => map.serialize_entry("tool_call", call)?,
            Self::ToolResult(result) => map.serialize_entry("tool_result", result)?,
            Self::Unknown(kind, body) => map.serialize_entry(kind, body)?,
        }
        map.end()
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part: an object with one entry")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
        let Some(kind) = map.next_key::<Cow<'de, str>>()? else {
            return Err(A::Error::custom("a part has no kind"));
        };
        let part = match kind.as_ref() {
            "text" => Part::Text(map.next_value()?),
            "reasoning" => Part::Reasoning(map.next_value()?),
            "image" => Part::Image(map.next_value()?),
            "file" => Part::File(map.next_value()?),
            "tool_call" => Part::ToolCall(map.next_value()?),
            "tool_result" => Part::ToolResult(map.next_value()?),
            _ => Part::Unknown(kind.into_owned(), map.next_value()?),
        };
        match map.next_key::<serde::de::IgnoredAny>()? {
            None => Ok(part),
            Some(_) => Err(A::Error::custom("a part has more than one kind")),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_not_json_are_kept_as_they_were_sent() {
        let call = ToolCall::from_text("c", "t", r#"{"a":"#);
        assert_eq!(call.arguments, Json::from(r#"{"a":"#));
        assert!(call.malformed.is_some());
        assert_eq!(ToolCall::from_text("c", "t", " ").arguments.as_str(), "{}");
        assert_eq!(ToolCall::from_text("c", "t", r#"{"a": 1}"#).malformed, None);
    }
}
