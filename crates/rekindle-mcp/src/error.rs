//! Errors as clients see them: what an operation refuses is the result of a tool, with a stable code;
//! what is no call of a tool at all is an error of the protocol.

use std::fmt::Display;

use rekindle::core::Retry;
use rekindle::{Error, ErrorKind};
use rmcp::ErrorData;
use rmcp::model::CallToolResult;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The longest message: what is wrong may repeat what was given, and that may be anything.
const LONGEST: usize = 2_000;

/// An error, in the shape every client gets it in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolError {
    /// A stable code, e.g. `RK0003`.
    code: &'static str,
    /// The name of that code, e.g. `NotFound`.
    kind: &'static str,
    /// What happened, and where.
    message: String,
    /// What to do about it.
    hint: String,
    /// Whether the same call may succeed later.
    retryable: bool,
    /// The session it is about.
    session_id: Option<String>,
}

impl From<&Error> for ToolError {
    fn from(error: &Error) -> Self {
        Self {
            code: error.code(),
            kind: error.kind().catalog_entry().name,
            message: clipped(error),
            hint: clipped(error.next_step()),
            retryable: error.retry() == Retry::Later,
            session_id: error.session().map(|session| session.id.to_string()),
        }
    }
}

/// An error of an operation as the result of a tool.
pub(crate) fn tool_error(error: &Error) -> CallToolResult {
    CallToolResult::structured_error(described(error))
}

/// An error of an operation where no tool is called: resources, tasks.
pub(crate) fn protocol_error(error: &Error) -> ErrorData {
    let (message, data) = (clipped(error), Some(described(error)));
    match error.kind() {
        ErrorKind::NotFound => ErrorData::resource_not_found(message, data),
        ErrorKind::Invalid | ErrorKind::Limit { .. } => ErrorData::invalid_params(message, data),
        _ => ErrorData::internal_error(message, data),
    }
}

/// Arguments that are not what the schema of the tool says.
pub(crate) fn invalid_arguments(tool: &str, message: impl Display) -> Error {
    Error::invalid(clipped(format_args!("`{tool}`: {message}")))
        .hint("call it again with arguments as its inputSchema says")
}

/// What is known of an error, as JSON.
pub(crate) fn described(error: &Error) -> Value {
    serde_json::to_value(ToolError::from(error)).unwrap_or_default()
}

/// A text of bearable length.
pub(crate) fn clipped(text: impl Display) -> String {
    let mut text = text.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
