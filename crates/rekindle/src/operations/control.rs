//! Telling a session to stop: pause, interrupt, cancel. Whoever runs it is told; if nobody does,
//! it is done at once.

use std::collections::BTreeSet;

use rekindle_core::record::{Command, InboxCommand, RunEnded, RunOutcome};
use rekindle_core::{
    Error, ErrorKind, OwnerId, Position, Record, Restored, Result, RunId, RunInfo, SessionKey, Status,
};
use serde::Serialize;

use super::write::{self, Decided};
use super::{inbox, jobs, show};
use crate::engine::Engine;
use crate::executor::by_name;

/// Who asks, why, and for which run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOptions {
    /// Who asks.
    pub author: String,
    /// Why.
    pub reason: String,
    /// Only if this is the run.
    pub only_run: Option<RunId>,
}

impl ControlOptions {
    /// Asked by `author`, because of `reason`.
    pub fn new(author: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { author: author.into(), reason: reason.into(), only_run: None }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Controlled {
    /// Somebody runs the session, and was told.
    Sent {
        /// Where the command stands.
        position: Position,
        /// Who runs it.
        owner: OwnerId,
    },
    /// Nobody ran it, so it was done at once.
    Done {
        /// What the session is now.
        status: Status,
        /// Where its branch ends now.
        position: Position,
    },
    /// It was so already.
    Unchanged {
        /// What the session is.
        status: Status,
    },
}

/// Pauses a run: calls under way may end within the grace period. A resume goes on with it.
pub async fn pause(engine: &Engine, session: &SessionKey, options: &ControlOptions) -> Result<Controlled> {
    control(engine, session, Command::Pause, options).await.map_err(|error| error.during("pause").on(session))
}

/// Stops the step under way, calls included, and pauses. A resume goes on with the run.
pub async fn interrupt(engine: &Engine, session: &SessionKey, options: &ControlOptions) -> Result<Controlled> {
    control(engine, session, Command::Interrupt, options).await.map_err(|error| error.during("interrupt").on(session))
}

/// Ends a run for good: its waits are closed, and no open call stays in the conversation. The
/// session stays open to the next message. What its open calls had begun in child sessions ends
/// with it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, ControlOptions};
/// use rekindle::Engine;
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// let refused = operations::cancel(&engine, session.key(), &ControlOptions::new("maria", "not needed")).await;
/// assert_eq!(refused.unwrap_err().code(), "RK0010"); // there is nothing to cancel
/// # Ok(()) }
/// ```
pub async fn cancel(engine: &Engine, session: &SessionKey, options: &ControlOptions) -> Result<Controlled> {
    let context = |error: Error| error.during("cancel").on(session);
    // Looked up first: what is cancelled has no open calls any more.
    let children = open_children(engine, session).await.map_err(context)?;
    let done = control(engine, session, Command::Cancel, options).await.map_err(context)?;
    // Whoever runs the session tells its children.
    if !matches!(done, Controlled::Sent { .. }) {
        cancel_all(engine, children, options).await.map_err(context)?;
        // What waits behind the run can begin now, also if somebody could not say so when it was cancelled.
        jobs::wake(engine, session).await.map_err(context)?;
    }
    Ok(done)
}

/// The sessions in which open calls of a session are carried out.
async fn open_children(engine: &Engine, session: &SessionKey) -> Result<Vec<SessionKey>> {
    let restored = engine.journal().load(session, None).await?;
    Ok(restored.state.open_effects().filter_map(|effect| effect.intent.child.clone()).collect())
}

/// Cancels child sessions and theirs. What is not there, or is over, needs nothing.
async fn cancel_all(engine: &Engine, mut sessions: Vec<SessionKey>, options: &ControlOptions) -> Result<()> {
    let options = ControlOptions { only_run: None, ..options.clone() };
    let mut seen = BTreeSet::new();
    while let Some(session) = sessions.pop() {
        if !seen.insert(session.clone()) {
            continue;
        }
        let cancelled = match open_children(engine, &session).await {
            Ok(children) => {
                sessions.extend(children);
                control(engine, &session, Command::Cancel, &options).await
            }
            Err(error) => Err(error),
        };
        match cancelled {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotResumable) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn control(
    engine: &Engine,
    session: &SessionKey,
    command: Command,
    options: &ControlOptions,
) -> Result<Controlled> {
    let restored = engine.journal().load(session, None).await?;
    if let Some(owner) = show::owner(&restored.info) {
        return tell(engine, session, command, options, &restored, owner.owner).await;
    }
    let decide = |restored: &Restored| at_rest(engine, restored, command, options);
    match write::change(engine, session, None, decide).await {
        Ok((position, Some(status))) => Ok(Controlled::Done { status, position }),
        Ok((_, None)) => Ok(Controlled::Unchanged { status: show::status(&restored) }),
        Err(error) => match error.kind().clone() {
            // Somebody began to run it since we looked.
            ErrorKind::AlreadyRunning { owner, .. } => tell(engine, session, command, options, &restored, owner).await,
            _ => Err(error),
        },
    }
}

/// Sends the command to whoever runs the session.
async fn tell(
    engine: &Engine,
    session: &SessionKey,
    command: Command,
    options: &ControlOptions,
    restored: &Restored,
    owner: OwnerId,
) -> Result<Controlled> {
    // Meant for the run at hand: if that dies before it reads the command, the run that goes on
    // with it obeys, and a later turn does not.
    let unfinished = restored.state.status().is_unfinished();
    let at_hand = restored.state.run().filter(|_| unfinished).map(|run| run.started.run.clone());
    let command = InboxCommand {
        only_run: options.only_run.clone().or(at_hand),
        author: Some(write::by(&options.author)),
        reason: options.reason.clone(),
        ..InboxCommand::new(engine.new_message_id(), command)
    };
    let position = inbox::put(engine, session, command.into()).await?;
    Ok(Controlled::Sent { position, owner })
}

/// What the command does to a session that nobody runs.
fn at_rest(
    engine: &Engine,
    restored: &Restored,
    command: Command,
    options: &ControlOptions,
) -> Result<Decided<Option<Status>>> {
    let status = restored.state.status().seen(false);
    let cancels = command == Command::Cancel;
    let already =
        if cancels { status == Status::Cancelled } else { matches!(status, Status::Paused | Status::Waiting) };
    // A turn that failed can still be resumed, so it can be given up too.
    let given_up = cancels && status == Status::Failed && by_name::is_mid_turn(&restored.state);
    let Some(run) = restored.state.run().filter(|_| already || given_up || status.is_unfinished()) else {
        return Err(nothing_to_stop(status, cancels).at(restored.position.clone()));
    };
    check_run(run, options.only_run.as_ref())?;
    if already {
        return Ok(Decided::Nothing(None));
    }
    let records = if cancels { cancelling(engine, restored, run, options)? } else { vec![paused(run, options)] };
    let status = if cancels { Status::Cancelled } else { Status::Paused };
    Ok(Decided::Append(records, Some(status)))
}

fn nothing_to_stop(status: Status, cancels: bool) -> Error {
    let what = if cancels { "cancel" } else { "pause" };
    let message = match status {
        Status::Idle => format!("the session has no unfinished run, so there is nothing to {what}"),
        status => format!("the last run is over ({status}), so there is nothing to {what}"),
    };
    Error::new(ErrorKind::NotResumable, message).hint("look at the session; it is open to the next message as it is")
}

fn check_run(run: &RunInfo, only: Option<&RunId>) -> Result<()> {
    let started = &run.started;
    match only {
        Some(only) if *only != started.run && Some(only) != started.continues.as_ref() => {
            Err(Error::not_found(format!("the last run is {}, not {only}", started.run))
                .hint("leave out the run to mean whichever is the last"))
        }
        _ => Ok(()),
    }
}

fn paused(run: &RunInfo, options: &ControlOptions) -> Record {
    let reason = said("paused", options);
    RunEnded { reason, ..RunEnded::new(run.started.run.clone(), RunOutcome::Paused) }.into()
}

/// What a run that is cancelled records at its end.
fn cancelling(engine: &Engine, restored: &Restored, run: &RunInfo, options: &ControlOptions) -> Result<Vec<Record>> {
    let mut state = restored.state.clone();
    let mut records = by_name::closing(&state, engine.journal(), "the run was cancelled")?;
    records.iter().try_for_each(|record| state.apply(record))?;
    records.extend(state.waits().map(crate::wait::cancelled));
    let reason = said("cancelled", options);
    records.push(RunEnded { reason, ..RunEnded::new(run.started.run.clone(), RunOutcome::Cancelled) }.into());
    Ok(records)
}

fn said(what: &str, options: &ControlOptions) -> String {
    let by = write::by(&options.author);
    if options.reason.is_empty() { format!("{what} by {by}") } else { format!("{what} by {by}: {}", options.reason) }
}

/// Tells one run, and no other, that its parent was stopped.
pub(crate) async fn tell_run(engine: &Engine, session: &SessionKey, run: &RunId, command: Command) -> Result<Position> {
    let command = InboxCommand {
        only_run: Some(run.clone()),
        reason: "the parent was stopped".to_owned(),
        ..InboxCommand::new(engine.new_message_id(), command)
    };
    inbox::put(engine, session, command.into()).await
}
