//! A visit of a node in which an agent works. Its loop keeps its state in the session, so that
//! conversation, outputs and iteration are always of one moment.

use rekindle_core::record::{RegisterUnset, RunOutcome};
use rekindle_core::{ErrorKind, Json, Record, Result};
use serde_json::Value;

use super::run::VisitEnd;
use super::state::ROOT;
use super::visit::Visit;
use crate::driver::Driver;
use crate::executor::agent::{Agent, LoopState, Place, Scope};
use crate::executor::call::Ended;
use crate::executor::reference::Template;
use crate::message::{Message, ToolCall, ToolResult};

/// How often an agent is told that an output is missing, for each try.
const REMINDERS: u64 = 2;

/// The loop of an agent in a node.
pub(super) struct NodeLoop<'v, 'a> {
    pub(super) visit: &'v Visit<'a>,
    pub(super) agent: &'a Agent,
    pub(super) prompt: &'a Template,
    pub(super) continues: bool,
    pub(super) asked: &'a [String],
}

/// Under which name the loop of a visit keeps its state.
pub(super) fn scope_name(node: &str, strand: &str, step: u64, continues: bool) -> String {
    match (continues, strand) {
        (true, ROOT) => node.to_owned(),
        (true, strand) => format!("{node}@{strand}"),
        (false, _) => format!("{node}.{step}"),
    }
}

impl NodeLoop<'_, '_> {
    fn name(&self) -> String {
        scope_name(&self.visit.node.spec.id, &self.visit.strand, self.visit.at.step, self.continues)
    }

    /// Runs the loop until the node is completed, has failed, waits or is to stop.
    pub(super) async fn run(&self, driver: &Driver) -> Result<VisitEnd> {
        let name = self.name();
        let (scope, outputs) = (Scope::node(&name), format!("node/{name}/output/"));
        let known = driver.read(|state| LoopState::load_in(state, &scope)).await?;
        let first = if self.continues { self.visit.at.turn.max(1) } else { 1 };
        let mut turn = known.turn.max(first);
        let mut prompt = match turn > first {
            true => String::new(),
            false => match self.prompt(driver).await {
                Ok(prompt) => prompt,
                Err(why) => return self.fail(driver, &why).await,
            },
        };
        loop {
            let place = Place {
                scope: scope.clone(),
                memory: self.visit.node.memory(&self.visit.strand).under(outputs.clone()),
                checkpoints: self.visit.config.iterations(),
                node: Some(self.visit.node.spec.id.clone()),
            };
            let end = match self.agent.run_in(driver, place, turn, prompt).await {
                Ok(end) => end,
                Err(error) if fails_the_node(error.kind()) => return self.fail(driver, error.message()).await,
                Err(error) => return Err(error),
            };
            match end.outcome {
                RunOutcome::Succeeded => {}
                RunOutcome::Waiting => return Ok(VisitEnd::Waits(end.reason)),
                _ => return Ok(VisitEnd::Stopped),
            }
            let missing = self.missing(driver, &outputs).await;
            if missing.is_empty() {
                return self.complete(driver, &name, end.answer).await;
            }
            if turn - first >= REMINDERS * u64::from(self.visit.at.failures + 1) {
                let why = format!("agent `{}` did not give its outputs: {}", self.agent.name(), missing.join(", "));
                return self.fail(driver, &why).await;
            }
            turn += 1;
            prompt =
                format!("You have not given these outputs yet: {}. Call `set_output` for each.", missing.join(", "));
        }
    }

    async fn prompt(&self, driver: &Driver) -> Result<String, String> {
        let view = self.visit.node.memory(&self.visit.strand);
        let filled = driver.read(|state| self.visit.node.fill(self.prompt, &view, state)).await?;
        Ok(match filled {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    async fn missing(&self, driver: &Driver, outputs: &str) -> Vec<String> {
        let is_missing =
            |key: &&String, state: &rekindle_core::State| state.register(&format!("{outputs}{key}")).is_none();
        driver.read(|state| self.asked.iter().filter(|key| is_missing(key, state)).cloned().collect()).await
    }

    /// The node is completed: outputs become memory, and what only the loop needed goes.
    async fn complete(&self, driver: &Driver, name: &str, answer: Option<Message>) -> Result<VisitEnd> {
        let outputs = format!("node/{name}/output/");
        let own = format!("node/{name}/");
        let (remember, gone) = driver
            .read(|state| {
                let strip = |key: &str| key.strip_prefix(&outputs).unwrap_or_default().to_owned();
                let remember: Vec<(String, Json)> =
                    state.registers_under(&outputs).map(|(key, value)| (strip(key.as_str()), value.clone())).collect();
                let prefix = if self.continues { &outputs } else { &own };
                let gone: Vec<Record> =
                    state.registers_under(prefix).map(|(key, _)| RegisterUnset::new(key.clone()).into()).collect();
                (remember, gone)
            })
            .await;
        let result = ToolResult::new(&self.call(), self.answer(answer)?);
        let recorded = self.visit.completed(driver, Ended { remember, ..Ended::new(result) }, 0).await;
        let mut recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) if fails_the_node(error.kind()) => return self.fail(driver, error.message()).await,
            Err(error) => return Err(error),
        };
        recorded.records.extend(gone);
        super::run::record(driver, recorded).await?;
        Ok(VisitEnd::Done)
    }

    /// What the agent said: as text, or as JSON if parts of it are wanted.
    fn answer(&self, answer: Option<Message>) -> Result<Json> {
        let text = answer.map(|message| message.text()).unwrap_or_default();
        let in_parts = self.visit.node.save.values().any(|pointer| !pointer.is_empty());
        match in_parts {
            true => Ok(Json::parse(text.trim()).unwrap_or_else(|_| Json::from(text.as_str()))),
            false => Ok(Json::from(text.as_str())),
        }
    }

    fn call(&self) -> ToolCall {
        ToolCall::new(&self.visit.node.spec.id, self.agent.name(), Json::null())
    }

    async fn fail(&self, driver: &Driver, why: &str) -> Result<VisitEnd> {
        let result = ToolResult::failed(&self.call(), why);
        let recorded = self.visit.failed(driver, Ended::new(result), 0).await?;
        super::run::record(driver, recorded).await?;
        Ok(VisitEnd::Done)
    }
}

/// Whether a loop that ended so has failed its node, rather than the run.
fn fails_the_node(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::StepFailed | ErrorKind::ModelFailed | ErrorKind::Invalid | ErrorKind::Limit { .. })
}
