//! A run from its first record to its last: starting it, holding it, ending it.

use std::any::Any;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rekindle_core::record::{
    CheckpointTrigger, EffectOutcome, OutcomeStatus, RegisterUnset, RunEnded, RunOutcome, WaitOpened,
};
use rekindle_core::{
    BranchId, EffectId, Error, ErrorKind, Head, Json, Position, Record, Result, RunId, SessionKey, State,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::open::{Keeper, Opened};
use super::validate::Case;
use super::{
    Driver, Evicted, NewCheckpoint, Opening, ResumeOptions, RunOptions, STOPPING, Spent, Stop, lease, open, register,
    shortened,
};
use crate::engine::Engine;
use crate::event::{Events, LiveKind};
use crate::executor::{Executor, Input};
use crate::message::Message;
use crate::secret::GivenSecrets;

/// How an executor says that its run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// How.
    pub outcome: RunOutcome,
    /// Why, for people.
    pub reason: String,
    /// What the agent said last.
    pub answer: Option<Message>,
    /// What other executors give back.
    pub value: Option<Json>,
    /// The checkpoint that marks the end of the run.
    pub checkpoint: Option<NewCheckpoint>,
}

impl End {
    /// With `outcome`, because of `reason`.
    pub fn new(outcome: RunOutcome, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into(), answer: None, value: None, checkpoint: None }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The session.
    pub session: SessionKey,
    /// The branch it went on with.
    pub branch: BranchId,
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Why, for people.
    pub reason: String,
    /// What the agent said last, if the turn came to its end.
    pub answer: Option<Message>,
    /// What other executors give back.
    pub value: Option<Json>,
    /// Where the branch ends: what a later resume can say it saw.
    pub head: Head,
    /// What the turn used.
    pub spent: Spent,
    /// What it waits for.
    pub waits: Vec<WaitOpened>,
    /// Whether the store was away at the end: what happened since is not stored.
    pub degraded: bool,
    /// The error that paused it: a budget that is spent.
    pub cause: Option<ErrorKind>,
}

impl RunReport {
    /// The text of the answer; empty if there is none.
    pub fn text(&self) -> String {
        self.answer.as_ref().map(Message::text).unwrap_or_default()
    }

    /// Where the branch ends.
    pub fn position(&self) -> Position {
        Position::new(self.branch.clone(), self.head.seq)
    }
}

/// A run under way. Dropping it pauses the run: calls under way have the grace period to end, and
/// until then the session stays the run's. [`RunHandle::detach`] lets it go on alone.
#[derive(Debug)]
#[must_use = "dropping it pauses the run: wait for its `report`, or `detach` it"]
pub struct RunHandle {
    driver: Driver,
    task: Option<JoinHandle<Result<RunReport>>>,
    events: Events,
}

impl RunHandle {
    /// The session.
    pub fn session(&self) -> &SessionKey {
        self.driver.session()
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        self.driver.run()
    }

    /// The owner whose lease was ended so that this run could begin, if there was one.
    pub fn evicted(&self) -> Option<&Evicted> {
        self.driver.shared.evicted.as_ref()
    }

    /// The next thing the run does; nothing once it has ended. May be dropped at any time, see [`Events::next`].
    pub async fn next_event(&mut self) -> Result<Option<crate::Event>> {
        self.events.next().await
    }

    /// Asks the run to pause: calls under way may end within the grace period. Asked again, it
    /// stops at once; a call that was under way is then in doubt, and treated so at the resume.
    pub fn stop(&self, reason: &str) {
        self.stopper().stop(reason);
    }

    /// The time calls under way have to end once the run is asked to pause.
    pub fn grace(&self) -> Duration {
        self.driver.options().grace
    }

    /// Stops the run while this handle is in use, e.g. by [`RunHandle::next_event`] or [`RunHandle::report`].
    pub fn stopper(&self) -> Stopper {
        Stopper(self.driver.clone())
    }

    /// Asks the run to end for good.
    pub fn cancel(&self, reason: &str) {
        self.driver.control().stop(Stop::Cancel, reason);
    }

    /// Marks where the run is now.
    pub async fn checkpoint(&self, description: &str) -> Result<rekindle_core::CheckpointId> {
        self.driver.checkpoint(NewCheckpoint::manual(description)).await
    }

    /// Waits for the end. The final state is on disk when this returns.
    pub async fn report(mut self) -> Result<RunReport> {
        let Some(task) = self.task.as_mut() else { return Err(ended()) };
        let report = task.await;
        self.task = None;
        report.unwrap_or_else(|_| Err(ended()))
    }

    /// Lets the run go on alone.
    pub fn detach(mut self) {
        self.task = None;
    }
}

/// Stops a run, see [`RunHandle::stopper`].
#[derive(Clone, Debug)]
pub struct Stopper(Driver);

impl Stopper {
    /// Asks the run to pause, as [`RunHandle::stop`] does; asked again, it stops at once.
    pub fn stop(&self, reason: &str) {
        if self.0.control().stopping().is_some() {
            self.0.control().stop_calls();
        }
        self.0.control().stop(Stop::Pause, reason);
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the run's task was stopped with its runtime")
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.task.is_some() && self.driver.control().stopping().is_none() {
            self.driver.control().stop(Stop::Pause, "nobody holds the run any more");
        }
    }
}

/// Opens the session and starts the run in the background.
pub(crate) async fn start(
    engine: &Engine,
    session: &SessionKey,
    executor: Arc<dyn Executor>,
    input: Input,
    options: RunOptions,
    resume: ResumeOptions,
) -> Result<RunHandle> {
    engine.descriptors().learn(executor.descriptor());
    let options = configured(engine, executor.as_ref(), options, &resume);
    let named = engine.given().chain(resume.secrets.iter().cloned()).collect();
    let given = GivenSecrets::new(Arc::clone(engine.secrets()), named, engine.masks().clone());
    let opening = Opening { engine, session, executor: executor.as_ref(), input: &input, options, resume, given };
    let Opened { driver, case, keeper } = open(opening).await?;
    let first = driver.shared.core.lock().await.writer.durable().seq;
    let over = CancellationToken::new();
    let events = Events::of_run(&driver, first, over.clone());
    let input = match (case, input) {
        (Case::Resume, _) => Input::Resume,
        // One that is queued.
        (Case::NewTurn, Input::Resume) => Input::Messages(Vec::new()),
        (Case::NewTurn, input) => input,
    };
    let (over, driver_of_run) = (over.drop_guard(), driver.clone());
    let task = tokio::spawn(async move {
        let _over = over;
        drive(driver_of_run, executor, input, keeper).await
    });
    Ok(RunHandle { driver, task: Some(task), events })
}

/// The options of a run as its start says, with the checkpoints that the run or else the engine asks for.
fn configured(engine: &Engine, executor: &dyn Executor, mut options: RunOptions, resume: &ResumeOptions) -> RunOptions {
    options.on_wait = resume.on_wait.unwrap_or(options.on_wait);
    options.on_damaged_inbox = resume.on_damaged_inbox.unwrap_or(options.on_damaged_inbox);
    executor.configured(options, resume.checkpoint_config.clone().or_else(|| engine.checkpoint_config().cloned()))
}

/// Runs the executor and records how it ended.
async fn drive(driver: Driver, executor: Arc<dyn Executor>, input: Input, keeper: Keeper) -> Result<RunReport> {
    let run = AssertUnwindSafe(executor.run(&driver, input)).catch_unwind();
    let ended = run.await.unwrap_or_else(|panic| {
        let message = format!("the executor panicked: {}", panic_text(panic.as_ref()));
        Err(Error::new(ErrorKind::StepFailed, message))
    });
    let report = driver.finish(ended).await;
    drop(keeper);
    lease::release(driver.engine(), &driver.shared.lease).await;
    report.map_err(|error| error.during("run").on(driver.session()))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Driver {
    /// Records how the run ended; everything is on disk when it returns.
    async fn finish(&self, ended: Result<End>) -> Result<RunReport> {
        let (end, error) = match ended {
            Ok(end) => (end, None),
            // There is nothing to write with any more.
            Err(error) if self.has_no_pen().await => return Err(self.cut_off(error).await),
            Err(error) => (self.end_of(&error).await?, Some(error)),
        };
        let mut record =
            RunEnded { reason: shortened(end.reason.clone()), ..RunEnded::new(self.run().clone(), end.outcome) };
        let failed = end.outcome == RunOutcome::Failed;
        let code = error.as_ref().map(Error::code);
        let code = code.or_else(|| failed.then(|| Error::new(ErrorKind::StepFailed, "").code()));
        record.code = code.map(str::to_owned);
        let mut records = Vec::new();
        if end.outcome == RunOutcome::Cancelled {
            records.extend(self.close_waits().await);
        }
        records.push(record.into());
        if self.read(|state| state.register(STOPPING).is_some()).await {
            records.push(RegisterUnset::new(register(STOPPING)?).into());
        }
        {
            let mut core = self.shared.core.lock().await;
            core.ledger_changed = true;
            core.stage_ledger()?;
            let fresh = std::mem::take(&mut core.fresh);
            let unbegun = not_started(&core.state, fresh);
            core.stage(unbegun)?;
            core.stage(records)?;
            if let Some(checkpoint) = end.checkpoint.clone() {
                self.stage_checkpoint_in(&mut core, checkpoint)?;
            }
        }
        if let Err(failure) = self.flush().await {
            // What ended the run says more than that its end could not be written.
            return Err(self.cut_off(error.unwrap_or(failure)).await);
        }
        self.apply_retention().await;
        let report = self.report(end).await;
        match error {
            Some(error) if report.outcome == RunOutcome::Failed => Err(self.redactor().error(error)),
            error => Ok(RunReport { cause: error.map(|error| error.kind().clone()), ..report }),
        }
    }

    /// Whether nothing can be recorded any more: the session is somebody else's, or its store failed.
    async fn has_no_pen(&self) -> bool {
        self.control().lost().is_some() || self.shared.core.lock().await.writer.has_failed()
    }

    /// How a run ends that hit an error: a spent budget can be raised, so the run can go on.
    async fn end_of(&self, error: &Error) -> Result<End> {
        let outcome = match error.kind() {
            ErrorKind::BudgetSpent { .. } => RunOutcome::Paused,
            _ => RunOutcome::Failed,
        };
        self.mark_unclean().await;
        let descriptor = &self.shared.descriptor;
        let (kind, step) = (descriptor.checkpoint_type(), self.read(|state| descriptor.step(state)).await);
        let checkpoint = NewCheckpoint {
            trigger: CheckpointTrigger::Error,
            ..NewCheckpoint::auto(kind, step.unwrap_or_default(), shortened(error.message().to_owned()))
        };
        self.stage_checkpoint(checkpoint).await?;
        Ok(End::new(outcome, error.message()))
    }

    async fn close_waits(&self) -> Vec<Record> {
        self.read(|state| state.waits().map(crate::wait::cancelled).collect()).await
    }

    async fn report(&self, end: End) -> RunReport {
        let core = self.shared.core.lock().await;
        let verbatim = self.shared.descriptor.returns_value();
        let said = |value: Json| if verbatim { value } else { self.redactor().texts(value) };
        RunReport {
            session: self.session().clone(),
            branch: self.branch().clone(),
            run: self.run().clone(),
            outcome: end.outcome,
            reason: self.redactor().text(end.reason),
            answer: end.answer.map(|answer| self.redactor().message(answer)),
            value: end.value.or_else(|| core.told.clone()).map(said),
            head: core.writer.head(),
            spent: core.ledger.turn,
            waits: core.state.waits().map(|wait| wait.opened.clone()).collect(),
            degraded: core.degraded,
            cause: None,
        }
    }

    /// Prunes what the policy lets go. That it fails is no reason for the run to fail.
    async fn apply_retention(&self) {
        let Some(policy) = &self.options().retention else { return };
        let journal = self.engine().journal();
        let own = Some(&self.shared.lease);
        let pruned = async {
            let plan = journal.plan_prune(self.session(), policy, own).await?;
            journal.apply_prune(self.session(), plan, own).await
        };
        if let Err(error) = pruned.await {
            self.say(|| LiveKind::Notice(format!("retention failed: {error}")));
        }
    }
}

/// The outcomes of calls that were intended and never begun: nothing about them is in doubt.
fn not_started(state: &State, fresh: HashSet<EffectId>) -> Vec<Record> {
    let open = fresh.iter().filter_map(|effect| state.effect(effect)).filter(|effect| !effect.is_settled());
    open.map(|effect| {
        let outcome = EffectOutcome::new(effect.intent.effect.clone(), OutcomeStatus::InfraError, None);
        let error = Some("the run ended before the call began".to_owned());
        EffectOutcome { attempt: effect.intent.attempt, error, ..outcome }.into()
    })
    .collect()
}
