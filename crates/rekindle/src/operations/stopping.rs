//! Asking a run under way to stop, and following it in the journal until it is known what came of
//! that.

use std::time::Instant;

use rekindle_core::record::{Command, InboxCommand, RunOutcome};
use rekindle_core::{BranchId, ErrorKind, OwnerId, Position, Restored, Result, RunId, SessionKey, Status};

use super::control::{self, ControlOptions, Controlled};
use super::run::{Line, SeenRun};
use super::show::{self, Owner};
use super::{inbox, write};
use crate::driver::for_owner;
use crate::engine::Engine;

/// Number of times it is looked again because somebody else was quicker.
const ATTEMPTS: usize = 100;

/// A command that was sent.
struct Asked {
    position: Position,
    owner: OwnerId,
    branch: BranchId,
    /// The run it names; none if its start was not on record.
    run: Option<RunId>,
    /// The last run on record then.
    before: Option<RunId>,
}

/// Progress of the run.
enum Seen {
    /// The journal says what came of it.
    Settled(Controlled),
    /// An owner runs it; the run that is meant, if it is on record.
    Owned(Box<Restored>, Owner, Option<SeenRun>),
    /// It cannot be told any more which run was meant.
    Lost,
}

/// Stops the last run of a session or the one that is named: by its owner if there is one, and at once
/// if there is none.
pub(super) async fn stop(
    engine: &Engine,
    session: &SessionKey,
    command: Command,
    options: &ControlOptions,
) -> Result<Controlled> {
    let began = Instant::now();
    let mut asked: Option<Asked> = None;
    let mut overtaken = 0;
    let mut pace = engine.pace();
    loop {
        let seen = match look(engine, session, command, options, asked.as_mut()).await {
            // Somebody began to run it since we looked.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyRunning { .. }) && overtaken < ATTEMPTS => {
                overtaken += 1;
                continue;
            }
            seen => seen?,
        };
        match (seen, &asked) {
            (Seen::Settled(controlled), _) => return Ok(controlled),
            (Seen::Owned(restored, owner, run), asked_before) if needs_asking(asked_before.as_ref(), run.as_ref()) => {
                asked = Some(ask(engine, &restored, owner, run, command, options).await?);
                continue;
            }
            (Seen::Lost, Some(sent)) => return Ok(sent.requested()),
            _ => {}
        }
        let left = options.wait.unwrap_or_default().saturating_sub(began.elapsed());
        match &asked {
            Some(sent) if left.is_zero() => return Ok(sent.requested()),
            _ => tokio::select! {
                () = pace.pause() => {}
                () = tokio::time::sleep(left) => {}
            },
        }
    }
}

impl Asked {
    fn requested(&self) -> Controlled {
        Controlled::Requested { position: self.position.clone(), owner: self.owner.clone(), run: self.run.clone() }
    }
}

/// Returns true if a command must be sent: none was, or the run went on in one that does not obey it. A run
/// obeys what was sent to the one it goes on from.
fn needs_asking(asked: Option<&Asked>, run: Option<&SeenRun>) -> bool {
    match (asked, run) {
        (None, _) => true,
        (Some(Asked { run: Some(named), .. }), Some(latest)) => {
            latest.run != *named && latest.continues.as_ref() != Some(named)
        }
        (Some(_), _) => false,
    }
}

/// Puts the command into the inbox. It names the run it is meant for or, if that has not recorded its
/// start, the holder of the lease, so that no later run obeys it.
async fn ask(
    engine: &Engine,
    restored: &Restored,
    owner: Owner,
    run: Option<SeenRun>,
    command: Command,
    options: &ControlOptions,
) -> Result<Asked> {
    let run = run.map(|run| run.run).or_else(|| options.only_run.clone());
    let mut sent = InboxCommand {
        only_run: run.clone(),
        author: Some(write::by(&options.author)),
        reason: options.reason.clone(),
        ..InboxCommand::new(engine.new_message_id(), command)
    };
    if run.is_none() {
        sent = for_owner(sent, &owner.owner);
    }
    let position = inbox::put(engine, &restored.info.header.key, sent.into()).await?;
    let before = restored.state.run().map(|run| run.started.run.clone());
    Ok(Asked { position, owner: owner.owner, branch: owner.branch, run, before })
}

/// Reads the journal, and stops the run there if nobody runs it.
async fn look(
    engine: &Engine,
    session: &SessionKey,
    command: Command,
    options: &ControlOptions,
    mut asked: Option<&mut Asked>,
) -> Result<Seen> {
    let branch = asked.as_ref().map(|asked| asked.branch.clone());
    let mut restored = write::load_head(engine, session, branch.as_ref()).await?;
    let owner = show::owner(&restored.info);
    if let (None, Some(owner)) = (&asked, &owner)
        && owner.branch != restored.position.branch
    {
        restored = write::load_head(engine, session, Some(&owner.branch)).await?;
    }
    if let Some(asked) = asked.as_deref_mut().filter(|asked| asked.run.is_none())
        && let Some(seen) = adopt(asked, &restored, owner.as_ref())
    {
        return Ok(seen);
    }
    let was_asked = asked.is_some();
    let run = meant(asked.as_deref(), options, &restored);
    let line = match &run {
        Some(run) => Line::find(engine, &restored.info, run).await?,
        None => None,
    };
    if let Some(settled) = line.as_ref().and_then(|line| settled(line, command, was_asked, owner.is_some())) {
        return Ok(Seen::Settled(settled));
    }
    match (owner, line) {
        (Some(owner), line) => Ok(Seen::Owned(Box::new(restored), owner, line.map(|line| line.latest))),
        (None, line) => {
            let only_run = line.map(|line| line.latest.run).or_else(|| options.only_run.clone());
            let options = ControlOptions { only_run, ..options.clone() };
            Ok(Seen::Settled(control::stop_at_rest(engine, &restored, command, &options).await?))
        }
    }
}

/// The run that is meant, if it is known.
fn meant(asked: Option<&Asked>, options: &ControlOptions, restored: &Restored) -> Option<RunId> {
    let unfinished = restored.state.status().is_unfinished();
    let at_hand = || restored.state.run().filter(|_| unfinished).map(|run| run.started.run.clone());
    asked.and_then(|asked| asked.run.clone()).or_else(|| options.only_run.clone()).or_else(at_hand)
}

/// Finds the run of a lease holder whose start was not on record when it was asked.
fn adopt(asked: &mut Asked, restored: &Restored, owner: Option<&Owner>) -> Option<Seen> {
    let last = restored.state.run().map(|run| run.started.run.clone());
    let same_owner = owner.is_some_and(|owner| owner.owner == asked.owner);
    match (last == asked.before, same_owner) {
        (false, true) => {
            asked.run = last;
            None
        }
        // It holds the lease, and has not recorded anything.
        (true, true) => None,
        // It gave the lease back and recorded no run: what it held the lease for was the run before.
        (true, false) => {
            let run = last?;
            Some(Seen::Settled(Controlled::Ended { status: restored.state.status().seen(false), run }))
        }
        (false, false) => Some(Seen::Lost),
    }
}

/// Reads what the journal says of a run that is over, or stopped as it was asked to.
fn settled(line: &Line, command: Command, asked: bool, owned: bool) -> Option<Controlled> {
    let SeenRun { run, branch, ended, followed_at, .. } = &line.latest;
    let (cancels, run) = (command == Command::Cancel, run.clone());
    let outcome = ended.as_ref().map(|ended| ended.record.outcome);
    let over = |status| Some(Controlled::Ended { status, run: run.clone() });
    let done = |status| {
        let position = Position::new(branch.clone(), ended.as_ref()?.seq);
        Some(Controlled::Done { status, position, run: run.clone() })
    };
    match outcome {
        Some(RunOutcome::Cancelled) if cancels && asked => done(Status::Cancelled),
        Some(RunOutcome::Cancelled) => over(Status::Cancelled),
        Some(RunOutcome::Succeeded) => over(Status::Succeeded),
        Some(RunOutcome::Idle) => over(Status::Idle),
        // At rest, a turn that failed can be given up.
        Some(RunOutcome::Failed) => {
            if asked || owned {
                over(Status::Failed)
            } else {
                None
            }
        }
        // Another turn began, so this one was over, although its run could not say so any more.
        Some(RunOutcome::Paused | RunOutcome::Waiting) | None if followed_at.is_some() => over(Status::Succeeded),
        Some(RunOutcome::Paused) if !cancels && asked => done(Status::Paused),
        Some(RunOutcome::Paused) if !cancels => Some(Controlled::Unchanged { status: Status::Paused }),
        Some(RunOutcome::Waiting) if !cancels => Some(Controlled::Unchanged { status: Status::Waiting }),
        Some(RunOutcome::Paused | RunOutcome::Waiting) | None => None,
    }
}
