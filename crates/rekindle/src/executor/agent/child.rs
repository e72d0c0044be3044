//! An agent as a tool of another.

use async_trait::async_trait;
use rekindle_core::{Json, Result, SessionKey, State};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Agent;
use crate::executor::Input;
use crate::executor::child::ChildTool;
use crate::message::{Message, Role};
use crate::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};

/// An agent as a tool of another, or as a step of a plan. Each call has a child session: it is
/// committed before its first prompt, knows its parent, and goes on where it was when the parent
/// is resumed. Its result is the text of its answer.
#[derive(Debug)]
pub struct SubAgent(ChildTool);

#[derive(Deserialize, JsonSchema)]
struct Task {
    /// What the agent is to do, with everything it needs to know.
    task: String,
}

impl SubAgent {
    /// `agent` as a tool of its own name.
    pub fn new(agent: Agent, description: impl Into<String>) -> Self {
        let parameters = Json::from(schemars::schema_for!(Task).to_value());
        let spec =
            ToolSpec { name: agent.name().to_owned(), description: description.into(), parameters, version: None };
        let input = |arguments: &Json| Ok(Input::Messages(vec![Message::user(arguments.decode::<Task>()?.task)]));
        Self(ChildTool::new(spec, agent.executor(), agent.options().clone(), input))
    }
}

/// The last answer of an agent.
pub(super) fn result(state: &State) -> Result<Json> {
    let messages = Agent::messages(state)?;
    let last = messages.iter().rev().find(|message| message.role == Role::Assistant);
    Ok(Json::from(last.map(Message::text).unwrap_or_default().as_str()))
}

#[async_trait]
impl Tool for SubAgent {
    fn spec(&self) -> &ToolSpec {
        self.0.spec()
    }

    fn options(&self) -> &ToolOptions {
        self.0.options()
    }

    fn child(&self, parent: &SessionKey, idempotency_key: &str) -> Option<SessionKey> {
        self.0.child(parent, idempotency_key)
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        self.0.call(context, arguments).await
    }
}
