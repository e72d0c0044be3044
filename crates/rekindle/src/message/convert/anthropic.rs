//! The shape of Anthropic messages: the `system` and `messages` of a request.

use rekindle_core::{Json, Result};
use serde_json::{Value, json};

use super::read::At;
use super::{Names, Source, arguments_text, content_of, data_uri, known_to, source_of, text_of, unknown};
use crate::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};

const SHAPE: &str = "anthropic";

/// The `system` (if there is any) and `messages` of a request, in one object.
///
/// System messages are taken together ahead of all others. Results of tools that follow one another
/// come in one `user` message. Left out: ids, response ids and authors, reasoning without a
/// signature, text that is blank (the provider refuses it), media types outside of data URIs, and
/// messages of which nothing is left. Arguments that are not an object, as the shape wants one, go as
/// `{"arguments": …}`.
///
/// ```
/// use rekindle::message::{convert::to_anthropic, Message};
///
/// let theirs = to_anthropic(&[Message::system("be brief"), Message::user("hello")]);
/// assert_eq!(theirs["system"], "be brief");
/// assert_eq!(theirs["messages"][0]["content"], "hello");
/// ```
pub fn to_anthropic<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    let mut system = Vec::new();
    let mut theirs: Vec<(Role, Vec<Value>)> = Vec::new();
    for message in messages {
        let blocks: Vec<Value> = message.parts.iter().filter_map(|part| block(message.role, part)).collect();
        match (message.role, theirs.last_mut()) {
            _ if blocks.is_empty() => {}
            (Role::System, _) => system.extend(blocks),
            (Role::Tool, Some((Role::Tool, results))) => results.extend(blocks),
            (role, _) => theirs.push((role, blocks)),
        }
    }
    let messages: Vec<Value> = theirs.into_iter().map(|(role, blocks)| shaped(role, blocks)).collect();
    match system.is_empty() {
        true => json!({"messages": messages}),
        false => json!({"system": content(system), "messages": messages}),
    }
}

/// Messages from the `system` and `messages` of a request.
///
/// The `id` of an answer is read as the message's response id. Each `tool_result` becomes a message
/// of its own, ahead of what else its message says. What is not of that shape is an
/// [`Error`](rekindle_core::Error) that names the place, e.g. ``messages[2] has no `role` ``.
pub fn from_anthropic(request: &Value) -> Result<Vec<Message>> {
    let at = At::new("", request);
    let mut names = Names::default();
    let mut ours = Vec::new();
    if let Some(system) = at.get("system") {
        let parts = read_content(&system, &mut names)?;
        ours.extend(parts.into_iter().map(|part| Message::new(Role::System, vec![part])));
    }
    for message in at.need("messages")?.items()? {
        read(&message, &mut names, &mut ours)?;
    }
    Ok(ours)
}

fn shaped(role: Role, blocks: Vec<Value>) -> Value {
    let role = if role == Role::Assistant { "assistant" } else { "user" };
    json!({"role": role, "content": content(blocks)})
}

/// A string if there is one text and nothing else, else blocks.
fn content(mut blocks: Vec<Value>) -> Value {
    match blocks.as_mut_slice() {
        [only] if only["type"] == "text" && only.as_object().is_some_and(|block| block.len() == 2) => {
            only["text"].take()
        }
        _ => Value::Array(blocks),
    }
}

fn block(role: Role, part: &Part) -> Option<Value> {
    match (role, part) {
        (Role::Tool, Part::ToolResult(result)) => Some(tool_result(result)),
        (Role::Tool, _) => None,
        (_, Part::Text(text)) => (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text})),
        (Role::User, Part::Image(image)) => Some(json!({"type": "image", "source": source(image)})),
        (Role::User, Part::File(file)) => Some(json!({"type": "document", "source": source(file)})),
        (Role::Assistant, Part::Reasoning(Reasoning { text, signature: Some(signature) })) => {
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        (Role::Assistant, Part::ToolCall(call)) => {
            Some(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input(call)}))
        }
        _ => known_to(SHAPE, part),
    }
}

fn source(reference: &Reference) -> Value {
    match source_of(&reference.uri) {
        Source::Data { media_type, base64 } => json!({"type": "base64", "media_type": media_type, "data": base64}),
        Source::Id(id) => json!({"type": "file", "file_id": id}),
        Source::Url(url) => json!({"type": "url", "url": url}),
    }
}

fn input(call: &ToolCall) -> Value {
    match call.arguments.to_value() {
        Ok(Value::Object(input)) => Value::Object(input),
        Ok(other) => json!({"arguments": other}),
        // Nested too deeply for a tree.
        Err(_) => json!({"arguments": arguments_text(call)}),
    }
}

fn tool_result(result: &ToolResult) -> Value {
    let mut theirs = json!({"type": "tool_result", "tool_use_id": result.call, "content": text_of(&result.content)});
    if result.error {
        theirs["is_error"] = true.into();
    }
    theirs
}

fn read(at: &At<'_>, names: &mut Names, ours: &mut Vec<Message>) -> Result<()> {
    let role = at.need("role")?;
    let role = match role.text()? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => return Err(role.not_a("a role")),
    };
    let parts = read_content(&at.need("content")?, names)?;
    let (results, said): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| role == Role::User && matches!(part, Part::ToolResult(_)));
    let only_results = said.is_empty() && !results.is_empty();
    ours.extend(results.into_iter().map(|result| Message::new(Role::Tool, vec![result])));
    if !only_results {
        let response = at.get_text("id")?.map(Into::into);
        ours.push(Message { response, ..Message::new(role, said) });
    }
    Ok(())
}

fn read_content(at: &At<'_>, names: &mut Names) -> Result<Vec<Part>> {
    match at.value {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        _ => at.items()?.map(|block| read_block(&block, names)).collect(),
    }
}

fn read_block(at: &At<'_>, names: &mut Names) -> Result<Part> {
    Ok(match at.need_text("type")? {
        "text" => Part::Text(at.need_text("text")?.into()),
        "thinking" => Part::Reasoning(Reasoning {
            text: at.need_text("thinking")?.into(),
            signature: at.get_text("signature")?.map(Into::into),
        }),
        "tool_use" => {
            let input = at.get("input").map_or_else(|| Json::from(json!({})), |input| Json::from(input.value.clone()));
            let call = ToolCall::new(at.need_text("id")?, at.need_text("name")?, input);
            names.learn(&call);
            Part::ToolCall(call)
        }
        "tool_result" => Part::ToolResult(read_result(at, names)?),
        kind @ ("image" | "document") => match (read_source(&at.need("source")?)?, kind) {
            (Some(image), "image") => Part::Image(image),
            (Some(file), _) => Part::File(file),
            (None, _) => unknown(SHAPE, kind, at.value),
        },
        kind => unknown(SHAPE, kind, at.value),
    })
}

/// Where an image or a document stands; nothing if it stands in the block in a way of its own.
fn read_source(at: &At<'_>) -> Result<Option<Reference>> {
    let uri = match at.need_text("type")? {
        "url" => at.need_text("url")?.to_owned(),
        "file" => at.need_text("file_id")?.to_owned(),
        "base64" => {
            let media_type = at.need_text("media_type")?;
            let uri = data_uri(media_type, at.need_text("data")?);
            return Ok(Some(Reference { uri, media_type: Some(media_type.into()) }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Reference { uri, media_type: None }))
}

fn read_result(at: &At<'_>, names: &Names) -> Result<ToolResult> {
    let id = at.need_text("tool_use_id")?;
    let content = match at.get("content") {
        None => Json::from(""),
        Some(content) => result_content(&content)?,
    };
    let call = ToolCall::new(id, names.of(id), Json::null());
    let error = at.get("is_error").is_some_and(|error| error.value == &Value::Bool(true));
    Ok(ToolResult { error, ..ToolResult::new(&call, content) })
}

/// Text as text; blocks that are not all text stay blocks.
fn result_content(at: &At<'_>) -> Result<Json> {
    if let Value::String(text) = at.value {
        return Ok(content_of(text));
    }
    let texts: Option<String> = at.items()?.map(|block| block.value.get("text").and_then(Value::as_str)).collect();
    Ok(texts.map_or_else(|| Json::from(at.value.clone()), |text| content_of(&text)))
}
