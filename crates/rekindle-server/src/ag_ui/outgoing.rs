//! Messages of ours as messages of AG-UI.

use rekindle::Json;
use rekindle::message::{Message, Part, Reference, Role, ToolCall, ToolResult};
use serde_json::Value;

use super::SHAPE;
use super::wire::{self, Body, Content, Source};

/// The messages that a message becomes; `index` is its place among all.
pub(super) fn write(index: usize, message: &Message) -> Vec<wire::Message> {
    let id = message.id.as_ref().map_or_else(|| format!("message-{index}"), ToString::to_string);
    let named = |id: &str, body| wire::Message { id: id.to_owned(), body, name: message.author.clone() };
    match message.role {
        Role::System => vec![named(&id, Body::System { content: message.text() })],
        Role::User => vec![named(&id, Body::User { content: user_content(message) })],
        Role::Assistant => {
            let mut theirs = thoughts(&id, message);
            theirs.push(named(&id, assistant(message)));
            theirs
        }
        Role::Tool => message.results().enumerate().map(|(index, result)| tool(&id, index, result)).collect(),
    }
}

fn user_content(message: &Message) -> Content {
    let mut parts: Vec<wire::Part> = message.parts.iter().filter_map(user_part).collect();
    match parts.as_mut_slice() {
        [] => Content::Text(String::new()),
        [wire::Part::Text { text }] => Content::Text(std::mem::take(text)),
        _ => Content::Parts(parts),
    }
}

fn user_part(part: &Part) -> Option<wire::Part> {
    match part {
        Part::Text(text) => Some(wire::Part::Text { text: text.clone() }),
        Part::Image(image) => Some(wire::Part::Image { source: source(image) }),
        Part::File(file) => {
            let source = source(file);
            Some(match file.media_type.as_deref().and_then(|media_type| media_type.split_once('/')) {
                Some(("audio", _)) => wire::Part::Audio { source },
                Some(("video", _)) => wire::Part::Video { source },
                _ => wire::Part::Document { source },
            })
        }
        // As it came from there.
        Part::Unknown(kind, body) if kind.strip_prefix(SHAPE).is_some_and(|rest| rest.starts_with('/')) => {
            body.to_value().ok().map(wire::Part::Other)
        }
        _ => None,
    }
}

fn source(reference: &Reference) -> Source {
    let data = reference.uri.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media_type, base64)) if !media_type.is_empty() => {
            Source::Data { value: base64.to_owned(), mime_type: media_type.to_owned() }
        }
        _ => Source::Url { value: reference.uri.clone(), mime_type: reference.media_type.clone() },
    }
}

fn thoughts(id: &str, message: &Message) -> Vec<wire::Message> {
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(reasoning),
        _ => None,
    });
    let theirs = thoughts.enumerate().map(|(index, thought)| wire::Message {
        id: format!("{id}-reasoning-{}", index + 1),
        body: Body::Reasoning { content: thought.text.clone(), encrypted_value: thought.signature.clone() },
        name: None,
    });
    theirs.collect()
}

fn assistant(message: &Message) -> Body {
    let calls = message.calls().map(|call| wire::ToolCall {
        id: call.id.clone(),
        function: wire::Function { name: call.name.clone(), arguments: arguments(call) },
    });
    Body::Assistant { content: Some(message.text()).filter(|text| !text.is_empty()), tool_calls: calls.collect() }
}

fn tool(id: &str, index: usize, result: &ToolResult) -> wire::Message {
    let content = text_of(&result.content);
    wire::Message {
        id: if index == 0 { id.to_owned() } else { format!("{id}-{}", index + 1) },
        body: Body::Tool { tool_call_id: result.call.clone(), error: result.error.then(|| content.clone()), content },
        name: None,
    }
}

/// The arguments of a call as they were sent.
fn arguments(call: &ToolCall) -> String {
    if call.malformed.is_some() { text_of(&call.arguments) } else { call.arguments.as_str().to_owned() }
}

/// JSON as text: a string without its quotes, all else as it is.
fn text_of(json: &Json) -> String {
    match json.to_value() {
        Ok(Value::String(text)) => text,
        _ => json.as_str().to_owned(),
    }
}
