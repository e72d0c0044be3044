//! A visit of a node in which an agent works. Its loop keeps its state in the session, so that
//! conversation, outputs and iteration are always of one moment.

use std::time::Instant;

use rekindle_core::record::{RegisterUnset, RunOutcome};
use rekindle_core::{Error, ErrorKind, Json, Record, Result, State};
use serde_json::Value;

use super::run::VisitEnd;
use super::state::ROOT;
use super::visit::Visit;
use crate::driver::Driver;
use crate::executor::agent::{Agent, LoopState, Place, Scope, closing_in};
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
    pub(super) began: Instant,
}

/// Under which name the loop of a visit keeps its state. One that remembers earlier visits does so
/// within one run of the graph, so its name says which, from the second on.
pub(super) fn scope_name(node: &str, strand: &str, step: u64, continues_in: Option<u64>) -> String {
    let Some(turn) = continues_in else { return format!("{node}.{step}") };
    let mut name = node.to_owned();
    if turn > 1 {
        name.push_str(&format!(".r{turn}"));
    }
    if strand != ROOT {
        name.push_str(&format!("@{strand}"));
    }
    name
}

/// Whether the loop of that name belongs to the run of the graph that began behind `step`.
pub(super) fn is_of_turn(name: &str, turn: u64, step: u64) -> bool {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    match name.split_once('.').map(|(_, rest)| rest) {
        None => turn == 1,
        Some(rest) => match rest.strip_prefix('r') {
            Some(of) => of.parse() == Ok(turn),
            None => rest.parse::<u64>().is_ok_and(|visit| visit > step),
        },
    }
}

impl NodeLoop<'_, '_> {
    fn name(&self) -> String {
        let continues_in = self.continues.then_some(self.visit.turn);
        scope_name(&self.visit.node.spec.id, &self.visit.strand, self.visit.at.step, continues_in)
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
        let place = Place {
            scope: scope.clone(),
            memory: self.visit.node.memory(&self.visit.strand).under(outputs.clone()),
            checkpoints: self.visit.config.iterations(),
            node: Some(self.visit.node.spec.id.clone()),
        };
        let mut running = self.agent.enter(driver, place).await?;
        loop {
            let end = match running.run(turn, prompt).await {
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
        let (remember, gone) = driver
            .read(|state| {
                let strip = |key: &str| key.strip_prefix(&outputs).unwrap_or_default().to_owned();
                let remember: Vec<(String, Json)> =
                    state.registers_under(&outputs).map(|(key, value)| (strip(key.as_str()), value.clone())).collect();
                (remember, self.leftovers(state, name))
            })
            .await;
        let result = ToolResult::new(&self.call(), self.answer(answer)?);
        let ended = Ended { remember, took: self.began.elapsed(), ..Ended::new(result) };
        let recorded = self.visit.completed(driver, ended, 0).await;
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

    /// The node has failed. If an edge is meant for that, the visit is over: no call of its
    /// conversation stays open, and its outputs are not those of a later visit.
    async fn fail(&self, driver: &Driver, why: &str) -> Result<VisitEnd> {
        let result = ToolResult::failed(&self.call(), why);
        let ended = Ended { took: self.began.elapsed(), ..Ended::new(result) };
        let mut recorded = self.visit.failed(driver, ended, 0).await?;
        if recorded.value.as_str() != "null" {
            let (name, journal) = (self.name(), driver.engine().journal());
            let closing = driver.read(|state| {
                let mut records = closing_in(state, journal, &Scope::node(&name), why)?;
                records.extend(self.leftovers(state, &name));
                Ok::<_, Error>(records)
            });
            recorded.records.extend(closing.await?);
        }
        super::run::record(driver, recorded).await?;
        Ok(VisitEnd::Done)
    }

    /// The records that remove what only this visit needed.
    fn leftovers(&self, state: &State, name: &str) -> Vec<Record> {
        let prefix = if self.continues { format!("node/{name}/output/") } else { format!("node/{name}/") };
        state.registers_under(&prefix).map(|(key, _)| RegisterUnset::new(key.clone()).into()).collect()
    }
}

/// Whether a loop that ended so has failed its node, rather than the run.
fn fails_the_node(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::StepFailed | ErrorKind::ModelFailed | ErrorKind::Invalid | ErrorKind::Limit { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_belongs_to_the_run_that_made_it() {
        let name = |strand, step, continues_in| scope_name("w", strand, step, continues_in);
        assert_eq!(name("0", 3, None), "w.3");
        assert_eq!((name("0", 3, Some(1)), name("0.2", 3, Some(1))), ("w".into(), "w@0.2".into()));
        assert_eq!((name("0", 9, Some(2)), name("0.2", 9, Some(2))), ("w.r2".into(), "w.r2@0.2".into()));
        for (name, first, second) in [("w.3", true, false), ("w.9", true, true), ("w", true, false)] {
            assert_eq!((is_of_turn(name, 1, 0), is_of_turn(name, 2, 5)), (first, second), "{name}");
        }
        assert!(is_of_turn("w.r2@0.2", 2, 5) && !is_of_turn("w.r2@0.2", 3, 9) && is_of_turn("w@0.1", 1, 0));
    }
}
