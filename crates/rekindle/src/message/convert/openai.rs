//! The shape of OpenAI chat completions: the `messages` of a request.

use rekindle_core::{Json, Result};
use serde_json::{Map, Value, json};

use super::read::At;
use super::{Names, Source, arguments_text, content_of, known_to, source_of, text_of, unknown};
use crate::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};

const SHAPE: &str = "openai";

/// The longest `name` of a participant.
const MAX_NAME: usize = 64;

/// The `messages` of a chat completion request.
///
/// Left out: ids and response ids of messages, reasoning, files at a URL, media types outside of
/// data URIs, whether a result is a failure, names of participants that are not legal there.
///
/// ```
/// use rekindle::message::{convert::to_openai, Message};
///
/// let theirs = to_openai(&[Message::user("hello")]);
/// assert_eq!(theirs.to_string(), r#"[{"content":"hello","role":"user"}]"#);
/// ```
pub fn to_openai<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    let mut theirs = Vec::new();
    for message in messages {
        match message.role {
            Role::System => theirs.push(speaker("system", message, content(message, text_part))),
            Role::User => theirs.push(speaker("user", message, content(message, user_part))),
            Role::Assistant => theirs.push(assistant(message)),
            Role::Tool => theirs.extend(message.results().map(tool)),
        }
    }
    Value::Array(theirs)
}

/// Messages from the `messages` of a chat completion request.
///
/// `developer` is read as system, a refusal as text. What is not of that shape is an
/// [`Error`](rekindle_core::Error) that names the place, e.g. ``messages[2] has no `role` ``.
pub fn from_openai(messages: &Value) -> Result<Vec<Message>> {
    let mut names = Names::default();
    At::new("messages", messages).items()?.map(|at| read(&at, &mut names)).collect()
}

fn speaker(role: &str, message: &Message, content: Value) -> Value {
    let mut theirs = Map::new();
    theirs.insert("role".into(), role.into());
    theirs.insert("content".into(), content);
    if let Some(name) = message.author.as_deref().filter(|name| is_legal_name(name)) {
        theirs.insert("name".into(), name.into());
    }
    Value::Object(theirs)
}

fn is_legal_name(name: &str) -> bool {
    let illegal = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|' | '\\' | '/');
    (1..=MAX_NAME).contains(&name.chars().count()) && !name.contains(illegal)
}

/// A string if there is one text and nothing else, else parts.
fn content(message: &Message, part: impl Fn(&Part) -> Option<Value>) -> Value {
    let mut parts: Vec<Value> = message.parts.iter().filter_map(part).collect();
    match parts.as_mut_slice() {
        [] => "".into(),
        [only] if only["type"] == "text" => only["text"].take(),
        _ => Value::Array(parts),
    }
}

fn text_part(part: &Part) -> Option<Value> {
    part.as_text().map(|text| json!({"type": "text", "text": text})).or_else(|| known_to(SHAPE, part))
}

fn user_part(part: &Part) -> Option<Value> {
    match part {
        Part::Image(image) => Some(json!({"type": "image_url", "image_url": {"url": image.uri}})),
        Part::File(file) => match source_of(&file.uri) {
            Source::Data { .. } => Some(json!({"type": "file", "file": {"file_data": file.uri}})),
            Source::Id(id) => Some(json!({"type": "file", "file": {"file_id": id}})),
            Source::Url(_) => None,
        },
        _ => text_part(part),
    }
}

fn assistant(message: &Message) -> Value {
    let calls: Vec<Value> = message.calls().map(call).collect();
    let mut theirs = speaker("assistant", message, content(message, text_part));
    if !calls.is_empty() {
        if theirs["content"] == "" {
            theirs["content"] = Value::Null;
        }
        theirs["tool_calls"] = Value::Array(calls);
    }
    theirs
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": arguments_text(call)});
    json!({"id": call.id, "type": "function", "function": function})
}

fn tool(result: &ToolResult) -> Value {
    json!({"role": "tool", "tool_call_id": result.call, "content": text_of(&result.content)})
}

fn read(at: &At<'_>, names: &mut Names) -> Result<Message> {
    let role = at.need("role")?;
    let mut message = match role.text()? {
        "system" | "developer" => Message::new(Role::System, parts(at)?),
        "user" => Message::new(Role::User, parts(at)?),
        "assistant" => Message::new(Role::Assistant, assistant_parts(at, names)?),
        "tool" => return read_tool(at, names),
        _ => return Err(role.not_a("a role")),
    };
    message.author = at.get_text("name")?.map(Into::into);
    Ok(message)
}

fn parts(at: &At<'_>) -> Result<Vec<Part>> {
    let Some(content) = at.get("content") else {
        return Ok(Vec::new());
    };
    match content.value {
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        _ => content.items()?.map(|part| read_part(&part)).collect(),
    }
}

fn read_part(at: &At<'_>) -> Result<Part> {
    let reference = |uri: &str| Reference { uri: uri.into(), media_type: None };
    Ok(match at.need_text("type")? {
        "text" => Part::Text(at.need_text("text")?.into()),
        "refusal" => Part::Text(at.need_text("refusal")?.into()),
        "image_url" => Part::Image(reference(at.need("image_url")?.need_text("url")?)),
        "file" => {
            let file = at.need("file")?;
            let uri = file.get_text("file_data")?.or(file.get_text("file_id")?);
            Part::File(reference(uri.ok_or_else(|| file.error("has neither `file_data` nor `file_id`"))?))
        }
        kind => unknown(SHAPE, kind, at.value),
    })
}

fn assistant_parts(at: &At<'_>, names: &mut Names) -> Result<Vec<Part>> {
    let reasoning = at.get_text("reasoning_content")?.map(|text| Reasoning { text: text.into(), signature: None });
    let mut all: Vec<Part> = reasoning.into_iter().map(Part::Reasoning).collect();
    all.extend(parts(at)?);
    all.extend(at.get_text("refusal")?.map(|text| Part::Text(text.into())));
    for call in at.get_items("tool_calls")? {
        let function = call.need("function")?;
        let (id, name) = (call.need_text("id")?, function.need_text("name")?);
        let call = ToolCall::from_text(id, name, function.need_text("arguments")?);
        names.learn(&call);
        all.push(Part::ToolCall(call));
    }
    Ok(all)
}

fn read_tool(at: &At<'_>, names: &Names) -> Result<Message> {
    let id = at.need_text("tool_call_id")?;
    let content = at.need("content")?;
    let content = match content.value {
        Value::String(text) => content_of(text),
        _ => content_of(&content.items()?.map(|part| part.need_text("text")).collect::<Result<String>>()?),
    };
    let name = at.get_text("name")?.map_or_else(|| names.of(id), Into::into);
    let call = ToolCall::new(id, name, Json::null());
    Ok(Message::tool(ToolResult::new(&call, content)))
}
