//! Messages in the shape of AG-UI, as in its `RunAgentInput` and its snapshots. Pure functions over
//! JSON trees; nothing here knows a network, a stream or a request.
//!
//! | ours | AG-UI |
//! | --- | --- |
//! | message id | `id` |
//! | author | `name` |
//! | system | `system` |
//! | reasoning | a `reasoning` message |
//! | image | `image` |
//! | file | `document`, `audio` or `video` |
//! | call | `toolCalls` |
//! | result | a `tool` message each |
//! | failed result | `error` |
//!
//! Parts that the shape has no room for are left out, and so is a part where its role cannot have it.
//! A part of theirs that is unknown here is kept as [`Part::Unknown`](rekindle::message::Part::Unknown), its
//! kind prefixed with `ag_ui/`, and goes out again to this shape alone.
//!
//! Going out, the result of a tool becomes text: a JSON string its content, all else its JSON. Coming
//! in, text that is a JSON object or array becomes that again, and all else a string. Results do not name
//! their tool: it is that of the call before them, if there is one.

mod at;
mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;
mod wire;

use rekindle::{Message, Result};
use serde_json::Value;

use self::at::At;

/// Prefix of the kinds of unknown parts that came from here, ahead of a `/`.
const SHAPE: &str = "ag_ui";

/// AG-UI messages.
///
/// Every one has an id, as the shape demands: a message without one becomes `message-<index>`, its
/// thoughts `<id>-reasoning-<n>` ahead of it, and its second result `<id>-2`. No field is ever null.
/// Left out: response ids, and images and files that a model gives. The texts of an answer become one.
///
/// ```
/// use rekindle::Message;
/// use rekindle_server::ag_ui::to_ag_ui;
///
/// let theirs = to_ag_ui(&[Message::user("hello")]);
/// assert_eq!(theirs.to_string(), r#"[{"content":"hello","id":"message-0","role":"user"}]"#);
/// ```
pub fn to_ag_ui<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    let theirs = messages.into_iter().enumerate().flat_map(|(index, message)| outgoing::write(index, message));
    Value::Array(theirs.map(|message| message.to_json()).collect())
}

/// Messages from AG-UI messages.
///
/// `developer` is read as system. A `reasoning` message becomes a part of the answer after it, or an
/// answer of its own if there is none. An `activity` is something to look at and no message: it is
/// left out. A tree that is not of that shape is an [`Error`](rekindle::Error) that names the place, e.g.
/// ``messages[2] has no `id` ``.
pub fn from_ag_ui(messages: &Value) -> Result<Vec<Message>> {
    let mut reader = incoming::Reader::default();
    for at in At::new("messages", messages).items()? {
        reader.read(wire::Message::read(&at)?)?;
    }
    Ok(reader.finish())
}
