//! The plan executor: steps that call tools, in the order their dependencies demand. Each step is
//! an effect; what is completed is never carried out again.

mod builder;
mod check;
mod child;
mod descriptor;
mod schedule;
mod shape;
mod spec;
pub(crate) mod state;
mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rekindle_core::record::{OutcomeStatus, RegisterSet, RunOutcome};
use rekindle_core::{EffectId, EffectState, Hash, Journal, Json, Record, Result, SessionHeader, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use builder::PlanBuilder;
pub(crate) use descriptor::PlanDescriptor;
pub use spec::{PlanSpec, RetrySpec, StepSpec};
pub use state::{LastError, StepResult, StepStatus};
pub use view::{PlanResult, PlanState, PlanSummary, StepView};

use self::check::Step;
use self::schedule::Schedule;
use self::state::PlanRegister;
use super::{Descriptor, Executor, Input, check_kind, unfit};
use crate::driver::{
    Driver, End, Fingerprint, MEMORY, ResumeOptions, RunHandle, RunOptions, RunReport, register, start,
};
use crate::engine::Engine;
use crate::session::Session;

/// How many steps run at once unless the plan says otherwise.
const PARALLEL: usize = 8;

/// A plan: steps that call tools, in the order their dependencies demand. Cheap to clone.
///
/// ```
/// use rekindle::schemars::{self, JsonSchema};
/// use rekindle::tool::tool;
/// use rekindle::{Engine, Plan};
/// use rekindle::plan::StepSpec;
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Pair { a: i64, b: i64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// let add = tool("add", "Adds.", async |_, pair: Pair| Ok(pair.a + pair.b));
/// let plan = Plan::builder("sums")
///     .tool(add)
///     .step(StepSpec::new("left", "add").with("a", 1).with("b", 2))
///     .step(StepSpec::new("right", "add").with("a", 3).with("b", 4))
///     .step(StepSpec::new("both", "add").after(["left", "right"])
///         .with("a", "${steps.left.output}").with("b", "${steps.right.output}"))
///     .build()?;
///
/// let session = Engine::memory()?.create("sums-1").await?; // Engine::open("sqlite:./plans.db")? outlives the process
/// let result = plan.run_once("add them all", &session).await?;
/// assert!(result.success);
/// assert_eq!(result.state.output("both").unwrap().as_str(), "10");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Plan {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    spec: PlanSpec,
    steps: Vec<Step>,
    index: HashMap<String, usize>,
    options: RunOptions,
    /// Made once: it is asked for whenever a run begins.
    print: OnceLock<Fingerprint>,
}

/// What a run of a plan begins with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanInput {
    /// The request; the plan's own unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Working memory beside the plan's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
}

impl PlanInput {
    /// A request.
    pub fn query(query: impl Into<String>) -> Self {
        Self { query: Some(query.into()), ..Self::default() }
    }

    /// With a key of the working memory.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }
}

impl From<&str> for PlanInput {
    fn from(query: &str) -> Self {
        Self::query(query)
    }
}

impl Plan {
    /// A new plan of that name.
    pub fn builder(name: impl Into<String>) -> PlanBuilder {
        Self::from_spec(PlanSpec { name: name.into(), ..PlanSpec::default() })
    }

    /// A plan as it was written down; it still needs its tools.
    pub fn from_spec(spec: PlanSpec) -> PlanBuilder {
        PlanBuilder::new(spec)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.spec.name
    }

    /// How its runs behave.
    pub fn options(&self) -> &RunOptions {
        &self.inner.options
    }

    /// As it was written down.
    pub fn spec(&self) -> &PlanSpec {
        &self.inner.spec
    }

    /// Creates a session that says it is this plan's, so that it can be found by it.
    pub async fn create_session(&self, engine: &Engine, id: &str) -> Result<Session> {
        let header = SessionHeader { agent: Some(self.name().to_owned()), ..SessionHeader::new(engine.key(id)?) };
        engine.create_with(header).await
    }

    /// Starts it. An error if the session has an unfinished run: it says how to go on.
    pub async fn run(&self, input: impl Into<PlanInput>, session: &Session) -> Result<RunHandle> {
        self.run_with(input, session, ResumeOptions::default()).await
    }

    /// Starts it, with what else is to be said.
    pub async fn run_with(
        &self,
        input: impl Into<PlanInput>,
        session: &Session,
        options: ResumeOptions,
    ) -> Result<RunHandle> {
        self.start(Input::Value(Json::of(&input.into())?), session, options).await
    }

    /// Starts it and waits for its end.
    pub async fn run_once(&self, input: impl Into<PlanInput>, session: &Session) -> Result<PlanResult> {
        let report = self.run(input, session).await?.report().await?;
        self.result(session, report).await
    }

    /// Goes on with an unfinished run: completed steps are skipped, failed ones tried anew.
    pub async fn resume(&self, session: &Session) -> Result<RunHandle> {
        self.resume_with(session, ResumeOptions::default()).await
    }

    /// Goes on with an unfinished run, with what is to be said about it.
    pub async fn resume_with(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Input::Resume, session, options).await
    }

    /// Goes on with an unfinished run and waits for its end.
    pub async fn resume_once(&self, session: &Session) -> Result<PlanResult> {
        let report = self.resume(session).await?.report().await?;
        self.result(session, report).await
    }

    /// What came of a run that has ended.
    pub async fn result(&self, session: &Session, report: RunReport) -> Result<PlanResult> {
        let restored = session.engine().journal().load(session.key(), Some(&report.position())).await?;
        PlanResult::new(self.inner.view(&restored.state)?, report)
    }

    /// How far it is, as a state says.
    pub fn state(&self, state: &State) -> Result<PlanState> {
        self.inner.view(state)
    }

    async fn start(&self, input: Input, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        start(session.engine(), session.key(), self.executor(), input, self.inner.options.clone(), options).await
    }

    /// Returns its executor, for [`crate::operations::start`], [`crate::operations::resume`] and workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }
}

/// The effect of a step. One that failed is made anew, as another effect with the same key.
pub(crate) fn effect(turn: u64, step: &str, failures: u32) -> Result<EffectId> {
    match failures {
        0 => EffectId::new(format!("p{turn}.{step}")),
        _ => EffectId::new(format!("p{turn}.{step}~{failures}")),
    }
}

impl Inner {
    fn new_fingerprint(&self) -> Fingerprint {
        let mut print = Fingerprint::new().with("plan", &self.spec.name);
        for step in &self.steps {
            let text = serde_json::to_string(&step.spec).unwrap_or_default();
            print = print.with(format!("step {}", step.spec.id), Hash::of(text.as_bytes()).short());
            let name = format!("tool {}", step.spec.action);
            if !print.has(&name) {
                print = print.with_hash_of(name, step.entry.print().as_bytes());
            }
        }
        print
    }

    fn parallel(&self) -> usize {
        self.spec.parallel.unwrap_or(PARALLEL).max(1)
    }

    fn is_risky(&self, step: &str) -> bool {
        let step = self.index.get(step).map(|number| &self.steps[*number]);
        step.is_some_and(|step| step.spec.risky || step.entry.tool.options().risky)
    }

    /// The input that a value stands for: all of it, or the request alone.
    fn input_of(&self, value: &Json) -> Result<PlanInput> {
        let input = value.decode().or_else(|_| value.decode::<String>().map(PlanInput::query));
        input.map_err(|error| unfit("plan", &self.spec.name, error))
    }

    /// The records a turn begins with.
    async fn begin(&self, driver: &Driver, input: PlanInput) -> Result<PlanRegister> {
        let (before, results, set) = driver
            .read(|state| {
                let set: HashSet<String> = state.registers_under(MEMORY).map(|(key, _)| key.to_string()).collect();
                (PlanRegister::load(state), state.log(&state::results()).len(), set)
            })
            .await;
        let at = PlanRegister {
            turn: before?.turn + 1,
            query: input.query.unwrap_or_else(|| self.spec.query.clone()),
            results_from: results,
            ..PlanRegister::default()
        };
        let mut records = vec![at.record()?];
        // What was set explicitly for this run counts more than what the plan begins with.
        let own = self.spec.context.iter().filter(|(key, _)| !set.contains(&format!("{MEMORY}{key}")));
        for (key, value) in own.chain(&input.context) {
            let key = register(&format!("{MEMORY}{key}"))?;
            records.push(RegisterSet::new(key, Json::from(value.clone())).into());
        }
        driver.begin_turn().await;
        driver.stage_beginning(records).await?;
        driver.commit_staged().await?;
        Ok(at)
    }
}

/// Whether a call that was intended certainly did not happen.
fn is_not_done(open: &EffectState) -> bool {
    open.outcome.as_ref().is_some_and(|outcome| outcome.status == OutcomeStatus::InfraError)
}

/// The records that clear what an earlier turn left in the session's memory.
pub(crate) fn clear_memory(state: &State) -> Vec<Record> {
    let keys = state.registers().map(|(key, _)| key).filter(|key| key.as_str().starts_with(MEMORY));
    keys.map(|key| rekindle_core::record::RegisterUnset::new(key.clone()).into()).collect()
}

#[async_trait]
impl Executor for Inner {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(PlanDescriptor)
    }

    fn check_input(&self, input: &Input, _set: &[&str]) -> Result<()> {
        match input {
            Input::Value(value) => self.input_of(value).map(drop),
            _ => check_kind(&PlanDescriptor, input),
        }
    }

    fn reads(&self) -> Vec<String> {
        let references = self.steps.iter().flat_map(|step| step.parameters.references());
        let context = references.filter(|reference| reference.root() == "context");
        context.filter_map(|reference| reference.name()).map(str::to_owned).collect()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.print.get_or_init(|| self.new_fingerprint()).clone()
    }

    fn check(&self, state: &State, _set: &[&str]) -> Result<()> {
        let at = PlanRegister::load(state)?;
        for result in at.results(state) {
            let id = result.decode::<StepResult>()?.step_id;
            if !self.index.contains_key(&id) {
                return Err(check::no_step(&id).hint("bring the step back, or start the plan in a new session"));
            }
        }
        // What may have happened must not be forgotten with its step.
        for open in state.open_effects().filter(|open| !is_not_done(open)) {
            if let Some(step) = open.intent.step.as_deref().filter(|step| !self.index.contains_key(*step)) {
                let hint = format!("bring the step back, or settle effect `{}` by hand", open.intent.effect);
                return Err(check::no_step(step).hint(hint));
            }
        }
        Ok(())
    }

    fn closing(&self, state: &State, journal: &Journal) -> Result<Vec<Record>> {
        let mut records = PlanDescriptor.closing(state, journal, "")?;
        // What was set before the first turn is meant for it.
        if PlanRegister::load(state)?.turn > 0 {
            records.extend(clear_memory(state));
        }
        Ok(records)
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        let at = match input {
            Input::Value(value) => self.begin(driver, self.input_of(&value)?).await?,
            Input::Messages(_) | Input::Resume => driver.read(PlanRegister::load).await?,
        };
        if at.turn == 0 || at.done {
            let reason = "the run had not begun when its process ended: start it again";
            return Ok(End::new(RunOutcome::Cancelled, reason));
        }
        if driver.stopping().is_none() {
            driver.commit_staged().await?;
        }
        driver.begin_step();
        Schedule::load(self, driver, at).await?.go().await
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
