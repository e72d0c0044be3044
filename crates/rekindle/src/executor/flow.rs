//! Durable steps in plain Rust. A flow is a function; each of its steps runs once, whatever
//! happens to the process, and gives back its recorded result when the function runs again.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rekindle_core::record::{
    CheckpointType, EffectKind, EffectOutcome, Extra, InDoubtPolicy, OutcomeStatus, RegisterSet, RunOutcome, Usage,
    WaitCloseReason, WaitClosed,
};
use rekindle_core::{EffectId, Error, ErrorKind, Journal, Json, Record, Result, State};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Executor, Input};
use crate::driver::{
    Attempt, Driver, Effect, End, Fingerprint, Known, NewCheckpoint, OnWait, Performed, ResumeOptions, RunHandle,
    RunOptions, RunReport, Stop, Tried, WaitPurpose, register, start,
};
use crate::message::Message;
use crate::session::Session;
use crate::tool::Retries;
use crate::wait::{Verdict, WaitSpec};

/// The register that says where a flow stands.
const REGISTER: &str = "flow";
pub(crate) const KIND: &str = "flow";

type Body = dyn Fn(FlowContext, Json) -> BoxFuture<'static, Result<Json>> + Send + Sync;

/// A function whose steps are durable.
///
/// ```
/// use rekindle::{Engine, Flow, Json};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// let report = Flow::new("report", async |ctx, month: String| {
///     // Each step runs once, even if the process dies in between.
///     let rows: u64 = ctx.step("fetch", &month, async |_| Ok(31)).await?;
///     let link: String = ctx.step("upload", &rows, async |call| {
///         Ok(format!("https://example.com/{}", call.idempotency_key))
///     }).await?;
///     Ok(format!("{rows} rows at {link}"))
/// });
///
/// let session = Engine::memory()?.create("report-may").await?;
/// let done = report.run_once(&"may".to_string(), &session).await?;
/// assert!(done.value.unwrap().as_str().contains("31 rows"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Flow {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    body: Box<Body>,
    options: RunOptions,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct FlowState {
    #[serde(default)]
    turn: u64,
    input: Option<Json>,
    #[serde(default)]
    done: bool,
}

/// An error if a flow could not read `value` in the register `key`. Registers that are none of its
/// own take anything.
pub(crate) fn check_register(key: &str, value: &Json) -> Result<()> {
    if key == REGISTER { value.decode::<FlowState>().map(drop) } else { Ok(()) }
}

/// Whether a flow has not come to its end, as far as the state says.
pub(crate) fn is_mid_turn(state: &State) -> bool {
    let flow = state.register(REGISTER).and_then(|json| json.decode::<FlowState>().ok());
    flow.is_some_and(|flow| !flow.done)
}

impl Flow {
    /// A flow of that name. The function must ask for the same steps in the same circumstances;
    /// what it does outside of steps is repeated at each resume.
    pub fn new<I, O, F, Fut>(name: impl Into<String>, body: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(FlowContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        let body: Box<Body> = Box::new(move |context, input: Json| match input.decode::<I>() {
            Ok(input) => {
                let running = body(context, input);
                Box::pin(async move { Json::of(&running.await?) })
            }
            Err(error) => Box::pin(async move { Err(error) }),
        });
        Self { inner: Arc::new(Inner { name: name.into(), body, options: RunOptions::default() }) }
    }

    /// How its runs behave.
    #[must_use]
    pub fn with_options(self, options: RunOptions) -> Self {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => Self { inner: Arc::new(Inner { options, ..inner }) },
            // Somebody shares it: what they run stays as it was.
            Err(inner) => {
                let shared = Arc::clone(&inner);
                let body: Box<Body> = Box::new(move |context, input| (shared.body)(context, input));
                Self { inner: Arc::new(Inner { name: inner.name.clone(), body, options }) }
            }
        }
    }

    /// Starts it.
    pub async fn run<I: Serialize>(&self, input: &I, session: &Session) -> Result<RunHandle> {
        let message = Message::user(Json::of(input)?.as_str());
        self.start(vec![message], session, ResumeOptions::default()).await
    }

    /// Starts it and waits for its end.
    pub async fn run_once<I: Serialize>(&self, input: &I, session: &Session) -> Result<RunReport> {
        self.run(input, session).await?.report().await
    }

    /// Goes on with an unfinished run.
    pub async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Vec::new(), session, options).await
    }

    async fn start(&self, input: Vec<Message>, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        start(session.engine(), session.key(), self.executor(), input, self.inner.options.clone(), options).await
    }

    /// It as an executor.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }
}

/// What a flow works with. Cheap to clone; steps may run at the same time.
#[derive(Clone, Debug)]
pub struct FlowContext {
    driver: Driver,
    turn: u64,
    shared: Arc<Progress>,
}

/// How far the body is, as its run sees it.
#[derive(Debug, Default)]
struct Progress {
    inner: Mutex<ProgressInner>,
    /// Something changed that may mean that nothing can go on.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ProgressInner {
    names: HashSet<String>,
    /// Steps under way.
    running: usize,
    /// What the body waits for; it stands still there.
    waits: Option<String>,
    /// The run is to stop, and the body stands still before a step.
    stopped: bool,
}

impl Progress {
    fn inner(&self) -> MutexGuard<'_, ProgressInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body stands still here, for the rest of this run.
    async fn stand_still<T>(&self, note: impl FnOnce(&mut ProgressInner)) -> T {
        note(&mut self.inner());
        self.changed.notify_one();
        std::future::pending().await
    }
}

/// A step under way.
struct Running(Arc<Progress>);

impl Running {
    fn begin(progress: &Arc<Progress>) -> Self {
        progress.inner().running += 1;
        Self(Arc::clone(progress))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.inner().running -= 1;
        self.0.changed.notify_one();
    }
}

impl FlowContext {
    /// Runs `work` once and records its result; when the flow runs again, gives back what was
    /// recorded. The intent is on disk before it starts; if the process dies meanwhile, it runs
    /// again with the same idempotency key.
    pub async fn step<I, T, F, Fut>(&self, name: &str, input: &I, work: F) -> Result<T>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.step_with(name, input, InDoubtPolicy::Idempotent, Retries::default(), work).await
    }

    /// The same, with what to do if the process dies meanwhile, and how failures that may pass
    /// are tried again.
    pub async fn step_with<I, T, F, Fut>(
        &self,
        name: &str,
        input: &I,
        policy: InDoubtPolicy,
        retries: Retries,
        work: F,
    ) -> Result<T>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let effect = self.effect(name, Json::of(input)?, policy, retries)?;
        self.check_doubt(&effect).await?;
        self.check_stop().await?;
        let _running = Running::begin(&self.shared);
        let tried = |attempt: Attempt| {
            let running = work(attempt);
            async move {
                match running.await.and_then(|value| Json::of(&value)) {
                    Ok(value) => Tried::Ok { value, usage: Usage::default(), records: Vec::new(), extra: Extra::new() },
                    Err(error) if error.retry() == rekindle_core::Retry::Later => {
                        Tried::Passing { value: Json::null(), error: error.to_string(), after: None }
                    }
                    Err(error) => Tried::Failed { value: Json::null(), error: error.to_string() },
                }
            }
        };
        match self.driver.perform(&effect, tried).await? {
            Performed::Settled(outcome) => decode_outcome(name, outcome),
            Performed::Open(why) | Performed::InDoubt(why) => Err(failed(name, &why)),
        }
    }

    /// Waits for a person, a signal or a time, over restarts.
    pub async fn wait(&self, name: &str, spec: &WaitSpec) -> Result<Json> {
        let effect = self.effect(name, Json::from(spec.prompt.as_str()), InDoubtPolicy::ReplaySafe, Retries::none())?;
        loop {
            if let Known::Settled(outcome) = self.driver.known(&effect).await? {
                return decode_outcome(name, outcome);
            }
            match self.driver.wait_of(&effect.id).await {
                None => self.open_wait(&effect, spec).await?,
                Some(wait) => {
                    if let Some((verdict, closed)) = self.driver.verdict(&wait)? {
                        self.close_wait(&effect, verdict, closed).await?;
                        continue;
                    }
                }
            }
            self.hold(name).await?;
        }
    }

    /// Sleeps, over restarts.
    pub async fn sleep(&self, name: &str, duration: Duration) -> Result<()> {
        self.wait(name, &WaitSpec::timer(duration)).await.map(drop)
    }

    /// Marks where the flow is now.
    pub async fn checkpoint(&self, description: &str) -> Result<rekindle_core::CheckpointId> {
        self.driver.checkpoint(NewCheckpoint::manual(description)).await
    }

    /// A key of the session's memory.
    pub async fn memory(&self, key: &str) -> Option<Json> {
        self.driver.memory(key).await
    }

    /// The value of a secret that was given by reference.
    pub async fn secret(&self, name: &str) -> Result<crate::Secret> {
        self.driver.secret(name).await
    }

    fn effect(&self, name: &str, input: Json, policy: InDoubtPolicy, retries: Retries) -> Result<Effect> {
        if !self.shared.inner().names.insert(name.to_owned()) {
            return Err(Error::invalid(format!("the flow has two steps named `{name}`"))
                .hint("give each step its own name, e.g. with a number in a loop"));
        }
        Ok(Effect {
            id: EffectId::new(format!("f{}.{name}", self.turn))?,
            kind: EffectKind::Step,
            name: name.to_owned(),
            version: None,
            hash: crate::wait::digest(&input)?,
            arguments: Some(input),
            policy,
            step: Some(name.to_owned()),
            child: None,
            retries,
            settles_when_exhausted: true,
            alongside: Vec::new(),
        })
    }

    /// No step begins once the run is to stop.
    async fn check_stop(&self) -> Result<()> {
        if self.driver.proceed().await?.is_none() {
            return Ok(());
        }
        self.shared.stand_still(|progress| progress.stopped = true).await
    }

    async fn check_doubt(&self, effect: &Effect) -> Result<()> {
        let known = self.driver.known(effect).await?;
        let must_not = matches!(effect.policy, InDoubtPolicy::Never | InDoubtPolicy::Ask | InDoubtPolicy::Check);
        if matches!(known, Known::InDoubt(_)) && must_not {
            let message = format!("nobody knows whether step `{}` happened: its process died", effect.name);
            let hint = format!("find out, then settle effect `{}` by hand and resume", effect.id);
            return Err(Error::new(ErrorKind::InDoubt, message).hint(hint));
        }
        Ok(())
    }

    async fn open_wait(&self, effect: &Effect, spec: &WaitSpec) -> Result<()> {
        let mut records = Vec::new();
        if matches!(self.driver.known(effect).await?, Known::New) {
            records.push(self.driver.intent(effect, 1).into());
        }
        let opening = self.driver.opening(spec, Some(effect.id.clone()), WaitPurpose::Result, 0).await?;
        records.extend(opening.1);
        self.driver.commit(records).await
    }

    async fn close_wait(&self, effect: &Effect, verdict: Verdict, closed: Record) -> Result<()> {
        let (status, value) = match verdict {
            Verdict::Answered(value) => (OutcomeStatus::Ok, value),
            Verdict::Approved { arguments } => (OutcomeStatus::Ok, arguments.unwrap_or(Json::parse("true")?)),
            Verdict::Rejected { reason } => (OutcomeStatus::ToolError, Json::from(reason.as_str())),
            Verdict::Expired => (OutcomeStatus::ToolError, Json::from("nobody answered in time")),
        };
        let mut outcome = EffectOutcome::new(effect.id.clone(), status, Some(value.clone()));
        outcome.error = (status != OutcomeStatus::Ok).then(|| value.decode().unwrap_or_default());
        self.driver.commit(vec![closed, outcome.into()]).await
    }

    /// Stays until something happens, or has the run end until then. The body never hears of it.
    async fn hold(&self, name: &str) -> Result<()> {
        let stopping = self.driver.proceed().await?.is_some();
        if !stopping && self.driver.options().on_wait == OnWait::Hold {
            self.driver.hold().await?;
            return self.driver.proceed().await.map(drop);
        }
        let what = format!("the flow waits for `{name}`");
        self.shared.stand_still(|progress| progress.waits = Some(what)).await
    }
}

fn decode_outcome<T: DeserializeOwned>(name: &str, outcome: EffectOutcome) -> Result<T> {
    match (outcome.status, outcome.value) {
        // A stored `null` comes back as nothing at all.
        (OutcomeStatus::Ok, value) => value.unwrap_or_else(Json::null).decode(),
        _ => Err(failed(name, outcome.error.as_deref().unwrap_or("it did not succeed"))),
    }
}

fn failed(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::StepFailed, format!("step `{name}` failed: {why}"))
}

#[async_trait]
impl Executor for Inner {
    fn kind(&self) -> &str {
        KIND
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new().with("flow", &self.name)
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        is_mid_turn(state)
    }

    fn reads_messages(&self) -> bool {
        false
    }

    fn has_queued(&self, _state: &State) -> bool {
        false
    }

    fn closing(&self, state: &State, _journal: &Journal) -> Result<Vec<Record>> {
        let close = |wait: &rekindle_core::WaitState| {
            WaitClosed::new(wait.opened.wait.clone(), WaitCloseReason::Cancelled, None).into()
        };
        Ok(state.waits().map(close).collect())
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        let mut flow = driver.register::<FlowState>(REGISTER).await?.unwrap_or_default();
        if let Input::NewTurn(messages) = input {
            let text = messages.first().map(Message::text).unwrap_or_default();
            flow = FlowState { turn: flow.turn + 1, input: Some(Json::parse(text)?), done: false };
            driver.begin_turn().await;
            driver.commit(vec![RegisterSet::new(register(REGISTER)?, Json::of(&flow)?).into()]).await?;
        }
        driver.commit_staged().await?;
        driver.barrier().await?;
        driver.begin_step();
        let context = FlowContext { driver: driver.clone(), turn: flow.turn, shared: Arc::default() };
        let progress = Arc::clone(&context.shared);
        let body = (self.body)(context, flow.input.clone().unwrap_or_else(Json::null));
        tokio::pin!(body);
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut body => break ended,
                () = progress.changed.notified() => {
                    if let Some(end) = stands_still(&progress, driver) {
                        return Ok(end);
                    }
                }
                stop = stop_requested(driver) => return stop,
            }
        };
        let value = ended?;
        flow.done = true;
        driver.stage(vec![RegisterSet::new(register(REGISTER)?, Json::of(&flow)?).into()]).await?;
        let description = format!("flow `{}` ended", self.name);
        driver.stage_checkpoint(NewCheckpoint::auto(CheckpointType::Turn, flow.turn, description)).await?;
        Ok(End { value: Some(value), ..End::new(RunOutcome::Succeeded, "the flow came to its end") })
    }
}

/// How the run ends if its body stands still and no step is under way.
fn stands_still(progress: &Progress, driver: &Driver) -> Option<End> {
    let inner = progress.inner();
    match (&inner.waits, inner.stopped, inner.running) {
        (_, true, 0) => Some(stop_end(driver)),
        (Some(what), false, 0) => Some(End::new(RunOutcome::Waiting, what.clone())),
        _ => None,
    }
}

/// Resolves when the run is to stop and its calls had their time.
async fn stop_requested(driver: &Driver) -> Result<End> {
    driver.step_token().cancelled().await;
    driver.proceed().await?;
    Ok(stop_end(driver))
}

fn stop_end(driver: &Driver) -> End {
    match driver.stopping() {
        Some(Stop::Cancel) => End::new(RunOutcome::Cancelled, "the run was cancelled"),
        _ => End::new(RunOutcome::Paused, "the run was paused"),
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
