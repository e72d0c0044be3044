//! Durable steps in plain Rust. A flow is a function; each of its steps runs once, whatever
//! happens to the process, and gives back its recorded result when the function runs again.

mod context;
mod descriptor;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rekindle_core::record::{CheckpointType, RegisterSet, RunOutcome};
use rekindle_core::{Journal, Json, Record, Result, State};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use context::FlowContext;
pub(crate) use descriptor::FlowDescriptor;

use self::context::Progress;
use super::{Descriptor, Executor, Input};
use crate::driver::{
    Driver, End, Fingerprint, NewCheckpoint, ResumeOptions, RunHandle, RunOptions, RunReport, Stop, register, start,
};
use crate::session::Session;

/// The register that says where a flow stands.
const REGISTER: &str = "flow";

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
///
/// A function that uses a client or a pool clones it for each run: the function may run again.
///
/// ```
/// # use rekindle::Flow;
/// # let pool = std::sync::Arc::new(());
/// let flow = Flow::new("import", move |ctx, file: String| {
///     let pool = pool.clone();
///     async move {
///         let rows: u64 = ctx.step("load", &file, async |_| Ok(std::sync::Arc::strong_count(&pool) as u64)).await?;
///         Ok(rows)
///     }
/// });
/// # let _ = flow;
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
    /// The step that failed the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// How often steps were made anew.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    anew: BTreeMap<String, u32>,
}

impl FlowState {
    fn record(&self) -> Result<Record> {
        Ok(RegisterSet::new(register(REGISTER)?, Json::of(self)?).into())
    }
}

impl Flow {
    /// A flow of that name. The function must ask for the same steps in the same circumstances;
    /// what it does outside of steps is repeated at each resume. A run whose function stands in a
    /// wait, with no step under way, ends until the answer comes: whatever else the function awaits
    /// meanwhile does not keep it.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// How its runs behave.
    pub fn options(&self) -> &RunOptions {
        &self.inner.options
    }

    /// Starts it.
    pub async fn run<I: Serialize>(&self, input: &I, session: &Session) -> Result<RunHandle> {
        self.run_with(Json::of(input)?, session, ResumeOptions::default()).await
    }

    /// Starts it, with what else is to be said.
    pub async fn run_with(&self, input: Json, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Input::Value(input), session, options).await
    }

    /// Starts it and waits for its end.
    pub async fn run_once<I: Serialize>(&self, input: &I, session: &Session) -> Result<RunReport> {
        self.run(input, session).await?.report().await
    }

    /// Goes on with an unfinished run.
    pub async fn resume(&self, session: &Session) -> Result<RunHandle> {
        self.resume_with(session, ResumeOptions::default()).await
    }

    /// Goes on with an unfinished run, with what is to be said about it.
    pub async fn resume_with(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Input::Resume, session, options).await
    }

    async fn start(&self, input: Input, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        start(session.engine(), session.key(), self.executor(), input, self.inner.options.clone(), options).await
    }

    /// Returns its executor, for [`crate::operations::start`], [`crate::operations::resume`] and workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }
}

#[async_trait]
impl Executor for Inner {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(FlowDescriptor)
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new().with("flow", &self.name)
    }

    fn closing(&self, state: &State, _journal: &Journal) -> Result<Vec<Record>> {
        Ok(state.waits().map(crate::wait::cancelled).collect())
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        let mut flow = driver.register::<FlowState>(REGISTER).await?.unwrap_or_default();
        if let Input::Value(input) = input {
            flow = FlowState { turn: flow.turn + 1, input: Some(input), ..FlowState::default() };
            driver.begin_turn().await;
            driver.commit(vec![flow.record()?]).await?;
        }
        if let Some(step) = flow.failed.take() {
            *flow.anew.entry(step).or_default() += 1;
            driver.stage(vec![flow.record()?]).await?;
        }
        driver.commit_staged().await?;
        driver.barrier().await?;
        driver.begin_step();
        let anew = Arc::new(flow.anew.clone());
        let (ended, progress) = loop {
            let decided = driver.decided_waits().await;
            let context =
                FlowContext { driver: driver.clone(), turn: flow.turn, anew: anew.clone(), shared: Arc::default() };
            let progress = Arc::clone(&context.shared);
            let body = (self.body)(context, flow.input.clone().unwrap_or_else(Json::null));
            match until_still(body, &progress, driver).await? {
                Stand::Ended(ended) => break (ended, progress),
                // An answer that arrived while the body came to a stop was taken from the inbox already:
                // nobody would wake the session for it. The body runs again and finds it.
                Stand::Still(end)
                    if end.outcome == RunOutcome::Waiting && !driver.decided_waits().await.is_subset(&decided) => {}
                Stand::Still(end) => return Ok(*end),
            }
        };
        let value = match ended {
            Ok(value) => value,
            Err(error) => {
                flow.failed = progress.inner().failed.clone();
                driver.stage(vec![flow.record()?]).await?;
                return Err(error);
            }
        };
        flow.done = true;
        driver.stage(vec![flow.record()?]).await?;
        let description = format!("flow `{}` ended", self.name);
        let checkpoint = Some(NewCheckpoint::auto(CheckpointType::Turn, flow.turn, description));
        Ok(End { value: Some(value), checkpoint, ..End::new(RunOutcome::Succeeded, "the flow came to its end") })
    }
}

/// How a body came to a stop.
enum Stand {
    /// At its end.
    Ended(Result<Json>),
    /// It stands still, and the run ends like this.
    Still(Box<End>),
}

async fn until_still(body: BoxFuture<'static, Result<Json>>, progress: &Progress, driver: &Driver) -> Result<Stand> {
    tokio::pin!(body);
    loop {
        tokio::select! {
            biased;
            ended = &mut body => return Ok(Stand::Ended(ended)),
            () = progress.changed.notified() => {
                if let Some(end) = stands_still(progress, driver) {
                    return Ok(Stand::Still(Box::new(end)));
                }
            }
            stop = stop_requested(driver) => return stop.map(|end| Stand::Still(Box::new(end))),
        }
    }
}

/// How the run ends if its body stands still and no step is under way.
fn stands_still(progress: &Progress, driver: &Driver) -> Option<End> {
    let inner = progress.inner();
    let still = inner.stopped || inner.waits.is_some();
    if !still || inner.running > 0 {
        return None;
    }
    match (&inner.waits, driver.stopping()) {
        (Some(what), None) => Some(End::new(RunOutcome::Waiting, what.clone())),
        _ => Some(stop_end(driver)),
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
