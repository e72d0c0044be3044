//! Messages: what people, models and tools say to each other. Their stored form is stable: a
//! field or a part this version does not know is kept as it came.

pub mod convert;
mod part;

use std::sync::LazyLock;

use rekindle_core::record::Extra;
use rekindle_core::{IdSource, Json, LogName, MessageId, Result, Timestamp};
use serde::{Deserialize, Serialize};

pub use part::{Part, Reasoning, Reference, ToolCall, ToolResult};

/// The log of a session's conversation.
pub fn conversation() -> LogName {
    static NAME: LazyLock<LogName> =
        LazyLock::new(|| LogName::new("messages").expect("`messages` is a legal name of a log"));
    NAME.clone()
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The author of the agent.
    System,
    /// A person.
    User,
    /// The model.
    Assistant,
    /// A tool, answering a call of the model.
    Tool,
}

/// One message of a conversation.
///
/// ```
/// use rekindle::message::{Message, Role};
///
/// let message = Message::user("what is the weather?");
/// assert_eq!(message.role, Role::User);
/// assert_eq!(message.text(), "what is the weather?");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Given when it is stored; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// The provider's id of the answer this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Who wrote it, if several people take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Message {
    /// A message of `role` with those parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self { id: None, role, parts, response: None, author: None, extra: Extra::new() }
    }

    /// What a person says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::Text(text.into())])
    }

    /// What a model says.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::Text(text.into())])
    }

    /// What the author of the agent says.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, vec![Part::Text(text.into())])
    }

    /// The answer of a tool.
    pub fn tool(result: ToolResult) -> Self {
        Self::new(Role::Tool, vec![Part::ToolResult(result)])
    }

    /// The same with an id, if it has none.
    #[must_use]
    pub fn with_id(mut self, ids: &IdSource, now: Timestamp) -> Self {
        self.id.get_or_insert_with(|| MessageId::generate(ids, now));
        self
    }

    /// All text parts, one after the other.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    /// The calls it makes, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The results it brings, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Its stored form.
    pub fn to_json(&self) -> Result<Json> {
        Json::of(self)
    }

    /// From its stored form.
    pub fn from_json(json: &Json) -> Result<Self> {
        json.decode()
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> Message {
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        message
    }

    #[test]
    fn the_stored_form_is_stable() {
        round_trip(r#"{"role":"user","parts":[{"text":"hello"}]}"#);
        let message = round_trip(
            r#"{"id":"msg_1","role":"assistant","parts":[{"reasoning":{"text":"hm"}},{"text":"a"},{"tool_call":{"id":"c1","name":"add","arguments":{"a": 1.50}}}],"response":"resp_7"}"#,
        );
        assert_eq!(message.calls().next().unwrap().arguments.as_str(), r#"{"a": 1.50}"#);
        round_trip(
            r#"{"role":"tool","parts":[{"tool_result":{"call":"c1","name":"add","content":3,"error":true,"synthetic":true}}]}"#,
        );
        round_trip(r#"{"role":"user","parts":[{"image":{"uri":"file:a.png","media_type":"image/png"}}]}"#);
    }

    #[test]
    fn what_is_unknown_is_kept() {
        let message = round_trip(r#"{"role":"user","parts":[{"hologram":{"x":[1, 2]}}],"later":{"y":1}}"#);
        assert_eq!(message.text(), "");
        assert!(serde_json::from_str::<Message>(r#"{"role":"user","parts":[{"text":1}]}"#).is_err());
        assert!(serde_json::from_str::<Message>(r#"{"role":"user","parts":[{}]}"#).is_err());
    }
}
