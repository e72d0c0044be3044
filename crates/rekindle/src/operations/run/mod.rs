//! What became of a run: found by its id in the journal, wherever it stands, with everything that
//! went on from it.

mod find;

use rekindle_core::queue::JobState;
use rekindle_core::record::{Command, InboxCommand, RunOutcome};
use rekindle_core::{
    BranchId, Error, ErrorKind, Json, Position, Restored, Result, RunId, Seq, SessionInfo, SessionKey, Status,
    Timestamp,
};
use serde::Serialize;

use super::answer::as_seen;
use super::control::{self, ControlOptions};
use super::jobs::{self, JobView};
use super::show::WaitView;
use super::{inbox, send, write};
use crate::driver::{Received, is_cancelled_early, is_run_kept, next_run};
use crate::engine::Engine;
use crate::wait::verdict;
pub(super) use find::{Line, SeenRun};

/// How often it is looked again when the session moves meanwhile.
const ATTEMPTS: usize = 20;
/// A job that is not ready for longer than this was laid aside.
const ASIDE_MICROS: u64 = 24 * 3_600 * 1_000_000;

/// What a run is doing, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// It has not begun.
    Queued,
    /// It works, or a worker is about to go on with it.
    Working,
    /// It waits for an answer.
    Waiting,
    /// Its process died, and nobody has gone on with it yet.
    Interrupted,
    /// It was stopped, and can be resumed.
    Paused,
    /// No worker goes on with it until somebody does something about the reason.
    Held,
    /// It came to its end.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunPhase {
    /// Whether it is over, for good.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What became of a run, with the runs that went on from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunProgress {
    /// The session.
    pub session: SessionKey,
    /// The run that was asked for.
    pub run: RunId,
    /// The last run that went on from it; the run itself if none did.
    pub latest: RunId,
    /// What it is doing.
    pub phase: RunPhase,
    /// Whether somebody asked to cancel it and it has not ended yet.
    pub cancelling: bool,
    /// The branch it is on.
    pub branch: Option<BranchId>,
    /// What it waits for that nobody has answered.
    pub waits: Vec<WaitView>,
    /// What it came to: the text of an agent's answer, what the steps of a plan gave back, the memory
    /// of a graph.
    pub answer: Option<Json>,
    /// Why it is as it is, for people.
    pub reason: String,
    /// The error's code, if it failed.
    pub code: Option<String>,
    /// When it began or, if it has not, when it was asked for.
    pub started_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The job of its session, if it has one.
    pub job: Option<JobView>,
}

/// What became of a run, by what the journal says. A run that other runs went on from is as far as the
/// last of them, unless it had ended by itself. One that is asked for and has not begun is found too.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, Enqueue, RunPhase};
/// use rekindle::{Engine, RunId, SessionHeader};
///
/// let engine = Engine::memory()?;
/// let (session, run) = (engine.key("trip-42")?, RunId::new("packing")?);
/// let job = Enqueue::new(SessionHeader::new(session.clone()), "maria").message("What should I pack?");
/// operations::enqueue(&engine, &job.run(run.clone())).await?;
/// assert_eq!(operations::run(&engine, &session, &run).await?.phase, RunPhase::Queued);
/// # Ok(()) }
/// ```
pub async fn run(engine: &Engine, session: &SessionKey, run: &RunId) -> Result<RunProgress> {
    progress(engine, session, run).await.map_err(|error| error.during("run").on(session))
}

async fn progress(engine: &Engine, session: &SessionKey, run: &RunId) -> Result<RunProgress> {
    let job = jobs::job(engine, session).await?;
    let mut info = engine.journal().open(session).await?;
    for _ in 0..ATTEMPTS {
        let found = match Line::find(engine, &info, run).await? {
            Some(line) => begun(engine, &info, run, &line).await,
            None => not_begun(engine, &info, run).await,
        };
        match found {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                // It may have begun after its branch was read and before its message was looked for.
                let now = engine.journal().open(session).await?;
                if now.heads() == info.heads() {
                    return Err(error);
                }
                info = now;
            }
            found => return Ok(with_job(found?, job)),
        }
    }
    Err(Error::new(ErrorKind::StoreUnavailable, "the session moves on all the time"))
}

/// How far a run is that has begun.
async fn begun(engine: &Engine, info: &SessionInfo, run: &RunId, line: &Line) -> Result<RunProgress> {
    let SeenRun { branch, ended, .. } = &line.latest;
    let mut progress = RunProgress {
        session: info.header.key.clone(),
        run: run.clone(),
        latest: line.latest.run.clone(),
        phase: RunPhase::Working,
        cancelling: false,
        branch: Some(branch.clone()),
        waits: Vec::new(),
        answer: None,
        reason: ended.as_ref().map(|ended| ended.record.reason.clone()).unwrap_or_default(),
        code: ended.as_ref().and_then(|ended| ended.record.code.clone()),
        started_at: line.started_at,
        updated_at: ended.as_ref().map_or(line.latest.at, |ended| ended.at),
        job: None,
    };
    let ended = ended.as_ref().map(|ended| (ended.record.outcome, Position::new(branch.clone(), ended.seq)));
    let stopped = ended.as_ref().is_none_or(|(outcome, _)| matches!(outcome, RunOutcome::Paused | RunOutcome::Waiting));
    let at_end = match line.latest.followed_at {
        // Another turn began, so this one was over, although its run could not say so any more.
        Some(next) if stopped => {
            Some((RunOutcome::Succeeded, Position::new(branch.clone(), Seq(next.0.saturating_sub(1)))))
        }
        _ => ended,
    };
    match at_end {
        Some((RunOutcome::Succeeded | RunOutcome::Idle, position)) => {
            progress.phase = RunPhase::Succeeded;
            progress.answer = answer(engine, info, &position).await?;
        }
        Some((RunOutcome::Failed, _)) => progress.phase = RunPhase::Failed,
        Some((RunOutcome::Cancelled, _)) => progress.phase = RunPhase::Cancelled,
        Some((RunOutcome::Paused | RunOutcome::Waiting, _)) | None => unfinished(engine, info, &mut progress).await?,
    }
    Ok(progress)
}

/// What a run came to.
async fn answer(engine: &Engine, info: &SessionInfo, position: &Position) -> Result<Option<Json>> {
    let state = engine.journal().recall(info.clone(), Some(position)).await?.state;
    engine.descriptors().of(&state).result(&state)
}

/// How far the last run of a branch is, if it has not ended.
async fn unfinished(engine: &Engine, info: &SessionInfo, progress: &mut RunProgress) -> Result<()> {
    let Some(name) = &progress.branch else { return Ok(()) };
    let branch = info.branch(name)?;
    progress.updated_at = branch.updated_at;
    let head = Position::new(name.clone(), branch.head.seq);
    let restored = engine.journal().recall(info.clone(), Some(&head)).await?;
    let unread = inbox::unread(engine, &restored).await?;
    progress.cancelling = unread.iter().any(|sent| cancels(sent, &progress.latest));
    if let Some(error) = unread.error(&info.header.key) {
        progress.reason = error.message().to_owned();
    }
    let live = branch.live_lease(info.observed_at).is_some();
    progress.phase = match restored.state.status().seen(live) {
        Status::Paused => RunPhase::Paused,
        Status::Interrupted => RunPhase::Interrupted,
        _ => RunPhase::Working,
    };
    // Also while it works: another answer may have set it going.
    progress.waits = unanswered(&restored, &unread);
    if restored.state.status() == Status::Waiting {
        // A session without a wait of its own waits for another session.
        if !progress.waits.is_empty() || restored.state.waits().next().is_none() {
            progress.phase = RunPhase::Waiting;
        }
    }
    if *name != info.current && !live {
        left_behind(progress);
    }
    Ok(())
}

/// The session went on from an earlier point: nobody goes on with this line, whatever is answered to it,
/// until its branch is resumed.
fn left_behind(progress: &mut RunProgress) {
    progress.phase = RunPhase::Held;
    progress.waits.clear();
    progress.reason = "the session went on on another branch; resume this one to go on with it".to_owned();
}

/// What waits for an answer that nobody has given yet. Times end by themselves.
fn unanswered(restored: &Restored, unread: &[Received]) -> Vec<WaitView> {
    let now = restored.info.observed_at;
    let seen = restored.state.waits().map(|wait| as_seen(wait, &restored.position.branch, unread));
    seen.filter(|wait| verdict(wait, now).is_none()).map(|wait| WaitView::of(&wait, now)).collect()
}

/// A run that was asked for and has not begun.
async fn not_begun(engine: &Engine, info: &SessionInfo, run: &RunId) -> Result<RunProgress> {
    let restored = engine.journal().recall(info.clone(), None).await?;
    let (session, state) = (&info.header.key, &restored.state);
    let unread = inbox::unread(engine, &restored).await?;
    let asks = |sent: &Received| send::run_of(sent).as_ref() == Some(run);
    let mut is_over = false;
    let asked_at = match unread.iter().find(|sent| asks(sent)) {
        Some(message) => Some(message.at),
        None if is_run_kept(&*engine.descriptors().of(state), state, run)? => {
            inbox::newest(engine, session, asks).await?.map(|message| message.at)
        }
        None if next_run(state).as_ref() == Some(run) => {
            is_over = state.status() == Status::Cancelled;
            None
        }
        None => return Err(unknown(run)),
    };
    Ok(RunProgress {
        session: session.clone(),
        run: run.clone(),
        latest: run.clone(),
        phase: if is_over { RunPhase::Cancelled } else { RunPhase::Queued },
        cancelling: unread.iter().any(|sent| cancels(sent, run)) || is_cancelled_early(state, run),
        branch: None,
        waits: Vec::new(),
        answer: None,
        reason: String::new(),
        code: None,
        started_at: asked_at.unwrap_or(info.created_at),
        updated_at: asked_at.unwrap_or_else(|| info.updated_at()),
        job: None,
    })
}

fn unknown(run: &RunId) -> Error {
    Error::not_found(format!("the session has no run `{run}`"))
        .hint("look at the session's log; what was pruned is not found any more")
}

/// Whether somebody sent a command that cancels the run.
fn cancels(sent: &Received, run: &RunId) -> bool {
    matches!(
        &sent.record,
        rekindle_core::Record::InboxCommand(command)
            if command.command == Command::Cancel && command.only_run.as_ref() == Some(run)
    )
}

/// The same, as what workers do with its session says.
fn with_job(mut progress: RunProgress, job: Option<JobView>) -> RunProgress {
    let Some(view) = job.filter(|_| !progress.phase.is_over()) else { return progress };
    let idle = matches!(progress.phase, RunPhase::Queued | RunPhase::Interrupted | RunPhase::Paused);
    let aside = view.job.ready_at.is_some_and(|at| at.0 > progress.updated_at.0.saturating_add(ASIDE_MICROS));
    if idle && !view.job.note.is_empty() {
        progress.reason.clone_from(&view.job.note);
    }
    if idle && view.state == JobState::Scheduled && aside && !view.job.note.is_empty() {
        progress.phase = RunPhase::Held;
    }
    progress.job = Some(view);
    progress
}

/// Ends a run for good, whether it has begun or not. One that has not begun ends as soon as a worker
/// begins it; one that is over stays as it is. What it is then, as far as can be told.
pub async fn cancel_run(
    engine: &Engine,
    session: &SessionKey,
    run: &RunId,
    options: &ControlOptions,
) -> Result<RunProgress> {
    let context = |error: Error| error.during("cancel").on(session);
    let progress = progress(engine, session, run).await.map_err(context)?;
    if progress.phase.is_over() || progress.cancelling {
        return Ok(progress);
    }
    let assigned = progress.branch.is_none() && is_assigned(engine, session, run).await.map_err(context)?;
    if progress.branch.is_none() && !assigned {
        let command = InboxCommand {
            only_run: Some(run.clone()),
            author: Some(write::by(&options.author)),
            reason: options.reason.clone(),
            ..InboxCommand::new(engine.new_message_id(), Command::Cancel)
        };
        inbox::put(engine, session, command.into()).await.map_err(context)?;
    } else {
        let only_run = Some(progress.latest.clone()).filter(|_| !assigned);
        match control::cancel(engine, session, &ControlOptions { only_run, ..options.clone() }).await {
            // It ended meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::NotResumable | ErrorKind::NotFound) => {}
            cancelled => drop(cancelled?),
        }
    }
    self::run(engine, session, run).await
}

/// Whether the run is to go on from one that failed, or from a checkpoint.
async fn is_assigned(engine: &Engine, session: &SessionKey, run: &RunId) -> Result<bool> {
    Ok(next_run(&engine.journal().load(session, None).await?.state).as_ref() == Some(run))
}
