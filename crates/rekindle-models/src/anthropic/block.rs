//! One block of an answer, put together from the pieces of a stream or given whole.

use rekindle::Json;
use rekindle::message::{Part, Reasoning, ToolCall};
use rekindle::model::Delta;
use serde_json::Value;

/// A block under way.
#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    /// The input comes as text, or it was there from the beginning.
    ToolUse {
        id: String,
        name: String,
        input: Value,
        text: String,
    },
    /// A kind that is only passed on; what it is asked for may come as text too.
    Other {
        block: Value,
        input: String,
    },
}

impl Block {
    /// The block as it begins, which may be all of it.
    pub(super) fn begin(block: Value) -> Self {
        let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str() {
            Some("text") => Self::Text(text("text")),
            Some("thinking") => Self::Thinking { text: text("thinking"), signature: text("signature") },
            Some("tool_use") => {
                Self::ToolUse { id: text("id"), name: text("name"), input: block["input"].clone(), text: String::new() }
            }
            _ => Self::Other { block, input: String::new() },
        }
    }

    /// What of it can be told while it is made.
    pub(super) fn piece(&self) -> Option<Delta> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(Delta::Text(text.clone())),
            Self::Thinking { text, .. } if !text.is_empty() => Some(Delta::Reasoning(text.clone())),
            _ => None,
        }
    }

    /// Takes a delta; returns what of it can be told.
    pub(super) fn take(&mut self, delta: &Value) -> Option<Delta> {
        let piece = |field: &str| delta[field].as_str().unwrap_or_default();
        match self {
            Self::Text(text) => {
                text.push_str(piece("text"));
                (!piece("text").is_empty()).then(|| Delta::Text(piece("text").to_owned()))
            }
            Self::Thinking { text, signature } => {
                text.push_str(piece("thinking"));
                signature.push_str(piece("signature"));
                (!piece("thinking").is_empty()).then(|| Delta::Reasoning(piece("thinking").to_owned()))
            }
            Self::ToolUse { text: input, .. } | Self::Other { input, .. } => {
                input.push_str(piece("partial_json"));
                None
            }
        }
    }

    /// The part; nothing if it stayed empty.
    pub(super) fn into_part(self) -> Option<Part> {
        match self {
            Self::Text(text) => (!text.is_empty()).then_some(Part::Text(text)),
            Self::Thinking { text, signature } => {
                let signature = (!signature.is_empty()).then_some(signature);
                (!text.is_empty() || signature.is_some()).then_some(Part::Reasoning(Reasoning { text, signature }))
            }
            Self::ToolUse { id, name, input, text } => Some(Part::ToolCall(match (text.is_empty(), input) {
                (true, Value::Null) => ToolCall::from_text(id, name, ""),
                (true, input) => ToolCall::new(id, name, Json::from(input)),
                (false, _) => ToolCall::from_text(id, name, &text),
            })),
            Self::Other { mut block, input } => {
                if let Ok(input) = serde_json::from_str(&input) {
                    block["input"] = input;
                }
                let kind = format!("anthropic/{}", block["type"].as_str()?);
                Some(Part::Unknown(kind, Json::from(block)))
            }
        }
    }
}
