//! Having workers go on with a session: with what is unfinished, from an earlier checkpoint, with
//! other memory. What was there before is never lost: going back is a fork.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rekindle_core::record::RegisterSet;
use rekindle_core::{
    BranchId, CheckpointId, Error, ErrorKind, Json, Record, RegisterKey, Restored, Result, RunId, SessionKey, State,
    Status, StoreExt as _,
};
use serde::Serialize;

use super::at::At;
use super::change::Change;
use super::fork::{self, ForkOptions};
use super::jobs::{self, Enqueue, EnqueuedJob, JobInput};
use super::write::{self, Decided};
use super::{inbox, send, show};
use crate::driver::{NEXT_RUN, Received, Unread, holds_message, next_input, next_run};
use crate::engine::Engine;

/// How often it is looked again when the session moves meanwhile.
const ATTEMPTS: usize = 20;
/// How long the lease of a run that has ended is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How workers should go on with a session.
#[derive(Clone, Debug, PartialEq)]
pub struct GoOn {
    /// The session.
    pub session: SessionKey,
    /// From this checkpoint, on a new branch; without one, from where it is.
    pub checkpoint: Option<CheckpointId>,
    /// Keys of its memory that are set first.
    pub set: BTreeMap<String, Json>,
    /// What is said to it; without it, a worker goes on with what is unfinished.
    pub input: Option<JobInput>,
    /// The id of the run that begins, to find it by. A run that is unfinished keeps its own, unless
    /// it goes on from a checkpoint.
    pub run: Option<RunId>,
    /// Who asks.
    pub author: String,
}

impl GoOn {
    /// With what is unfinished.
    pub fn new(session: SessionKey, author: impl Into<String>) -> Self {
        Self { session, checkpoint: None, set: BTreeMap::new(), input: None, run: None, author: author.into() }
    }
}

/// What going on did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoingOn {
    /// The branch that was made for it.
    pub branch: Option<BranchId>,
    /// The job.
    #[serde(flatten)]
    pub job: EnqueuedJob,
}

/// Has workers go on with a session. `NotResumable` if there is nothing to go on with,
/// `AlreadyRunning` if somebody runs it and it would have to be changed first.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::Engine;
/// use rekindle::operations::{self, GoOn};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// let refused = operations::go_on(&engine, &GoOn::new(session.key().clone(), "maria")).await;
/// assert_eq!(refused.unwrap_err().code(), "RK0010"); // nothing is unfinished
/// # Ok(()) }
/// ```
pub async fn go_on(engine: &Engine, wanted: &GoOn) -> Result<GoingOn> {
    let context = |error: Error| error.during("go on").on(&wanted.session);
    jobs::queue_of(engine).map_err(context)?;
    if wanted.checkpoint.is_some() || !wanted.set.is_empty() {
        check_unowned(engine, &wanted.session).await.map_err(context)?;
    }
    if wanted.checkpoint.is_some() {
        check_unasked(engine, &wanted.session).await.map_err(context)?;
    }
    let branch = match &wanted.checkpoint {
        Some(checkpoint) => Some(go_back(engine, wanted, checkpoint).await.map_err(context)?),
        None => {
            change_memory(engine, wanted).await.map_err(context)?;
            None
        }
    };
    let (input, run) = (wanted.input.clone(), wanted.run.clone());
    let enqueue = Enqueue { input, run, ..Enqueue::existing(wanted.session.clone(), &wanted.author) };
    Ok(GoingOn { branch, job: jobs::enqueue(engine, &enqueue).await? })
}

/// Sets memory where the session is.
async fn change_memory(engine: &Engine, wanted: &GoOn) -> Result<()> {
    if wanted.set.is_empty() {
        return Ok(());
    }
    let restored = engine.journal().load(&wanted.session, None).await?;
    check_something(engine, &restored, wanted).await?;
    let changes = memory_changes(engine, &restored.state, &wanted.set);
    fork::edit(engine, &wanted.session, &At::Latest, &changes, &wanted.author, "set to go on").await.map(drop)
}

/// An error if there would be nothing to go on with: found before anything is changed.
async fn check_something(engine: &Engine, restored: &Restored, wanted: &GoOn) -> Result<()> {
    if wanted.input.is_some() {
        return Ok(());
    }
    let unread = inbox::behind(engine, &wanted.session, restored.state.inbox_taken()).await?;
    match what_is_next(engine, &restored.state, &unread)? {
        Next::Nothing => Err(nothing_in(restored, &unread)),
        _ => Ok(()),
    }
}

/// Starts a branch at a checkpoint and makes it the one that is run; the branch.
async fn go_back(engine: &Engine, wanted: &GoOn, checkpoint: &CheckpointId) -> Result<BranchId> {
    let journal = engine.journal();
    let found = journal.checkpoint(&wanted.session, checkpoint).await?;
    if !found.checkpoint.resumable {
        let message = format!("checkpoint `{checkpoint}` cannot be resumed from");
        return Err(Error::new(ErrorKind::NotResumable, message).at(found.position).hint("choose another checkpoint"));
    }
    let restored = journal.load(&wanted.session, Some(&found.position)).await?;
    let state = &restored.state;
    // What was sent before stays with the branch it was sent to.
    if wanted.input.is_none() && matches!(what_is_next(engine, state, &[])?, Next::Nothing) {
        return Err(nothing(state.status()).at(found.position));
    }
    let mut edits = memory_changes(engine, state, &wanted.set);
    if let Some(run) = wanted.run.as_ref().filter(|_| wanted.input.is_none()) {
        send::check_new_run(engine, &restored.info, run).await?;
        edits.push(Change::SetRegister { key: NEXT_RUN.to_owned(), value: Json::of(run)? });
    }
    let reason = format!("to go on from checkpoint {checkpoint}");
    let options = ForkOptions { branch: None, edits, author: wanted.author.clone(), reason };
    let forked = fork::fork(engine, &wanted.session, &At::Position(found.position), options).await?;
    switch(engine, &wanted.session, &forked.branch).await?;
    Ok(forked.branch)
}

/// An error if somebody runs the session. A run that has ended keeps its lease for a moment more, which
/// is waited for.
async fn check_unowned(engine: &Engine, session: &SessionKey) -> Result<()> {
    let asked = Instant::now();
    loop {
        let info = engine.journal().open(session).await?;
        let Some(owner) = show::owner(&info) else { return Ok(()) };
        if info.branch(&owner.branch)?.status == Status::Running || asked.elapsed() > PATIENCE {
            let kind = ErrorKind::AlreadyRunning {
                owner: owner.owner,
                branch: owner.branch,
                epoch: owner.epoch,
                until: owner.until,
            };
            return Err(Error::new(kind, "somebody runs the session").hint("pause or cancel its run first"));
        }
        tokio::time::sleep(engine.poll()).await;
    }
}

/// An error if somebody asked for a run that has not begun: on another branch it never would.
async fn check_unasked(engine: &Engine, session: &SessionKey) -> Result<()> {
    let restored = engine.journal().load(session, None).await?;
    let unread = inbox::behind(engine, session, restored.state.inbox_taken()).await?;
    let asked = match what_is_next(engine, &restored.state, &unread)? {
        Next::Begins(Some(run)) => Some(run),
        _ => unread.iter().find_map(send::run_of),
    };
    match asked {
        Some(run) => Err(Error::new(ErrorKind::Unfinished, format!("run `{run}` was asked for and has not begun"))
            .hint("wait until it has ended, or cancel it first")),
        None => Ok(()),
    }
}

/// Makes a branch the one a resume goes on with, unless somebody runs the session.
async fn switch(engine: &Engine, session: &SessionKey, branch: &BranchId) -> Result<()> {
    let store = engine.journal().store();
    let lease = store.acquire(session, branch, &engine.new_owner()?, engine.lease()).await?;
    let chosen = engine.journal().choose_branch(session, branch).await;
    store.release(&lease).await?;
    chosen.map(drop)
}

/// The changes that set memory. What its executor holds beside the memory counts less than what is set now.
fn memory_changes(engine: &Engine, state: &State, set: &BTreeMap<String, Json>) -> Vec<Change> {
    let (mut changes, descriptor) = (Vec::new(), engine.descriptors().of(state));
    for (key, value) in set {
        changes.push(Change::SetMemory { key: key.clone(), value: value.clone() });
        let overlays = descriptor.overlays(state, key);
        changes.extend(overlays.into_iter().map(|register| Change::UnsetRegister { key: register.to_string() }));
    }
    changes
}

/// What a worker would do with a session.
enum Next {
    Nothing,
    /// A run goes on.
    GoesOn(RunId),
    /// A new run begins, under that id if it is known.
    Begins(Option<RunId>),
}

fn what_is_next(engine: &Engine, state: &State, unread: &[Received]) -> Result<Next> {
    if let Some(next) = next_run(state) {
        return Ok(Next::Begins(Some(next)));
    }
    let descriptor = engine.descriptors().of(state);
    let (status, mid_turn) = (state.status(), descriptor.is_mid_turn(state));
    let input = next_input(state, unread)?;
    if let (Some(run), true) = (state.run(), status.is_unfinished() && (mid_turn || input.is_none())) {
        return Ok(Next::GoesOn(run.started.run.clone()));
    }
    if matches!(status, Status::Failed | Status::Idle) && mid_turn {
        return Ok(Next::Begins(None));
    }
    if let Some(input) = input {
        return Ok(Next::Begins(input.run));
    }
    if descriptor.has_queued(state) || holds_message(state, unread)? {
        return Ok(Next::Begins(crate::driver::run_of_turn(&*descriptor, state, unread)?));
    }
    Ok(Next::Nothing)
}

/// There is nothing to go on with, or it cannot be read.
fn nothing_in(restored: &Restored, unread: &Unread) -> Error {
    unread.error(&restored.info.header.key).unwrap_or_else(|| nothing(restored.state.status()))
}

fn nothing(status: Status) -> Error {
    Error::new(ErrorKind::NotResumable, format!("the session is {status} and no input was given"))
        .hint("give it something to begin with")
}

/// The run with which a worker goes on; an error if it would find nothing to do. A run that begins
/// without having an id gets the one that is wanted, once: whoever asks next is told the same.
pub(super) async fn going_on(engine: &Engine, session: &SessionKey, wanted: Option<&RunId>) -> Result<Option<RunId>> {
    let mut moved = None;
    for _ in 0..ATTEMPTS {
        let restored = engine.journal().load(session, None).await?;
        let unread = inbox::behind(engine, session, restored.state.inbox_taken()).await?;
        match what_is_next(engine, &restored.state, &unread)? {
            Next::Nothing => return Err(nothing_in(&restored, &unread)),
            Next::GoesOn(run) => return Ok(Some(run)),
            Next::Begins(Some(run)) => return Ok(Some(run)),
            Next::Begins(None) => {}
        }
        let Some(wanted) = wanted else { return Ok(None) };
        send::check_new_run(engine, &restored.info, wanted).await?;
        match assign(engine, session, &restored, wanted).await {
            Ok(true) => return Ok(Some(wanted.clone())),
            Ok(false) => {}
            // Somebody began to run it: what that is, the next look says.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyRunning { .. }) => {
                moved = Some(error);
                tokio::time::sleep(engine.poll()).await;
            }
            Err(error) => return Err(error),
        }
    }
    let busy = || Error::new(ErrorKind::StoreUnavailable, "the session moves on all the time");
    Err(moved.unwrap_or_else(busy))
}

/// Says which id the next run of the branch has; whether nothing moved since it was looked at.
async fn assign(engine: &Engine, session: &SessionKey, seen: &Restored, run: &RunId) -> Result<bool> {
    let record: Record = RegisterSet::new(RegisterKey::new(NEXT_RUN)?, Json::of(run)?).into();
    let decide = |restored: &Restored| {
        Ok(match restored.position == seen.position {
            true => Decided::Append(vec![record.clone()], true),
            false => Decided::Nothing(false),
        })
    };
    Ok(write::change(engine, session, Some(&seen.position.branch), decide).await?.1)
}
