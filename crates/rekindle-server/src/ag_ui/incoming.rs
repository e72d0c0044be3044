//! Messages of AG-UI as messages of ours.

use std::collections::HashMap;

use rekindle::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};
use rekindle::{Json, MessageId, Result};
use serde_json::Value;

use super::SHAPE;
use super::wire::{self, Body, Content, Source};

/// Takes one message after the other.
#[derive(Default)]
pub(super) struct Reader {
    /// The names of tools by the calls so far: results do not say them.
    names: HashMap<String, String>,
    /// Thoughts that wait for their answer, and the id of the first.
    thought: Option<(MessageId, Vec<Part>)>,
    ours: Vec<Message>,
}

impl Reader {
    pub(super) fn read(&mut self, theirs: wire::Message) -> Result<()> {
        let id = MessageId::new(theirs.id)?;
        let message = match theirs.body {
            Body::Reasoning { content, encrypted_value } => {
                let thought = Reasoning { text: content, signature: encrypted_value };
                self.thought.get_or_insert_with(|| (id, Vec::new())).1.push(Part::Reasoning(thought));
                return Ok(());
            }
            Body::Activity => return Ok(()),
            Body::Assistant { content, tool_calls } => self.assistant(content, tool_calls),
            Body::System { content } => Message::system(content),
            Body::User { content } => Message::new(Role::User, user_parts(content)),
            Body::Tool { tool_call_id, content, error } => {
                let name = self.names.get(&tool_call_id).cloned().unwrap_or_default();
                let result = ToolResult::new(&ToolCall::new(tool_call_id, name, Json::null()), content_of(&content));
                Message::tool(ToolResult { error: error.is_some(), ..result })
            }
        };
        self.end_thought();
        self.ours.push(Message { id: Some(id), author: theirs.name, ..message });
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<Message> {
        self.end_thought();
        self.ours
    }

    fn end_thought(&mut self) {
        if let Some((id, parts)) = self.thought.take() {
            self.ours.push(Message { id: Some(id), ..Message::new(Role::Assistant, parts) });
        }
    }

    fn assistant(&mut self, content: Option<String>, calls: Vec<wire::ToolCall>) -> Message {
        let mut parts = self.thought.take().map(|(_, thoughts)| thoughts).unwrap_or_default();
        parts.extend(content.filter(|text| !text.is_empty()).map(Part::Text));
        for call in calls {
            self.names.insert(call.id.clone(), call.function.name.clone());
            parts.push(Part::ToolCall(ToolCall::from_text(call.id, call.function.name, &call.function.arguments)));
        }
        Message::new(Role::Assistant, parts)
    }
}

fn user_parts(content: Content) -> Vec<Part> {
    match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(parts) => parts.into_iter().map(part).collect(),
    }
}

fn part(theirs: wire::Part) -> Part {
    match theirs {
        wire::Part::Text { text } => Part::Text(text),
        wire::Part::Image { source } => Part::Image(reference(source)),
        wire::Part::Audio { source } | wire::Part::Video { source } | wire::Part::Document { source } => {
            Part::File(reference(source))
        }
        wire::Part::Other(whole) => {
            let kind = whole.get("type").and_then(Value::as_str).unwrap_or_default();
            // With the prefix it cannot be taken for a kind of our own when it is stored and read.
            Part::Unknown(format!("{SHAPE}/{kind}"), Json::from(whole))
        }
    }
}

fn reference(source: Source) -> Reference {
    match source {
        Source::Url { value, mime_type } => Reference { uri: value, media_type: mime_type },
        Source::Data { value, mime_type } => {
            Reference { uri: format!("data:{mime_type};base64,{value}"), media_type: Some(mime_type) }
        }
    }
}

/// The result of a tool that came as text.
fn content_of(text: &str) -> Json {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(json) = Json::parse(text)
    {
        return json;
    }
    Json::from(text)
}
