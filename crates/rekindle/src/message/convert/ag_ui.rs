//! The shape of AG-UI messages, as in its `RunAgentInput` and its snapshots.

use rekindle_core::{Json, MessageId, Result};
use serde_json::{Map, Value, json};

use super::read::At;
use super::{Names, Source, arguments_text, content_of, data_uri, known_to, source_of, text_of, unknown};
use crate::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};

const SHAPE: &str = "ag_ui";

/// AG-UI messages.
///
/// Every one has an id, as the shape demands: a message without one becomes `message-<index>`, its
/// thoughts `<id>-reasoning-<n>` ahead of it, and its second result `<id>-2`. No field is ever null.
/// Left out: response ids, and images and files that a model gives. The texts of an answer become one.
///
/// ```
/// use rekindle::message::{convert::to_ag_ui, Message};
///
/// let theirs = to_ag_ui(&[Message::user("hello")]);
/// assert_eq!(theirs.to_string(), r#"[{"content":"hello","id":"message-0","role":"user"}]"#);
/// ```
pub fn to_ag_ui<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    let mut theirs = Vec::new();
    for (index, message) in messages.into_iter().enumerate() {
        let id = message.id.as_ref().map_or_else(|| format!("message-{index}"), ToString::to_string);
        match message.role {
            Role::System => theirs.push(speaker(&id, "system", message, Some(message.text().into()))),
            Role::User => theirs.push(speaker(&id, "user", message, Some(user_content(message)))),
            Role::Assistant => {
                theirs.extend(reasoning(&id, message));
                theirs.push(assistant(&id, message));
            }
            Role::Tool => theirs.extend(message.results().enumerate().map(|(index, result)| tool(&id, index, result))),
        }
    }
    Value::Array(theirs)
}

/// Messages from AG-UI messages.
///
/// `developer` is read as system. A `reasoning` message becomes a part of the answer after it, or an
/// answer of its own if there is none. An `activity` is something to look at and no message: it is
/// left out. What is not of that shape is an [`Error`](rekindle_core::Error) that names the place, e.g.
/// ``messages[2] has no `id` ``.
pub fn from_ag_ui(messages: &Value) -> Result<Vec<Message>> {
    let mut reader = Reader::default();
    for at in At::new("messages", messages).items()? {
        reader.read(&at)?;
    }
    reader.end_thought();
    Ok(reader.ours)
}

fn speaker(id: &str, role: &str, message: &Message, content: Option<Value>) -> Value {
    let mut theirs = Map::new();
    theirs.insert("id".into(), id.into());
    theirs.insert("role".into(), role.into());
    theirs.extend(content.map(|content| ("content".into(), content)));
    theirs.extend(message.author.as_ref().map(|name| ("name".into(), name.as_str().into())));
    Value::Object(theirs)
}

fn user_content(message: &Message) -> Value {
    let mut parts: Vec<Value> = message.parts.iter().filter_map(user_part).collect();
    match parts.as_mut_slice() {
        [] => "".into(),
        [only] if only["type"] == "text" => only["text"].take(),
        _ => Value::Array(parts),
    }
}

fn user_part(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image(image) => Some(json!({"type": "image", "source": source(image)})),
        Part::File(file) => Some(json!({"type": kind_of(file), "source": source(file)})),
        _ => known_to(SHAPE, part),
    }
}

fn kind_of(file: &Reference) -> &'static str {
    match file.media_type.as_deref().and_then(|media_type| media_type.split_once('/')) {
        Some(("audio", _)) => "audio",
        Some(("video", _)) => "video",
        _ => "document",
    }
}

fn source(reference: &Reference) -> Value {
    match (source_of(&reference.uri), &reference.media_type) {
        (Source::Data { media_type, base64 }, _) => json!({"type": "data", "value": base64, "mimeType": media_type}),
        (_, Some(media_type)) => json!({"type": "url", "value": reference.uri, "mimeType": media_type}),
        (_, None) => json!({"type": "url", "value": reference.uri}),
    }
}

fn reasoning(id: &str, message: &Message) -> Vec<Value> {
    let thoughts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(reasoning),
        _ => None,
    });
    let theirs = thoughts.enumerate().map(|(index, thought)| {
        let mut theirs =
            json!({"id": format!("{id}-reasoning-{}", index + 1), "role": "reasoning", "content": thought.text});
        if let Some(signature) = &thought.signature {
            theirs["encryptedValue"] = signature.as_str().into();
        }
        theirs
    });
    theirs.collect()
}

fn assistant(id: &str, message: &Message) -> Value {
    let text = Some(message.text()).filter(|text| !text.is_empty());
    let mut theirs = speaker(id, "assistant", message, text.map(Value::from));
    let calls: Vec<Value> = message
        .calls()
        .map(|call| {
            let function = json!({"name": call.name, "arguments": arguments_text(call)});
            json!({"id": call.id, "type": "function", "function": function})
        })
        .collect();
    if !calls.is_empty() {
        theirs["toolCalls"] = Value::Array(calls);
    }
    theirs
}

fn tool(id: &str, index: usize, result: &ToolResult) -> Value {
    let id = if index == 0 { id.to_owned() } else { format!("{id}-{}", index + 1) };
    let content = text_of(&result.content);
    let mut theirs = json!({"id": id, "role": "tool", "toolCallId": result.call, "content": content});
    if result.error {
        theirs["error"] = content.into();
    }
    theirs
}

/// Reads one message after the other.
#[derive(Default)]
struct Reader {
    names: Names,
    /// Thoughts that wait for their answer, and the id of the first.
    thought: Option<(MessageId, Vec<Part>)>,
    ours: Vec<Message>,
}

impl Reader {
    fn read(&mut self, at: &At<'_>) -> Result<()> {
        let role = at.need("role")?;
        let id = read_id(at)?;
        let message = match role.text()? {
            "reasoning" => return self.think(id, at),
            "activity" => return Ok(()),
            "assistant" => self.assistant(at)?,
            "system" | "developer" => Message::system(at.need_text("content")?),
            "user" => Message::new(Role::User, user_parts(&at.need("content")?)?),
            "tool" => self.tool(at)?,
            _ => return Err(role.not_a("a role")),
        };
        self.end_thought();
        let author = at.get_text("name")?.map(Into::into);
        self.ours.push(Message { id: Some(id), author, ..message });
        Ok(())
    }

    fn think(&mut self, id: MessageId, at: &At<'_>) -> Result<()> {
        let signature = at.get_text("encryptedValue")?.map(Into::into);
        let thought = Reasoning { text: at.need_text("content")?.into(), signature };
        self.thought.get_or_insert_with(|| (id, Vec::new())).1.push(Part::Reasoning(thought));
        Ok(())
    }

    fn end_thought(&mut self) {
        if let Some((id, parts)) = self.thought.take() {
            self.ours.push(Message { id: Some(id), ..Message::new(Role::Assistant, parts) });
        }
    }

    fn assistant(&mut self, at: &At<'_>) -> Result<Message> {
        let mut said = Vec::new();
        said.extend(at.get_text("content")?.filter(|text| !text.is_empty()).map(|text| Part::Text(text.into())));
        for call in at.get_items("toolCalls")? {
            let function = call.need("function")?;
            let (id, name) = (call.need_text("id")?, function.need_text("name")?);
            let call = ToolCall::from_text(id, name, function.need_text("arguments")?);
            self.names.learn(&call);
            said.push(Part::ToolCall(call));
        }
        let mut parts = self.thought.take().map(|(_, thoughts)| thoughts).unwrap_or_default();
        parts.extend(said);
        Ok(Message::new(Role::Assistant, parts))
    }

    fn tool(&self, at: &At<'_>) -> Result<Message> {
        let id = at.need_text("toolCallId")?;
        let call = ToolCall::new(id, self.names.of(id), Json::null());
        let error = at.get_text("error")?.is_some();
        let content = content_of(at.need_text("content")?);
        Ok(Message::tool(ToolResult { error, ..ToolResult::new(&call, content) }))
    }
}

fn read_id(at: &At<'_>) -> Result<MessageId> {
    let id = at.need("id")?;
    MessageId::new(id.text()?).map_err(|error| id.error("is not a legal id").because(error))
}

fn user_parts(at: &At<'_>) -> Result<Vec<Part>> {
    match at.value {
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        _ => at.items()?.map(|part| read_part(&part)).collect(),
    }
}

fn read_part(at: &At<'_>) -> Result<Part> {
    Ok(match at.need_text("type")? {
        "text" => Part::Text(at.need_text("text")?.into()),
        "image" => Part::Image(read_source(&at.need("source")?)?),
        "document" | "audio" | "video" => Part::File(read_source(&at.need("source")?)?),
        "binary" => read_binary(at)?,
        kind => unknown(SHAPE, kind, at.value),
    })
}

fn read_source(at: &At<'_>) -> Result<Reference> {
    let kind = at.need("type")?;
    match kind.text()? {
        "url" => {
            let media_type = at.get_text("mimeType")?.map(Into::into);
            Ok(Reference { uri: at.need_text("value")?.into(), media_type })
        }
        "data" => {
            let media_type = at.need_text("mimeType")?;
            Ok(Reference { uri: data_uri(media_type, at.need_text("value")?), media_type: Some(media_type.into()) })
        }
        _ => Err(kind.not_a("a kind of source")),
    }
}

/// The older form of images and files. One that is only an id of the sender's is kept as it is.
fn read_binary(at: &At<'_>) -> Result<Part> {
    let media_type = at.need_text("mimeType")?;
    let uri = match (at.get_text("url")?, at.get_text("data")?) {
        (Some(url), _) => url.to_owned(),
        (None, Some(data)) => data_uri(media_type, data),
        (None, None) => return Ok(unknown(SHAPE, "binary", at.value)),
    };
    let reference = Reference { uri, media_type: Some(media_type.into()) };
    Ok(if media_type.starts_with("image/") { Part::Image(reference) } else { Part::File(reference) })
}
