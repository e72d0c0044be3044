//! What is known of the engine's own executors from the state alone, by the name a session
//! remembers them under: for operations, which have no executor at hand.

use rekindle_core::record::CheckpointType;
use rekindle_core::{EffectId, Journal, Json, LogName, Record, Result, State};

use super::{agent, flow, graph, plan};
use crate::message::Message;

fn name(state: &State) -> Option<&str> {
    state.run().map(|run| run.started.executor.as_str())
}

/// Whether the last turn was not finished.
pub(crate) fn is_mid_turn(state: &State) -> bool {
    match name(state) {
        Some(agent::KIND) => agent::LoopState::load(state).is_ok_and(|at| at.phase != agent::Phase::Idle),
        Some(flow::KIND) => flow::is_mid_turn(state),
        Some(plan::KIND) => plan::is_mid_turn(state),
        Some(graph::KIND) => graph::is_mid_turn(state),
        _ => false,
    }
}

/// Whether what drives the session reads messages. Plans, graphs and flows begin with an input and
/// read none after it.
pub(crate) fn reads_messages(state: &State) -> bool {
    !matches!(name(state), Some(flow::KIND | plan::KIND | graph::KIND))
}

/// Whether a message that was taken over waits in the state for a turn of its own.
pub(crate) fn has_queued(state: &State) -> bool {
    name(state) == Some(agent::KIND) && agent::has_queued(state)
}

/// The records that give up an unfinished turn.
pub(crate) fn closing(state: &State, journal: &Journal, why: &str) -> Result<Vec<Record>> {
    match name(state) {
        Some(agent::KIND) => agent::closing(state, journal, why),
        Some(plan::KIND) => plan::closing(state),
        Some(graph::KIND) => graph::closing(state, journal, why),
        _ => Ok(Vec::new()),
    }
}

/// Calls of the last answers of models that have not ended: they were decided, and may be begun.
pub(crate) fn unended_calls(state: &State) -> Vec<EffectId> {
    let calls = match name(state) {
        Some(agent::KIND) => agent::unended_calls(state, &agent::Scope::default()),
        Some(graph::KIND) => graph::unended_calls(state),
        _ => Ok(Vec::new()),
    };
    // A state that its executor cannot read has no calls that it could go on with.
    calls.unwrap_or_default()
}

/// The turn of a plan, graph or flow that has not ended: everything it has not recorded may be begun.
pub(crate) fn open_turn(state: &State) -> Option<u64> {
    let turn = match name(state)? {
        plan::KIND => plan::state::PlanRegister::load(state).ok()?.turn,
        graph::KIND => graph::state::GraphRegister::load(state).ok()?.turn,
        flow::KIND => flow::turn(state)?,
        _ => return None,
    };
    Some(turn).filter(|_| is_mid_turn(state))
}

/// An error if an executor could not read `value` in a register of its own. Other registers take
/// anything.
pub(crate) fn check_register(key: &str, value: &Json) -> Result<()> {
    agent::check_register(key, value)?;
    flow::check_register(key, value)?;
    plan::check_register(key, value)?;
    graph::check_register(key, value)
}

/// An error if an executor could not read `item` in a log of its own. Other logs take anything.
pub(crate) fn check_item(log: &LogName, item: &Json) -> Result<()> {
    let log = log.as_str();
    if log == agent::messages().as_str() || log.starts_with(agent::MESSAGES_OF) {
        return Message::from_json(item).map(drop);
    }
    plan::state::check_item(log, item)?;
    graph::state::check_item(log, item)
}

/// What a run came to: the text of an agent's answer, what the steps of a plan gave back, the memory
/// of a graph. A flow gives its result to whoever runs it, and to nobody else.
pub(crate) fn result(state: &State) -> Result<Option<Json>> {
    match name(state) {
        Some(agent::KIND) => agent::result(state).map(Some),
        Some(plan::KIND) => plan::result(state).map(Some),
        Some(graph::KIND) => graph::result(state).map(Some),
        _ => Ok(None),
    }
}

/// The number of the step the session stands at.
pub(crate) fn step(state: &State) -> Option<u64> {
    match name(state) {
        Some(agent::KIND) => agent::LoopState::load(state).ok().map(|at| at.step),
        Some(plan::KIND) => plan::step(state),
        Some(graph::KIND) => graph::step(state),
        _ => None,
    }
}

/// What kind of moment the session stands at, and the number of its step.
pub(crate) fn moment(state: &State) -> (CheckpointType, u64) {
    let kind = match name(state) {
        Some(plan::KIND) => CheckpointType::Step,
        Some(graph::KIND) => CheckpointType::NodeStart,
        _ => CheckpointType::Iteration,
    };
    (kind, step(state).unwrap_or_default())
}

/// The loop of an agent that made an effect, if one did.
pub(crate) fn loop_of(state: &State, effect: &EffectId) -> Option<agent::Scope> {
    match name(state) {
        Some(agent::KIND) => Some(agent::Scope::default()),
        Some(graph::KIND) => effect.as_str().split_once(':').map(|(node, _)| agent::Scope::node(node)),
        _ => None,
    }
}
