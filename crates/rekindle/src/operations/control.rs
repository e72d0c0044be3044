//! Stopping a run: pause, interrupt, cancel. What came of it is read from the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use rekindle_core::record::{Command, RunEnded, RunOutcome};
use rekindle_core::{
    Error, ErrorKind, OwnerId, Position, Record, Restored, Result, RunId, RunInfo, SessionKey, Status,
};
use serde::Serialize;

use super::stopping;
use super::write::{self, Decided};
use crate::engine::Engine;
use crate::inbox;

/// Author, reason and run of a request to stop, and how long to wait for its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOptions {
    /// Who asks.
    pub author: String,
    /// Why.
    pub reason: String,
    /// Only if this is the run.
    pub only_run: Option<RunId>,
    /// Time to wait until the journal shows what came of it; [`Duration::MAX`] waits for as long
    /// as it takes, and without a time the journal is looked at once.
    pub wait: Option<Duration>,
}

impl ControlOptions {
    /// Asked by `author`, because of `reason`.
    pub fn new(author: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { author: author.into(), reason: reason.into(), ..Self::default() }
    }

    /// Waits so long for the outcome.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }
}

/// Outcome of a request to stop a run, as the journal shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Controlled {
    /// The run was stopped as asked: its end is on record.
    Done {
        /// Status of the session after that end.
        status: Status,
        /// Position of the record that says so.
        position: Position,
        /// The run.
        run: RunId,
    },
    /// The run had ended before it could be stopped, and stays as it ended. Nothing in the inbox
    /// stops a later run.
    Ended {
        /// Its end.
        status: Status,
        /// The run.
        run: RunId,
    },
    /// The request is in the inbox of a run under way, and the journal does not show yet what came of
    /// it: the run may still come to its end by itself.
    Requested {
        /// Position of the command.
        position: Position,
        /// Holder of the session's lease.
        owner: OwnerId,
        /// The run it is meant for; none if the run has not recorded its start yet.
        run: Option<RunId>,
    },
    /// A pause of a run that is paused or waits already.
    Unchanged {
        /// Status of the session.
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
    let status = match &done {
        Controlled::Done { status, .. } | Controlled::Ended { status, .. } => Some(*status),
        // The run under way tells its children.
        Controlled::Requested { .. } | Controlled::Unchanged { .. } => None,
    };
    if status == Some(Status::Cancelled) {
        cancel_all(engine, children, options).await.map_err(context)?;
        // What waits behind the run can begin now, also if somebody could not say so when it was cancelled.
        inbox::wake_job(engine, session).await.map_err(context)?;
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
    let options = ControlOptions { only_run: None, wait: None, ..options.clone() };
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
    stopping::stop(engine, session, command, options).await
}

/// Stops the last run of a branch that nobody runs. `AlreadyRunning` if somebody does.
pub(super) async fn stop_at_rest(
    engine: &Engine,
    restored: &Restored,
    command: Command,
    options: &ControlOptions,
) -> Result<Controlled> {
    let (session, branch) = (&restored.info.header.key, &restored.position.branch);
    let decide = |restored: &Restored| at_rest(engine, restored, command, options);
    let (position, rest) = write::change(engine, session, Some(branch), decide).await?;
    Ok(match rest {
        AtRest::Stops(run, status) => Controlled::Done { status, position, run },
        AtRest::Stopped(status) => Controlled::Unchanged { status },
        AtRest::Over(run, status) => Controlled::Ended { status, run },
    })
}

/// Outcome of a command on a branch that nobody runs.
enum AtRest {
    /// The run is stopped now.
    Stops(RunId, Status),
    /// It is stopped already.
    Stopped(Status),
    /// It is over.
    Over(RunId, Status),
}

fn at_rest(
    engine: &Engine,
    restored: &Restored,
    command: Command,
    options: &ControlOptions,
) -> Result<Decided<AtRest>> {
    let status = restored.state.status().seen(false);
    let cancels = command == Command::Cancel;
    let Some(run) = restored.state.run() else {
        return Err(nothing_to_stop(cancels).at(restored.position.clone()));
    };
    check_run(run, options.only_run.as_ref())?;
    if !cancels && matches!(status, Status::Paused | Status::Waiting) {
        return Ok(Decided::Nothing(AtRest::Stopped(status)));
    }
    // A turn that failed can still be resumed, so it can be given up too.
    let given_up =
        cancels && status == Status::Failed && engine.descriptors().of(&restored.state).is_mid_turn(&restored.state);
    let id = run.started.run.clone();
    if !given_up && !status.is_unfinished() {
        return Ok(Decided::Nothing(AtRest::Over(id, status)));
    }
    let records = if cancels { cancelling(engine, restored, run, options)? } else { vec![paused(run, options)] };
    let status = if cancels { Status::Cancelled } else { Status::Paused };
    Ok(Decided::Append(records, AtRest::Stops(id, status)))
}

fn nothing_to_stop(cancels: bool) -> Error {
    let what = if cancels { "cancel" } else { "pause" };
    let message = format!("the session has no unfinished run, so there is nothing to {what}");
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
    let mut records = engine.descriptors().of(&state).closing(&state, engine.journal(), "the run was cancelled")?;
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
