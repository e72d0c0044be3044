//! A plan as a tool of other work.

use std::collections::BTreeMap;

use rekindle_core::{Json, Result, State};

use super::state::{PlanRegister, StepResult};
use super::{Plan, PlanInput};
use crate::executor::Input;
use crate::executor::child::ChildTool;
use crate::tool::{Tool, ToolSpec};

impl Plan {
    /// It as a tool of an agent, of another plan or of a graph: each call has a child session. It
    /// takes `query` and `context`; its result is what its steps gave back, by their ids.
    pub fn as_tool(&self, description: &str) -> impl Tool + use<> {
        let parameters = r#"{"type":"object","properties":{"query":{"type":["string","null"]},"context":{"type":"object"}},"additionalProperties":false}"#;
        let parameters = Json::parse(parameters).unwrap_or_else(|_| Json::null());
        let spec =
            ToolSpec { name: self.name().to_owned(), description: description.to_owned(), parameters, version: None };
        let input = |arguments: &Json| Ok(Input::Value(Json::of(&arguments.decode::<PlanInput>()?)?));
        ChildTool::new(spec, self.executor(), self.options().clone(), input)
    }
}

/// The results of the steps of a plan, by their ids.
pub(super) fn result(state: &State) -> Result<Json> {
    let results = PlanRegister::load(state)?.results(state);
    let results: Vec<StepResult> = results.iter().map(Json::decode).collect::<Result<_>>()?;
    let outputs: BTreeMap<&str, &Json> =
        results.iter().map(|result| (result.step_id.as_str(), &result.output)).collect();
    Json::of(&outputs)
}
