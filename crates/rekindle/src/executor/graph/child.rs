//! A graph as a tool of other work.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::{Json, Result, State};
use serde_json::Value;

use super::{Graph, GraphInput};
use crate::driver::{MEMORY, RunOptions};
use crate::executor::Executor;
use crate::executor::child::{ChildTool, ChildWork};
use crate::message::Message;
use crate::tool::Tool;

impl Graph {
    /// It as a tool of an agent, of a plan or of another graph: each call has a child session. Its
    /// arguments are the memory it begins with; its result is the memory at its end.
    pub fn as_tool(&self, description: &str) -> impl Tool + use<> {
        let required: Vec<&String> =
            self.spec().inputs.iter().filter(|key| !self.spec().memory.contains_key(*key)).collect();
        let parameters = serde_json::json!({ "type": "object", "required": required });
        ChildTool::new(self.clone(), description.to_owned(), Json::from(parameters))
    }
}

impl ChildWork for Graph {
    fn name(&self) -> &str {
        self.name()
    }

    fn executor(&self) -> Arc<dyn Executor> {
        self.executor()
    }

    fn options(&self) -> RunOptions {
        Graph::options(self).clone()
    }

    fn input(&self, arguments: &Json) -> Result<Message> {
        let memory: BTreeMap<String, Value> = arguments.decode()?;
        Ok(Message::user(Json::of(&GraphInput { memory })?.as_str()))
    }

    fn result(&self, state: &State) -> Result<Json> {
        result(state)
    }
}

/// The memory of a graph.
pub(crate) fn result(state: &State) -> Result<Json> {
    let memory: BTreeMap<&str, &Json> = state
        .registers_under(MEMORY)
        .map(|(key, value)| (key.as_str().strip_prefix(MEMORY).unwrap_or_default(), value))
        .collect();
    Json::of(&memory)
}
