//! Messages in the shapes of model providers: OpenAI chat completions and Anthropic messages. Pure
//! functions over JSON trees; nothing here knows a network, a stream or a request.
//!
//! | ours | OpenAI | Anthropic |
//! | --- | --- | --- |
//! | message id | – | – |
//! | author | `name`, if legal there | – |
//! | system | `system` | `system`, ahead of all messages |
//! | reasoning | – (read from `reasoning_content`) | `thinking`, if signed |
//! | image | `image_url` | `image` |
//! | file | `file`, if data or an uploaded file's id | `document` |
//! | call | `tool_calls` | `tool_use` |
//! | result | a `tool` message each | `tool_result`, those in a row in one `user` message |
//! | failed result | – | `is_error` |
//!
//! What a shape has no room for is left out, and so is a part where its role cannot have it. A part
//! of theirs that is unknown here is kept as [`Part::Unknown`], its kind prefixed with the name of
//! the shape, and goes out again to that shape alone.
//!
//! Going out, the result of a tool becomes text: a JSON string its content, all else its JSON. Coming
//! in, text that is a JSON object or array becomes that again, and all else a string. Shapes that do
//! not name the tool in a result get the name from the call before it, if there is one.
//!
//! ```
//! use rekindle::message::convert::{from_openai, to_openai};
//! use rekindle::message::Message;
//!
//! let messages = [Message::system("be brief"), Message::user("hello")];
//! let theirs = to_openai(&messages);
//! assert_eq!(theirs[1]["content"], "hello");
//! assert_eq!(from_openai(&theirs)?, messages);
//! # Ok::<(), rekindle::Error>(())
//! ```

mod anthropic;
mod openai;
mod read;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rekindle_core::Json;
use serde_json::Value;

use super::{Part, ToolCall};

pub use anthropic::{from_anthropic, to_anthropic};
pub use openai::{from_openai, to_openai};

/// JSON as text for shapes that take text: a string without its quotes, all else as it is.
fn text_of(json: &Json) -> String {
    match json.to_value() {
        Ok(Value::String(text)) => text,
        _ => json.as_str().to_owned(),
    }
}

/// The arguments of a call as they were sent.
fn arguments_text(call: &ToolCall) -> String {
    if call.malformed.is_some() { text_of(&call.arguments) } else { call.arguments.as_str().to_owned() }
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

/// A part of a shape that is unknown here.
fn unknown(shape: &str, kind: &str, part: &Value) -> Part {
    // With the prefix it cannot be taken for a kind of our own when it is stored and read.
    Part::Unknown(format!("{shape}/{kind}"), Json::from(part.clone()))
}

/// An unknown part that came from `shape`, as it came.
fn known_to(shape: &str, part: &Part) -> Option<Value> {
    match part {
        Part::Unknown(kind, body) if kind.strip_prefix(shape).is_some_and(|rest| rest.starts_with('/')) => {
            body.to_value().ok()
        }
        _ => None,
    }
}

/// What stands behind a URI.
enum Source<'a> {
    /// The data itself.
    Data { media_type: &'a str, base64: &'a str },
    /// A file by the id a provider gave it.
    Id(&'a str),
    /// Something elsewhere.
    Url(&'a str),
}

fn source_of(uri: &str) -> Source<'_> {
    let data = uri.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((media_type, base64)) if !media_type.is_empty() => Source::Data { media_type, base64 },
        _ if !uri.contains([':', '/']) => Source::Id(uri),
        _ => Source::Url(uri),
    }
}

fn data_uri(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

/// The names of tools by the calls seen so far, for results that do not say.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn learn(&mut self, call: &ToolCall) {
        self.0.insert(call.id.clone(), call.name.clone());
    }

    fn of(&self, call: &str) -> String {
        self.0.get(call).cloned().unwrap_or_default()
    }
}
