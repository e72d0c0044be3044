//! Where the loop stands, as the session's registers say it.

use std::collections::BTreeMap;

use rekindle_core::record::RegisterSet;
use rekindle_core::{EffectId, Hash, Json, LogName, Record, RegisterKey, Result, State};
use serde::{Deserialize, Serialize};

use super::plan::Decided;
use crate::driver::{Spent, register};
pub(crate) use crate::message::conversation as messages;
use crate::reduction::{ProviderCursor, Summary};

/// The register that says where the loop stands.
pub const LOOP: &str = "loop";
/// The register of the groups that are open.
pub(super) const GROUPS: &str = "groups";
/// The register of what was decided about calls that are not made yet.
pub(super) const DECIDED: &str = "decided";
/// The register of the circuit breaker.
pub(super) const BREAKER: &str = "breaker";
/// The register of the summary of older messages.
pub(super) const SUMMARY: &str = "summary";
/// The register of what the provider has of the conversation.
pub(super) const CURSOR: &str = "cursor";

/// The prefix of the registers of loops inside nodes of a graph.
const NODE: &str = "node/";
/// The prefix of the logs of conversations inside nodes of a graph.
pub const MESSAGES_OF: &str = "messages/";

/// Under which names a loop keeps its state: the session's own, or those of a node of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(Option<String>);

impl Scope {
    /// The names of a node.
    pub fn node(name: impl Into<String>) -> Self {
        Self(Some(name.into()))
    }

    /// The name of a register.
    pub fn name(&self, register: &str) -> String {
        match &self.0 {
            None => register.to_owned(),
            Some(node) => format!("{NODE}{node}/{register}"),
        }
    }

    /// A register.
    pub(crate) fn register(&self, name: &str) -> Result<RegisterKey> {
        register(&self.name(name))
    }

    /// The log of the conversation.
    pub(crate) fn messages(&self) -> Result<LogName> {
        match &self.0 {
            None => Ok(messages()),
            Some(node) => LogName::new(format!("{MESSAGES_OF}{node}")),
        }
    }

    /// An effect of the loop.
    pub(crate) fn effect(&self, id: String) -> Result<EffectId> {
        match &self.0 {
            None => EffectId::new(id),
            Some(node) => EffectId::new(format!("{node}:{id}")),
        }
    }
}

/// What the loop does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Nothing: the turn is over.
    #[default]
    Idle,
    /// Ask the model.
    Think,
    /// Make the calls of its last answer.
    Act,
}

/// Where the loop stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoopState {
    /// The turn, from 1.
    pub turn: u64,
    /// The iteration within the turn, from 1.
    pub iteration: u64,
    /// The step within the session, from 1; never repeated.
    pub step: u64,
    /// What is next.
    pub phase: Phase,
    /// How many steps in a row failed.
    #[serde(default)]
    pub failures: u64,
    /// How many messages of the inbox's logs were taken.
    #[serde(default)]
    pub steered: usize,
    /// The same, of those that wait for a turn.
    #[serde(default)]
    pub queued: usize,
    /// Why the last turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// What the visit of a node has used, beside iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
}

impl LoopState {
    /// As the state of a session says.
    pub(crate) fn load(state: &State) -> Result<Self> {
        Self::load_in(state, &Scope::default())
    }

    /// As the state says.
    pub(crate) fn load_in(state: &State, scope: &Scope) -> Result<Self> {
        Ok(state.register(&scope.name(LOOP)).map(Json::decode).transpose()?.unwrap_or_default())
    }

    /// The record that says so.
    pub(crate) fn record(&self, scope: &Scope) -> Result<Record> {
        Ok(RegisterSet::new(scope.register(LOOP)?, Json::of(self)?).into())
    }
}

/// An error if a loop, of a session or inside a node, could not read `value` in the register `key`.
/// Registers that are none of its own take anything.
pub(crate) fn check_register(key: &str, value: &Json) -> Result<()> {
    let inside = key.strip_prefix(NODE).and_then(|rest| rest.split_once('/'));
    match inside.map_or(key, |(_, own)| own) {
        LOOP => value.decode::<LoopState>().map(drop),
        DECIDED => value.decode::<BTreeMap<EffectId, Decided>>().map(drop),
        GROUPS => value.decode::<Vec<String>>().map(drop),
        BREAKER => value.decode::<Breaker>().map(drop),
        SUMMARY => value.decode::<Summary>().map(drop),
        CURSOR => value.decode::<ProviderCursor>().map(drop),
        _ => Ok(()),
    }
}

/// Notices a model that makes the same call again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Breaker(BTreeMap<String, (Hash, u32)>);

impl Breaker {
    pub(super) fn load(state: &State, scope: &Scope) -> Result<Self> {
        Ok(state.register(&scope.name(BREAKER)).map(Json::decode).transpose()?.unwrap_or_default())
    }

    /// Takes note of a call: how often in a row the same one was made.
    pub(super) fn note(&mut self, tool: &str, arguments: Hash) -> u32 {
        let entry = self.0.entry(tool.to_owned()).or_insert((arguments, 0));
        if entry.0 == arguments {
            entry.1 = entry.1.saturating_add(1);
        } else {
            *entry = (arguments, 1);
        }
        entry.1
    }

    pub(super) fn record(&self, scope: &Scope) -> Result<Record> {
        Ok(RegisterSet::new(scope.register(BREAKER)?, Json::of(self)?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_counts_repetitions_of_one_call() {
        let mut breaker = Breaker::default();
        let (a, b) = (Hash::of(b"a"), Hash::of(b"b"));
        let counts = [(a, 1), (a, 2), (b, 1), (a, 1), (a, 2), (a, 3)];
        assert_eq!(breaker.note("other", a), 1);
        for (arguments, expected) in counts {
            assert_eq!(breaker.note("tool", arguments), expected);
        }
        assert_eq!(breaker.note("other", a), 2);
    }

    #[test]
    fn the_registers_have_a_stable_form() {
        let state = LoopState { turn: 1, iteration: 2, step: 3, phase: Phase::Act, ..LoopState::default() };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(text, r#"{"turn":1,"iteration":2,"step":3,"phase":"act","failures":0,"steered":0,"queued":0}"#);
        assert_eq!(serde_json::from_str::<LoopState>(&text).unwrap(), state);
    }
}
