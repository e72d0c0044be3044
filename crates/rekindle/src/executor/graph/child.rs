//! A graph as a tool of other work.

use std::collections::BTreeMap;

use rekindle_core::{Json, Result, State};
use serde_json::Value;

use super::{Graph, GraphInput};
use crate::driver::MEMORY;
use crate::executor::Input;
use crate::executor::child::ChildTool;
use crate::tool::{Tool, ToolSpec};

impl Graph {
    /// It as a tool of an agent, of a plan or of another graph: each call has a child session. Its
    /// arguments are the memory it begins with; its result is the memory at its end.
    pub fn as_tool(&self, description: &str) -> impl Tool + use<> {
        let required: Vec<&String> =
            self.spec().inputs.iter().filter(|key| !self.spec().memory.contains_key(*key)).collect();
        let parameters = serde_json::json!({ "type": "object", "required": required });
        let (name, description, parameters) = (self.name().to_owned(), description.to_owned(), Json::from(parameters));
        let spec = ToolSpec { name, description, parameters, version: None };
        let input = |arguments: &Json| {
            let memory: BTreeMap<String, Value> = arguments.decode()?;
            Ok(Input::Value(Json::of(&GraphInput { memory })?))
        };
        ChildTool::new(spec, self.executor(), self.options().clone(), input)
    }
}

/// The memory of a graph.
pub(super) fn result(state: &State) -> Result<Json> {
    let memory: BTreeMap<&str, &Json> = state
        .registers_under(MEMORY)
        .map(|(key, value)| (key.as_str().strip_prefix(MEMORY).unwrap_or_default(), value))
        .collect();
    Json::of(&memory)
}
