//! One job, from its claim to what became of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rekindle_core::queue::{Job, SettleJob, Settled, Settlement};
use rekindle_core::record::RunOutcome;
use rekindle_core::{Error, ErrorKind, Record, Result, SessionInfo, SessionKey, Timestamp};
use tokio_util::sync::CancellationToken;

use super::look::{Look, Next, Told, look};
use super::{Core, Running, Work, WorkerEvent};
use crate::clock::StoreClock;
use crate::driver::{Inbox, Looked, NextInput, OnWait, ResumeOptions, RunHandle, RunReport};
use crate::engine::Engine;
use crate::event::Event;
use crate::operations;
use crate::session::Session;

/// How long a job waits that failed for a reason that should pass.
const SHORT: Duration = Duration::from_secs(2);
/// The longest time between two tries.
const LONG: Duration = Duration::from_secs(60);
/// The longest time until a job is offered again that this worker has nothing for.
const MISSING: Duration = Duration::from_secs(15);
/// How long a job waits that nobody can run until something is done about it: doing it, or whatever
/// arrives, makes it ready at once.
const HELD: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How many runs of one session follow each other before other jobs have their turn.
const RUNS: usize = 100;

/// Notes that a job is under way.
pub(super) fn take_slot(core: &Core, job: &Job) {
    let number = job.claim.as_ref().map_or(job.claims, |claim| claim.number);
    core.running().insert(job.session.clone(), Running { number, lost: CancellationToken::new() });
}

/// Frees the slot of a job, whatever becomes of its task.
struct Slot<'a>(&'a Core, &'a SessionKey);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.running().remove(self.1);
        self.0.changed.notify_one();
    }
}

/// Does what is to be done for a job, and says what became of it.
pub(super) async fn handle(core: Arc<Core>, engine: Engine, job: Job) {
    let _slot = Slot(&core, &job.session);
    // What arrives between a look into the inbox and the run that begins with it is told to the run.
    let _live = engine.live(&job.session);
    let lost = core.running().get(&job.session).map(|running| running.lost.clone()).unwrap_or_default();
    core.tell(WorkerEvent::Claimed { session: job.session.clone(), attempt: job.attempts });
    let mut turn = JobTurn { core: &core, engine, wakes: job.wakes, attempts: job.attempts, job: &job, lost };
    let end = match job.attempts > core.settings.attempts {
        true => turn.give_up().await,
        false => turn.run().await.unwrap_or_else(|error| turn.failed(&error)),
    };
    turn.settle(end).await;
}

/// What becomes of a job.
enum Fate {
    Done,
    Later(Option<Timestamp>),
    Again { after: Duration, counts: bool, note: String },
    Hold(String),
}

impl Fate {
    /// Given back for a reason that should pass and is not the session's fault.
    fn soon(note: impl Into<String>) -> Self {
        Self::Again { after: SHORT, counts: false, note: note.into() }
    }
}

struct JobTurn<'a> {
    core: &'a Core,
    engine: Engine,
    job: &'a Job,
    /// How often the job had been woken when the inbox was last looked into.
    wakes: u64,
    attempts: u32,
    lost: CancellationToken,
}

impl JobTurn<'_> {
    /// Runs the session as long as there is something to run.
    async fn run(&mut self) -> Result<Fate> {
        let (mut at, mut told) = (Look::First, Told::new());
        for _ in 0..RUNS {
            if at != Look::First && !self.look_again().await? {
                return Ok(Fate::Done);
            }
            let (next, looked) = look(&self.engine, &self.job.session, at, &mut told).await?;
            let since = self.engine.journal().clock().now();
            let input = match next {
                Next::Done => return Ok(Fate::Done),
                Next::Later(time) => return Ok(Fate::Later(time)),
                Next::Hold(why) => return Ok(Fate::Hold(why)),
                Next::Busy(rest) => {
                    let note = "somebody else runs the session".to_owned();
                    return Ok(Fate::Again { after: rest.min(LONG), counts: false, note });
                }
                Next::Start(input) => Some(input),
                Next::Resume => None,
            };
            if self.core.drain.is_cancelled() {
                return Ok(drained());
            }
            let handle = match self.begin(input, looked).await {
                Ok(handle) => handle,
                // Somebody was quicker, or nothing is left to do: what is there now says.
                Err(Begin::Failed(error)) if is_outdated(&error) && at == Look::First => {
                    at = Look::After(since);
                    continue;
                }
                Err(Begin::Failed(error)) => return Ok(self.not_begun(&error)),
                Err(Begin::Fate(fate)) => return Ok(fate),
            };
            if let Some(fate) = self.follow(handle).await {
                return Ok(fate);
            }
            at = Look::After(since);
        }
        Ok(Fate::Again { after: Duration::ZERO, counts: false, note: "others have their turn".to_owned() })
    }

    /// Before the inbox is looked into again: takes note of how often the job was woken. Nothing is
    /// to be done any more if it is gone.
    async fn look_again(&mut self) -> Result<bool> {
        let Some(view) = operations::job(&self.engine, &self.job.session).await? else { return Ok(false) };
        self.wakes = view.job.wakes;
        Ok(true)
    }

    /// Starts a run with an input, or goes on.
    async fn begin(&self, input: Option<NextInput>, looked: Option<Looked>) -> Result<RunHandle, Begin> {
        let work = match &looked {
            Some(looked) => self.work(&looked.restored.info).await?,
            None => self.work(&self.engine.journal().open(&self.job.session).await.map_err(Begin::Failed)?).await?,
        };
        let session = Session::new(self.engine.clone(), self.job.session.clone());
        // The lease of a process that is known to be dead is not waited for.
        let mut options = ResumeOptions::new(format!("worker {}", self.core.name))
            .on_wait(OnWait::Suspend)
            .patience(Duration::from_millis(1))
            .having_looked(looked);
        if let Some(reason) = &self.core.settings.accept_drift {
            options = options.accept_drift(reason);
        }
        let begun = match input {
            Some(input) => {
                let options = options.taking_input(input.number, input.run);
                work.start(&session, input.input, options).await
            }
            None => work.resume(&session, options).await,
        };
        begun.map_err(Begin::Failed)
    }

    /// What runs the session.
    async fn work(&self, info: &SessionInfo) -> Result<Arc<dyn Work>, Begin> {
        let name = self.job.agent.as_ref().or(info.header.agent.as_ref());
        if let Some(work) = name.and_then(|name| self.core.works.get(name)) {
            return Ok(Arc::clone(work));
        }
        let named = name.map_or("whatever runs the session".to_owned(), |name| format!("`{name}`"));
        let missing = |why: String| {
            // Another worker may have it.
            self.core.missed.store(true, Ordering::SeqCst);
            Begin::Fate(Fate::Again { after: backoff(self.job.claims).min(MISSING), counts: false, note: why })
        };
        let Some(resolver) = &self.core.resolver else {
            return Err(missing(format!("the worker {} has no {named}", self.core.name)));
        };
        match self.core.kept.find(resolver.as_ref(), info).await {
            Ok(Some(work)) => Ok(work),
            Ok(None) => Err(missing(format!("the session does not say where {named} is"))),
            Err(error) => Err(missing(format!("{named} cannot be made: {error}"))),
        }
    }

    /// Watches a run to its end; what becomes of the job if the run itself decides that.
    async fn follow(&mut self, mut handle: RunHandle) -> Option<Fate> {
        self.core.longest_grace.raise(handle.grace());
        if self.attempts > 1 {
            self.watch_progress(&mut handle).await;
        }
        let (stopped, report) = self.watch(handle).await;
        let session = self.job.session.clone();
        match report {
            Ok(report) => {
                let (outcome, reason) = (report.outcome, report.reason);
                self.core.tell(WorkerEvent::Ran { session, outcome, reason });
                let by_us = stopped && outcome == RunOutcome::Paused && report.cause.is_none();
                by_us.then(drained)
            }
            Err(error) if is_passing(&error) => Some(Fate::soon(error.to_string())),
            Err(error) => {
                self.core.tell(WorkerEvent::Ran { session, outcome: RunOutcome::Failed, reason: error.to_string() });
                None
            }
        }
    }

    /// Once the session gets on, tries before do not count any more.
    async fn watch_progress(&mut self, handle: &mut RunHandle) {
        loop {
            let event = tokio::select! {
                event = handle.next_event() => event,
                () = self.asked() => return,
            };
            match event {
                Ok(Some(event)) if is_progress(&event) => break,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
        if self.send(Settlement::Progress).await.is_ok() {
            self.attempts = 0;
        }
    }

    /// Waits for the end of a run, and has it stop if it is to; whether it was asked to.
    async fn watch(&self, handle: RunHandle) -> (bool, Result<RunReport>) {
        let stopper = handle.stopper();
        let report = handle.report();
        tokio::pin!(report);
        tokio::select! {
            report = &mut report => return (false, report),
            () = self.asked() => stopper.stop("the worker stops, and another goes on"),
        }
        tokio::select! {
            report = &mut report => return (true, report),
            () = self.core.at_once.cancelled() => stopper.stop("the worker stops at once"),
        }
        (true, report.await)
    }

    /// Resolves when the run is to stop.
    async fn asked(&self) {
        tokio::select! {
            () = self.core.drain.cancelled() => {}
            () = self.lost.cancelled() => {}
        }
    }

    /// No worker got on with the session: its run failed.
    async fn give_up(&self) -> Fate {
        let tries = self.core.settings.attempts;
        let last = if self.job.note.is_empty() { "its worker died" } else { &self.job.note };
        let reason = format!("gave up after {tries} attempts without progress; last: {last}");
        let given_up = operations::give_up(&self.engine, &self.job.session, &reason).await;
        let session = self.job.session.clone();
        match given_up {
            Ok(given_up) if given_up.failed => {
                self.core.tell(WorkerEvent::GaveUp { session, reason });
                Fate::Done
            }
            // No run is on record that could have failed.
            Ok(_) => Fate::Hold(reason),
            Err(error) if *error.kind() == ErrorKind::NotFound => Fate::Done,
            Err(error) => match self.failed(&error) {
                Fate::Hold(why) => Fate::Hold(format!("{reason}; {why}")),
                fate => fate,
            },
        }
    }

    /// What an error means before anything ran.
    fn failed(&self, error: &Error) -> Fate {
        match error.kind() {
            ErrorKind::NotFound => Fate::Done,
            _ => self.not_begun(error),
        }
    }

    /// What becomes of a job whose run could not begin.
    fn not_begun(&self, error: &Error) -> Fate {
        match error.kind() {
            ErrorKind::AlreadyRunning { until, .. } => {
                let rest = until.since(self.engine.journal().clock().now());
                let note = "somebody else runs the session".to_owned();
                Fate::Again { after: rest.min(LONG), counts: false, note }
            }
            ErrorKind::NotResumable => Fate::Done,
            _ if is_passing(error) || is_outdated(error) => Fate::soon(error.to_string()),
            // A mistake that stays: the input, the definition or the store's bytes are not right.
            _ if error.retry() == rekindle_core::Retry::Never => Fate::Hold(said(error)),
            _ => {
                let after = backoff(u64::from(self.attempts));
                Fate::Again { after, counts: true, note: error.to_string() }
            }
        }
    }

    /// Says what became of the job. If that cannot be said, the claim runs out.
    async fn settle(&self, fate: Fate) {
        let session = self.job.session.clone();
        let now = self.engine.journal().clock().now();
        let (settlement, event) = match fate {
            Fate::Done => (Settlement::Done, WorkerEvent::Done { session }),
            Fate::Later(ready_at) => {
                let after = ready_at.map(|at| at.since(now));
                let ready_at = ready_at.map(StoreClock::surely);
                (Settlement::Later { ready_at }, WorkerEvent::Waits { session, after })
            }
            Fate::Again { after, counts, note } => {
                let event = WorkerEvent::GivenBack { session, after, reason: note.clone() };
                (Settlement::Again { after, counts, note }, event)
            }
            Fate::Hold(reason) => {
                let note = reason.clone();
                (Settlement::Again { after: HELD, counts: false, note }, WorkerEvent::Held { session, reason })
            }
        };
        match self.send(settlement).await {
            Ok(Settled::Lost) => self.core.tell(WorkerEvent::Lost { session: self.job.session.clone() }),
            Ok(_) => self.core.tell(event),
            Err(error) => self.core.tell(WorkerEvent::StoreAway { error: error.to_string() }),
        }
    }

    async fn send(&self, settlement: Settlement) -> Result<Settled> {
        let number = self.job.claim.as_ref().map_or(self.job.claims, |claim| claim.number);
        let (session, worker) = (self.job.session.clone(), self.core.name.clone());
        let settle = SettleJob { session, worker, number, wakes: self.wakes, settlement };
        self.core.queue()?.settle(&settle).await
    }
}

/// Why a run did not begin.
enum Begin {
    Failed(Error),
    Fate(Fate),
}

fn drained() -> Fate {
    Fate::Again { after: Duration::ZERO, counts: false, note: "its worker stopped".to_owned() }
}

/// How long to wait after so many tries: twice as long each time.
fn backoff(tries: u64) -> Duration {
    let doublings = u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX).min(6);
    Duration::from_secs(1 << doublings).min(LONG)
}

/// An error with what helps.
fn said(error: &Error) -> String {
    format!("{error}; {}", error.next_step())
}

/// Whether the cause is not the session's and should pass.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StoreUnavailable
            | ErrorKind::PersistFailed
            | ErrorKind::Closed
            | ErrorKind::Fenced { .. }
            | ErrorKind::AlreadyRunning { .. }
    )
}

/// Whether the session has moved on since it was looked at.
fn is_outdated(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Stale | ErrorKind::Conflict { .. } | ErrorKind::NotResumable | ErrorKind::Unfinished
    )
}

/// Whether an event shows that a session got on.
fn is_progress(event: &Event) -> bool {
    let Event::Recorded { record, .. } = event else { return false };
    match record {
        Record::EffectOutcome(_) | Record::WaitClosed(_) => true,
        // What was only taken over from the inbox was there before.
        Record::LogAppend(append) => ![Inbox::QUEUE, Inbox::STEER, Inbox::INPUT].contains(&append.log.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_tries_grows_up_to_a_minute() {
        let seconds: Vec<u64> = (1..=9).map(|tries| backoff(tries).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff(0), Duration::from_secs(1));
        assert_eq!(backoff(u64::MAX), LONG);
    }
}
