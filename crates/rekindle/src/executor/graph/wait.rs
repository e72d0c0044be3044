//! A node that waits: a tool whose result is the answer.

use async_trait::async_trait;
use rekindle_core::record::WaitKind;
use rekindle_core::{Json, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::spec::WaitNode;
use crate::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use crate::wait::WaitSpec;

/// A wait as a tool.
#[derive(Debug)]
pub(super) struct WaitTool {
    node: WaitNode,
    spec: ToolSpec,
    options: ToolOptions,
}

/// What is shown, with everything filled in.
#[derive(Deserialize)]
struct Shown {
    prompt: String,
    #[serde(default)]
    shows: Option<Value>,
}

impl WaitTool {
    /// An error says what is wrong with it.
    pub(super) fn new(id: &str, node: &WaitNode) -> Result<Self, String> {
        let needs_prompt = node.wait != WaitKind::Timer;
        if needs_prompt && node.prompt.is_empty() {
            return Err("it says neither what a person is asked nor which signal it waits for".into());
        }
        if node.wait == WaitKind::Timer && node.expires_after.is_none() {
            return Err("a timer needs `expires_after`".into());
        }
        if let Some(schema) = &node.schema {
            crate::tool::Schema::new(&Json::from(schema.clone())).map_err(|error| error.to_string())?;
        }
        let spec = ToolSpec {
            name: id.to_owned(),
            description: String::new(),
            parameters: Json::from(json!({ "type": "object" })),
            version: None,
        };
        Ok(Self { node: node.clone(), spec, options: ToolOptions { timeout: None, ..ToolOptions::default() } })
    }

    /// What the node says, as the arguments of the call.
    pub(super) fn arguments(node: &WaitNode) -> Map<String, Value> {
        let mut arguments = Map::from_iter([("prompt".to_owned(), Value::String(node.prompt.clone()))]);
        if let Some(shows) = &node.shows {
            arguments.insert("shows".to_owned(), shows.clone());
        }
        arguments
    }

    fn wait(&self, shown: Shown) -> WaitSpec {
        let node = &self.node;
        WaitSpec {
            kind: node.wait,
            prompt: shown.prompt,
            schema: node.schema.clone().map(Json::from),
            arguments: match (node.wait, shown.shows) {
                (WaitKind::Approval, shows) => Some(Json::from(shows.unwrap_or(Value::Null))),
                (_, shows) => shows.map(Json::from),
            },
            approvals: node.approvals.unwrap_or(1).max(1),
            remind_after: node.remind_after,
            expires_after: node.expires_after,
            default: match (node.wait, &node.default) {
                (WaitKind::Timer, None) => Some(Json::null()),
                (_, default) => default.clone().map(Json::from),
            },
        }
    }
}

#[async_trait]
impl Tool for WaitTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::wait(self.wait(arguments.decode()?)))
    }
}
