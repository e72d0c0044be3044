//! A plan as a tool of other work.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::{Json, Result, State};

use super::state::{PlanRegister, StepResult};
use super::{Plan, PlanInput};
use crate::driver::RunOptions;
use crate::executor::Executor;
use crate::executor::child::{ChildTool, ChildWork};
use crate::message::Message;
use crate::tool::Tool;

impl Plan {
    /// It as a tool of an agent, of another plan or of a graph: each call has a child session. It
    /// takes `query` and `context`; its result is what its steps gave back, by their ids.
    pub fn as_tool(&self, description: &str) -> impl Tool + use<> {
        let parameters = r#"{"type":"object","properties":{"query":{"type":["string","null"]},"context":{"type":"object"}},"additionalProperties":false}"#;
        let parameters = Json::parse(parameters).unwrap_or_else(|_| Json::null());
        ChildTool::new(self.clone(), description.to_owned(), parameters)
    }
}

impl ChildWork for Plan {
    fn name(&self) -> &str {
        self.name()
    }

    fn executor(&self) -> Arc<dyn Executor> {
        self.executor()
    }

    fn options(&self) -> RunOptions {
        Plan::options(self).clone()
    }

    fn input(&self, arguments: &Json) -> Result<Message> {
        let input: PlanInput = arguments.decode()?;
        Ok(Message::user(Json::of(&input)?.as_str()))
    }

    fn result(&self, state: &State) -> Result<Json> {
        result(state)
    }
}

/// What the steps of a plan gave back, by their ids.
pub(crate) fn result(state: &State) -> Result<Json> {
    let results = PlanRegister::load(state)?.results(state);
    let results: Vec<StepResult> = results.iter().map(Json::decode).collect::<Result<_>>()?;
    let outputs: BTreeMap<&str, &Json> =
        results.iter().map(|result| (result.step_id.as_str(), &result.output)).collect();
    Json::of(&outputs)
}
