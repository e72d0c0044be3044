//! The messages of AG-UI as its specification has them: what is read and written, and nothing else. How they
//! become messages of ours is in `incoming` and `outgoing`.

use rekindle::{MessageId, Result};
use serde::Serialize;
use serde_json::Value;

use super::at::At;

/// A message. Ids that are read are legal ones of ours too.
#[derive(Debug, Serialize)]
pub(super) struct Message {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) body: Body,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

/// A message without what all of them have, by its role.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum Body {
    /// `developer` is read as this, too.
    System {
        content: String,
    },
    User {
        content: Content,
    },
    #[serde(rename_all = "camelCase")]
    Assistant {
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    #[serde(rename_all = "camelCase")]
    Reasoning {
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_value: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Tool {
        tool_call_id: String,
        content: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Only its role is read, and it is never written.
    Activity,
}

/// The content of a user's message.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a user's message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Part {
    Text {
        text: String,
    },
    Image {
        source: Source,
    },
    Audio {
        source: Source,
    },
    Video {
        source: Source,
    },
    Document {
        source: Source,
    },
    /// Of a kind that is not known here, or a `binary` that is only an id of the sender's; whole.
    #[serde(untagged)]
    Other(Value),
}

/// Where the bytes of a part are.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Source {
    #[serde(rename_all = "camelCase")]
    Url {
        value: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Data { value: String, mime_type: String },
}

/// A call of a tool.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "function")]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) function: Function,
}

/// The tool of a call, and its arguments as text that should be JSON.
#[derive(Debug, Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Message {
    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("keys are strings and texts are UTF-8")
    }

    pub(super) fn read(at: &At<'_>) -> Result<Self> {
        let role = at.need("role")?;
        let id = read_id(at)?;
        let body = match role.text()? {
            "reasoning" => {
                let encrypted_value = at.get_text("encryptedValue")?.map(Into::into);
                return Ok(Self {
                    id,
                    body: Body::Reasoning { content: at.need_text("content")?.into(), encrypted_value },
                    name: None,
                });
            }
            "activity" => return Ok(Self { id, body: Body::Activity, name: None }),
            "assistant" => Body::Assistant {
                content: at.get_text("content")?.map(Into::into),
                tool_calls: at.get_items("toolCalls")?.map(|call| ToolCall::read(&call)).collect::<Result<_>>()?,
            },
            "system" | "developer" => Body::System { content: at.need_text("content")?.into() },
            "user" => Body::User { content: Content::read(&at.need("content")?)? },
            "tool" => {
                let tool_call_id = at.need_text("toolCallId")?.into();
                let error = at.get_text("error")?.map(Into::into);
                Body::Tool { tool_call_id, content: at.need_text("content")?.into(), error }
            }
            _ => return Err(role.not_a("a role")),
        };
        Ok(Self { id, body, name: at.get_text("name")?.map(Into::into) })
    }
}

fn read_id(at: &At<'_>) -> Result<String> {
    let id = at.need("id")?;
    let legal = MessageId::new(id.text()?).map_err(|error| id.error("is not a legal id").because(error))?;
    Ok(legal.to_string())
}

impl ToolCall {
    fn read(at: &At<'_>) -> Result<Self> {
        let function = at.need("function")?;
        let (id, name) = (at.need_text("id")?.into(), function.need_text("name")?.into());
        Ok(Self { id, function: Function { name, arguments: function.need_text("arguments")?.into() } })
    }
}

impl Content {
    fn read(at: &At<'_>) -> Result<Self> {
        match at.value {
            Value::String(text) => Ok(Self::Text(text.clone())),
            _ => Ok(Self::Parts(at.items()?.map(|part| Part::read(&part)).collect::<Result<_>>()?)),
        }
    }
}

impl Part {
    fn read(at: &At<'_>) -> Result<Self> {
        let source = || Source::read(&at.need("source")?);
        Ok(match at.need_text("type")? {
            "text" => Self::Text { text: at.need_text("text")?.into() },
            "image" => Self::Image { source: source()? },
            "document" => Self::Document { source: source()? },
            "audio" => Self::Audio { source: source()? },
            "video" => Self::Video { source: source()? },
            "binary" => Self::read_binary(at)?,
            _ => Self::Other(at.value.clone()),
        })
    }

    /// The older form of images and files. One that is only an id of the sender's is kept as it is.
    fn read_binary(at: &At<'_>) -> Result<Self> {
        let mime_type = at.need_text("mimeType")?;
        let source = match (at.get_text("url")?, at.get_text("data")?) {
            (Some(url), _) => Source::Url { value: url.into(), mime_type: Some(mime_type.into()) },
            (None, Some(data)) => Source::Data { value: data.into(), mime_type: mime_type.into() },
            (None, None) => return Ok(Self::Other(at.value.clone())),
        };
        Ok(if mime_type.starts_with("image/") { Self::Image { source } } else { Self::Document { source } })
    }
}

impl Source {
    fn read(at: &At<'_>) -> Result<Self> {
        let kind = at.need("type")?;
        match kind.text()? {
            "url" => {
                let mime_type = at.get_text("mimeType")?.map(Into::into);
                Ok(Self::Url { value: at.need_text("value")?.into(), mime_type })
            }
            "data" => {
                let mime_type = at.need_text("mimeType")?.into();
                Ok(Self::Data { value: at.need_text("value")?.into(), mime_type })
            }
            _ => Err(kind.not_a("a kind of source")),
        }
    }
}
