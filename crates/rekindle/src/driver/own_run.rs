//! Runs whose ids are known before they begin: whoever asked for one can find it, whatever happens
//! in between. A message of the inbox may name the run that begins with it; a register may name the
//! next run of a branch.

use std::ops::ControlFlow;

use rekindle_core::codec::Place;
use rekindle_core::record::{Command, InboxCommand, InboxMode, RegisterSet, RegisterUnset, RunStarted};
use rekindle_core::{
    BranchId, Json, LogName, Marks, ReadFrames, Record, RegisterKey, Result, RunId, SessionInfo, SessionKey, Slot,
    State, StoreExt as _,
};

use super::inbox::{Inbox, Received, inputs_begun, is_input, known_messages, run_of_kept};
use super::{STOPPING, register};
use crate::engine::Engine;
use crate::executor::Descriptor;
use crate::message::Message;

/// The register that says which id the next run of the branch has.
pub(crate) const NEXT_RUN: &str = "next_run";
/// The prefix of registers that say who cancelled a run before it began.
const CANCELLED: &str = "cancelled/";
/// The field of a message that names its run.
const FIELD: &str = "run";

/// Says in a message which run begins with it; without one, that none does.
pub(super) fn set(message: &mut Message, run: Option<&RunId>) {
    match run {
        Some(run) => message.extra.insert(FIELD.into(), run.as_str().into()),
        None => message.extra.remove(FIELD),
    };
}

/// The run that begins with a message.
fn of(message: &Json) -> Option<RunId> {
    let message = Message::from_json(message).ok()?;
    message.extra.get(FIELD)?.as_str().and_then(|run| RunId::new(run).ok())
}

/// The run that the next message of the queue asks for, if that was taken over.
pub(crate) fn of_next_queued(descriptor: &dyn Descriptor, state: &State) -> Option<RunId> {
    let log = LogName::new(Inbox::QUEUE).ok()?;
    state.log(&log).get(descriptor.queued(state)).and_then(of)
}

/// The id that the register gives to the next run.
pub(crate) fn next(state: &State) -> Option<RunId> {
    state.register(NEXT_RUN).and_then(|json| json.decode().ok())
}

/// The records that make it so no longer.
pub(super) fn taken(state: &State) -> Result<Option<Record>> {
    Ok(match state.register(NEXT_RUN) {
        Some(_) => Some(RegisterUnset::new(register(NEXT_RUN)?).into()),
        None => None,
    })
}

/// The run that a turn without a given input begins with asks for: that of the message it takes.
pub(crate) fn of_turn(descriptor: &dyn Descriptor, state: &State, unread: &[Received]) -> Result<Option<RunId>> {
    // Messages that steer come first, and name no run.
    if descriptor.has_steered(state) {
        return Ok(None);
    }
    let known = known_messages(state)?;
    let new = unread.iter().filter_map(|entry| match &entry.record {
        Record::InboxMessage(message) if !is_input(message) && !known.contains(&message.message) => Some(message),
        _ => None,
    });
    let new: Vec<_> = new.collect();
    if new.iter().any(|message| message.mode != InboxMode::Queue) {
        return Ok(None);
    }
    let log = LogName::new(Inbox::QUEUE)?;
    match state.log(&log).get(descriptor.queued(state)) {
        Some(queued) => Ok(of(queued)),
        None => Ok(new.first().and_then(|message| message.run.clone())),
    }
}

/// Keeps commands that cancel runs which have not begun, until they do.
pub(super) fn cancelled_early(
    descriptor: &dyn Descriptor,
    state: &State,
    entries: &[Received],
    ours: &RunId,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in entries {
        let Record::InboxCommand(command) = &entry.record else { continue };
        let Some(run) = command.only_run.as_ref().filter(|run| *run != ours) else { continue };
        if command.command == Command::Cancel && is_awaited(descriptor, state, entries, run)? {
            records.push(RegisterSet::new(cancel_register(run)?, Json::of(command)?).into());
        }
    }
    Ok(records)
}

/// A command that cancelled a run before it began, and the records that take it up.
pub(super) fn take_cancel(state: &State, run: &RunId) -> Result<Option<(InboxCommand, Vec<Record>)>> {
    let key = cancel_register(run)?;
    let Some(command) = state.register(key.as_str()) else { return Ok(None) };
    let stopping = RegisterSet::new(register(STOPPING)?, command.clone()).into();
    Ok(Some((command.decode()?, vec![RegisterUnset::new(key).into(), stopping])))
}

/// Whether a run was cancelled before it began.
pub(crate) fn is_cancelled_early(state: &State, run: &RunId) -> bool {
    cancel_register(run).is_ok_and(|key| state.register(key.as_str()).is_some())
}

fn cancel_register(run: &RunId) -> Result<RegisterKey> {
    register(&format!("{CANCELLED}{run}"))
}

/// Whether a run is to begin with a message that waits.
fn is_awaited(descriptor: &dyn Descriptor, state: &State, entries: &[Received], run: &RunId) -> Result<bool> {
    let names = |record: &Record| matches!(record, Record::InboxMessage(message) if message.run.as_ref() == Some(run));
    Ok(is_kept(descriptor, state, run)? || entries.iter().any(|entry| names(&entry.record)))
}

/// Whether a message that was taken over waits for its turn in that run.
pub(crate) fn is_kept(descriptor: &dyn Descriptor, state: &State, run: &RunId) -> Result<bool> {
    let rest = |log: &str, from: usize| {
        Ok::<_, rekindle_core::Error>(state.log(&LogName::new(log)?).get(from..).unwrap_or_default())
    };
    let begun = usize::try_from(inputs_begun(state)?).unwrap_or(usize::MAX);
    let queued = rest(Inbox::QUEUE, descriptor.queued(state))?.iter().filter_map(of);
    let inputs = rest(Inbox::INPUT, begun)?.iter().filter_map(run_of_kept);
    Ok(queued.chain(inputs).any(|wanted| wanted == *run))
}

/// Whether a session has a run of that id, on whatever branch, as far as its history is stored.
pub(crate) async fn exists(engine: &Engine, info: &SessionInfo, run: &RunId) -> Result<bool> {
    for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
        if exists_on(engine, &info.header.key, &branch.branch, run).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn exists_on(engine: &Engine, session: &SessionKey, branch: &BranchId, run: &RunId) -> Result<bool> {
    let journal = engine.journal();
    let place = Place { session, branch };
    let read = ReadFrames::all(session.clone(), branch.clone()).with_marks(Marks::RUN).with_newest_first();
    let mut found = false;
    let mut visit = |slots: Vec<Slot>| {
        for slot in slots {
            let Slot::Whole(frame) = slot else { continue };
            let Ok(batch) = journal.codec().decode(place, &frame) else { continue };
            found |= batch.records.iter().any(|record| is_start(record, run));
        }
        Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    journal.store().read_pages(&read, &mut visit).await?;
    Ok(found)
}

fn is_start(record: &Record, run: &RunId) -> bool {
    matches!(record, Record::RunStarted(RunStarted { run: started, .. }) if started == run)
}
