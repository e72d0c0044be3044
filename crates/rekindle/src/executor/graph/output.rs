//! How an agent inside a node gives back more than its answer: a tool that sets outputs.

use async_trait::async_trait;
use rekindle_core::{Json, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};

/// The name of the tool.
pub(super) const SET_OUTPUT: &str = "set_output";

/// Sets an output of the node. What is set becomes part of the memory when the node is completed.
#[derive(Debug)]
pub(super) struct SetOutput {
    keys: Vec<String>,
    spec: ToolSpec,
    options: ToolOptions,
}

#[derive(Deserialize)]
struct Output {
    key: String,
    value: Value,
}

impl SetOutput {
    pub(super) fn new(keys: &[String]) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "key": { "enum": keys }, "value": {} },
            "required": ["key", "value"],
            "additionalProperties": false,
        });
        let spec = ToolSpec {
            name: SET_OUTPUT.to_owned(),
            description: format!("Sets one of the outputs you must give: {}.", keys.join(", ")),
            parameters: Json::from(parameters),
            version: None,
        };
        Self { keys: keys.to_vec(), spec, options: ToolOptions::default() }
    }
}

#[async_trait]
impl Tool for SetOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let Output { key, value } = arguments.decode()?;
        if !self.keys.contains(&key) {
            return Err(ToolError::failed(format!("`{key}` is no output; there are: {}", self.keys.join(", "))));
        }
        Ok(ToolOutput::json(Json::from("set")).and_remember(key, Json::from(value)))
    }
}
