//! Sessions of agents, from their state alone.

use rekindle_core::{EffectId, Error, Journal, Json, LogName, Record, Result, State};

use super::state::{LoopState, MESSAGES_OF, Phase, Scope, messages};
use super::turn::{call_effect, closing, unended_calls};
use crate::driver::Inbox;
use crate::executor::{Descriptor, Settled};
use crate::message::{Message, Role, ToolCall, ToolResult};

/// The descriptor of agents.
#[derive(Debug)]
pub(crate) struct AgentDescriptor;

/// The name under which sessions remember agents.
pub(crate) const KIND: &str = "agent";

impl Descriptor for AgentDescriptor {
    fn kind(&self) -> &str {
        KIND
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        LoopState::load(state).is_ok_and(|at| at.phase != Phase::Idle)
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn has_queued(&self, state: &State) -> bool {
        count(state, Inbox::QUEUE) > self.queued(state) || self.has_steered(state)
    }

    fn queued(&self, state: &State) -> usize {
        LoopState::load(state).unwrap_or_default().queued
    }

    fn has_steered(&self, state: &State) -> bool {
        count(state, Inbox::STEER) > LoopState::load(state).unwrap_or_default().steered
    }

    fn closing(&self, state: &State, journal: &Journal, why: &str) -> Result<Vec<Record>> {
        closing(state, journal, why)
    }

    fn unended_calls(&self, state: &State) -> Result<Vec<EffectId>> {
        unended_calls(state, &Scope::default())
    }

    fn step(&self, state: &State) -> Option<u64> {
        LoopState::load(state).ok().map(|at| at.step)
    }

    fn result(&self, state: &State) -> Result<Option<Json>> {
        super::child::result(state).map(Some)
    }

    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        super::state::check_register(key, value)
    }

    fn check_item(&self, log: &LogName, item: &Json) -> Result<()> {
        match *log == messages() || log.as_str().starts_with(MESSAGES_OF) {
            true => Message::from_json(item).map(drop),
            false => Ok(()),
        }
    }

    fn settled(&self, state: &State, journal: &Journal, effect: &EffectId, how: Settled<'_>) -> Result<Json> {
        settled_in(&Scope::default(), state, journal, effect, how)
    }
}

/// The message by which a tool of a loop answers a call that a person settles.
pub(crate) fn settled_in(
    scope: &Scope,
    state: &State,
    journal: &Journal,
    effect: &EffectId,
    how: Settled<'_>,
) -> Result<Json> {
    let call = call_of(state, scope, effect)?;
    let result = match how {
        Ok(value) => ToolResult::new(&call, value.clone()),
        Err(why) => ToolResult::failed(&call, why),
    };
    Message::tool(result).with_id(journal.ids(), journal.clock().now()).to_json()
}

/// The call in the model's last answer that an effect stands for.
fn call_of(state: &State, scope: &Scope, effect: &EffectId) -> Result<ToolCall> {
    let step = LoopState::load_in(state, scope)?.step;
    let last = state.log(&scope.messages()?).last().map(Message::from_json).transpose()?;
    let last = last.filter(|message| message.role == Role::Assistant);
    for (number, call) in last.iter().flat_map(Message::calls).enumerate() {
        if call_effect(scope, step, number, call)? == *effect {
            return Ok(call.clone());
        }
    }
    Err(Error::invalid(format!("the effect `{effect}` is none of the calls of the model's last answer"))
        .hint("cancel the run, or fork before the call and go on from there"))
}

fn count(state: &State, log: &str) -> usize {
    LogName::new(log).map_or(0, |log| state.log(&log).len())
}
