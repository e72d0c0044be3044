//! The graph executor: nodes that do something, and edges that say what comes next. Memory,
//! conversations, outputs, visit counts and budgets stand in one journal, so that every position
//! holds all of them.

mod agent_node;
mod builder;
mod call_node;
mod check;
mod child;
mod condition;
mod descriptor;
mod draw;
mod join;
mod node;
mod output;
mod run;
mod spec;
mod spec_builder;
pub(crate) mod state;
mod view;
mod visit;
mod wait;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rekindle_core::record::{Durability, RegisterSet, RunOutcome};
use rekindle_core::{Error, ErrorKind, Hash, Journal, Json, Record, Result, SessionHeader, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::driver::CheckpointConfig;
pub use builder::GraphBuilder;
pub use condition::{Condition, Test};
pub(crate) use descriptor::GraphDescriptor;
pub use draw::Trail;
pub use node::GraphMemory;
pub use spec::{EdgeSpec, GraphSpec, Merge, NodeSpec, WaitNode, Work};
pub use state::{GraphMetrics, Visited};
pub use view::{GraphResult, GraphState, GraphSummary, StrandStatus, StrandView};

use self::join::Reducer;
use self::node::{Node, Prepared};
use self::run::{Run, leftovers};
use self::state::{GraphRegister, METRICS, OVERLAY, Phase, STRAND, Strand, VISITS};
use super::{Descriptor, Executor, Input, check_kind, unfit};
use crate::driver::{
    Driver, End, Fingerprint, MEMORY, ResumeOptions, RunHandle, RunOptions, RunReport, register, start,
};
use crate::engine::Engine;
use crate::session::Session;

/// How many nodes run at once unless the graph says otherwise.
const PARALLEL: usize = 8;
/// How often a node may be visited in one run unless the graph says otherwise.
const VISITS_IN_A_RUN: u64 = 100;
/// The prefix of what the loops of agents in nodes keep.
const NODE: &str = "node/";

/// A graph: nodes that do something, and edges that say what comes next. Cheap to clone.
///
/// ```
/// use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, NodeSpec};
/// use rekindle::schemars::{self, JsonSchema};
/// use rekindle::{Engine, Json};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Draft { version: u32 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// let graph = Graph::builder("essay")
///     .memory("version", 0)
///     .function("write", async |_, draft: Draft| Ok(draft.version + 1))
///     .node(NodeSpec::function("write").with("version", "${memory.version}").reads(["version"]).save("version", ""))
///     .node(NodeSpec::router("judge"))
///     .node(NodeSpec::question("publish", "Publish version ${memory.version}?").reads(["version"]).writes(["verdict"]))
///     .path(["write", "judge"])
///     .edge(EdgeSpec::new("judge", "write").when(Condition::memory("version").less_than(3)))
///     .edge(EdgeSpec::new("judge", "publish").or_else())
///     .build()?;
///
/// let engine = Engine::memory()?; // Engine::open("sqlite:./graphs.db")? outlives the process
/// let session = engine.create("essay-1").await?;
/// let waits = graph.run_once(GraphInput::new(), &session).await?;
/// assert_eq!(waits.report.waits[0].prompt, "Publish version 3?");
///
/// let wait = waits.report.waits[0].wait.clone();
/// let answer = rekindle::operations::Answer::value(wait, Json::from("yes"), "maria");
/// rekindle::operations::answer(&engine, session.key(), &answer).await?;
/// let done = graph.resume_once(&session).await?;
/// assert_eq!(done.get::<String>("verdict")?.as_deref(), Some("yes"));
/// assert_eq!(done.state.visits["write"], 3);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Graph {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    spec: GraphSpec,
    nodes: Vec<Node>,
    index: HashMap<String, usize>,
    reducers: BTreeMap<String, Reducer>,
    options: RunOptions,
    /// Made once: it is asked for whenever a run begins.
    print: OnceLock<Fingerprint>,
}

/// What a run of a graph begins with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphInput {
    /// Memory beside the graph's own.
    #[serde(default)]
    pub memory: BTreeMap<String, Value>,
}

impl GraphInput {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a key of the memory.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.memory.insert(key.into(), value.into());
        self
    }
}

impl Graph {
    /// A new graph of that name.
    pub fn builder(name: impl Into<String>) -> GraphBuilder {
        Self::from_spec(GraphSpec { name: name.into(), ..GraphSpec::default() })
    }

    /// A graph as it was written down; it still needs its functions, tools and agents.
    pub fn from_spec(spec: GraphSpec) -> GraphBuilder {
        GraphBuilder::new(spec)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.spec.name
    }

    /// How its runs behave.
    pub fn options(&self) -> &RunOptions {
        &self.inner.options
    }

    /// Where it stands, as a state says; of conversations and memory what its [`CheckpointConfig`]
    /// wants shown.
    pub fn state(&self, state: &State) -> Result<GraphState> {
        let config = self.inner.options.checkpoint_config.clone().unwrap_or_default();
        Ok(GraphState::of(state)?.shown(&config))
    }

    /// As it was written down.
    pub fn spec(&self) -> &GraphSpec {
        &self.inner.spec
    }

    /// Creates a session that says it is this graph's, so that it can be found by it.
    pub async fn create_session(&self, engine: &Engine, id: &str) -> Result<Session> {
        let header = SessionHeader { agent: Some(self.name().to_owned()), ..SessionHeader::new(engine.key(id)?) };
        engine.create_with(header).await
    }

    /// Starts it. An error if an input is missing, or if the session has an unfinished run: it says
    /// how to go on.
    pub async fn run(&self, input: GraphInput, session: &Session) -> Result<RunHandle> {
        self.run_with(input, session, ResumeOptions::default()).await
    }

    /// Starts it, with what else is to be said.
    pub async fn run_with(&self, input: GraphInput, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Input::Value(Json::of(&input)?), session, options).await
    }

    /// Starts it and waits for its end.
    pub async fn run_once(&self, input: GraphInput, session: &Session) -> Result<GraphResult> {
        let report = self.run(input, session).await?.report().await?;
        self.result(session, report).await
    }

    /// Goes on with an unfinished run: completed nodes are not repeated, failed ones tried anew.
    pub async fn resume(&self, session: &Session) -> Result<RunHandle> {
        self.resume_with(session, ResumeOptions::default()).await
    }

    /// Goes on with an unfinished run, with what is to be said about it.
    pub async fn resume_with(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.start(Input::Resume, session, options).await
    }

    /// Goes on with an unfinished run and waits for its end.
    pub async fn resume_once(&self, session: &Session) -> Result<GraphResult> {
        let report = self.resume(session).await?.report().await?;
        self.result(session, report).await
    }

    /// What came of a run that has ended.
    pub async fn result(&self, session: &Session, report: RunReport) -> Result<GraphResult> {
        let restored = session.engine().journal().load(session.key(), Some(&report.position())).await?;
        GraphResult::new(self.state(&restored.state)?, report)
    }

    async fn start(&self, input: Input, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        start(session.engine(), session.key(), self.executor(), input, self.inner.options.clone(), options).await
    }

    /// Returns its executor, for [`crate::operations::start`], [`crate::operations::resume`] and workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }
}

impl Inner {
    fn new_fingerprint(&self) -> Fingerprint {
        let short = |text: String| Hash::of(text.as_bytes()).short();
        let mut print = Fingerprint::new().with("graph", &self.spec.name).with("entry", &self.spec.entry);
        for node in &self.nodes {
            let part = format!("node {}", node.spec.id);
            print = print.with(part, short(format!("{}{}", text(&node.spec), node.max_visits)));
            match &node.work {
                Prepared::Call { entry, .. } => {
                    let name = format!("tool {}", entry.tool.spec().name);
                    print = print.with_hash_of(name, entry.print().as_bytes());
                }
                Prepared::Loop { agent, .. } => {
                    print = print.with_all(&format!("agent {}: ", agent.name()), &agent.executor().fingerprint());
                }
                Prepared::Route { .. } => {}
            }
            for edge in &node.edges {
                let mut part = format!("edge {} → {}", edge.from, edge.to);
                while print.has(&part) {
                    part.push('′');
                }
                print = print.with(part, short(text(edge)));
            }
        }
        print
    }

    fn parallel(&self) -> usize {
        self.spec.parallel.unwrap_or(PARALLEL).max(1)
    }

    fn node(&self, id: &str) -> Result<&Node> {
        self.index.get(id).map(|number| &self.nodes[*number]).ok_or_else(|| builder::no_node(id))
    }

    /// Fails if an input of the graph is in none of `input`, the memory of its own, and `set`.
    fn check_memory(&self, input: &GraphInput, set: &[&str]) -> Result<()> {
        let is_there = |key: &&String| {
            input.memory.contains_key(*key) || self.spec.memory.contains_key(*key) || set.contains(&key.as_str())
        };
        let missing: Vec<String> =
            self.spec.inputs.iter().filter(|key| !is_there(key)).map(|key| format!("`{key}`")).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => {
                Err(Error::invalid(format!("the graph `{}` needs the inputs {}", self.spec.name, missing.join(", ")))
                    .hint("give them as memory"))
            }
        }
    }

    /// A call that may have happened must not be forgotten because its node does something else now.
    fn check_open_call(&self, state: &State, strand: &Strand, node: &Node) -> Result<()> {
        let step = strand.step.to_string();
        let mut open = state.open_effects().filter(|open| {
            let of_visit = open.intent.step.as_deref() == Some(step.as_str());
            of_visit && open.intent.effect.as_str().starts_with(&format!("n{step}."))
        });
        let calls = |name: &str| matches!(&node.work, Prepared::Call { entry, .. } if entry.tool.spec().name == name);
        match open.find(|open| strand.phase == Phase::Running && !calls(&open.intent.name)) {
            None => Ok(()),
            Some(open) => {
                let (id, tool) = (&node.spec.id, &open.intent.name);
                let message =
                    format!("node `{id}` does not call `{tool}` any more, and nobody knows whether it happened");
                let hint =
                    format!("bring the work of the node back, or settle effect `{}` by hand", open.intent.effect);
                Err(Error::new(ErrorKind::Drift, message).hint(hint))
            }
        }
    }

    fn input_of(&self, value: &Json) -> Result<GraphInput> {
        value.decode().map_err(|error| {
            unfit("graph", &self.spec.name, error).hint("start it with its memory: an object with the field `memory`")
        })
    }

    /// The records a turn begins with.
    async fn begin(&self, driver: &Driver, input: GraphInput) -> Result<()> {
        let (before, from, set) = driver
            .read(|state| {
                let set: Vec<String> = state.registers_under(MEMORY).map(|(key, _)| key.as_str().to_owned()).collect();
                (GraphRegister::load(state), state.log(&state::path()).len(), set)
            })
            .await;
        let keys: Vec<&str> = set.iter().filter_map(|key| key.strip_prefix(MEMORY)).collect();
        self.check_memory(&input, &keys)?;
        let before = before?;
        let (turn, step) = (before.turn + 1, before.step);
        let at = GraphRegister { turn, step, done: false, path_from: from, step_from: step };
        let mut records = vec![at.record()?, view::first(&self.spec.entry)?];
        // What was set explicitly for this run counts more than what the graph begins with.
        let own = self.spec.memory.iter().filter(|(key, _)| !keys.contains(&key.as_str()));
        for (key, value) in own.chain(&input.memory) {
            let key = register(&format!("{MEMORY}{key}"))?;
            records.push(RegisterSet::new(key, Json::from(value.clone())).into());
        }
        driver.begin_turn().await;
        driver.stage_beginning(records).await?;
        driver.commit_staged().await
    }

    /// When checkpoints are made in a run.
    fn config(&self, driver: &Driver) -> CheckpointConfig {
        driver.options().checkpoint_config.clone().or_else(|| self.spec.checkpoints.clone()).unwrap_or_default()
    }
}

#[async_trait]
impl Executor for Inner {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(GraphDescriptor)
    }

    fn check_input(&self, input: &Input, set: &[&str]) -> Result<()> {
        match input {
            Input::Value(value) => self.check_memory(&self.input_of(value)?, set),
            _ => check_kind(&GraphDescriptor, input),
        }
    }

    fn configured(&self, mut options: RunOptions, checkpoints: Option<CheckpointConfig>) -> RunOptions {
        options.checkpoint_config = checkpoints.or(options.checkpoint_config);
        let waits = options.checkpoint_config.as_ref().is_some_and(|config| !config.asynchronous);
        if waits && options.durability == Durability::Async {
            options.durability = Durability::Sync;
        }
        options
    }

    fn reads(&self) -> Vec<String> {
        self.nodes.iter().flat_map(Node::looks_at).map(str::to_owned).collect()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.print.get_or_init(|| self.new_fingerprint()).clone()
    }

    fn check(&self, state: &State, set: &[&str]) -> Result<()> {
        for (id, strand) in Strand::all(state)? {
            let Ok(node) = self.node(&strand.node) else {
                let message =
                    format!("the run stands at node `{}`, which the graph does not have any more", strand.node);
                return Err(Error::new(ErrorKind::Drift, message)
                    .hint("bring the node back, or resume from a checkpoint before it"));
            };
            self.check_open_call(state, &strand, node)?;
            if !matches!(strand.phase, Phase::Ready | Phase::Failed) {
                continue;
            }
            let view = node.memory(&id);
            node.looks_at().filter(|key| !set.contains(key)).try_for_each(|key| view.check_given(state, key))?;
            let missing = node.needs().find(|key| view.look(state, key).is_none() && !set.contains(key));
            if let Some(key) = missing {
                let message = format!("node `{}` needs memory key `{key}`, which is missing", node.spec.id);
                return Err(Error::new(ErrorKind::NotResumable, message)
                    .hint(format!("resume with a value for it: set {key}=…")));
            }
        }
        Ok(())
    }

    fn closing(&self, state: &State, journal: &Journal) -> Result<Vec<Record>> {
        let mut records = GraphDescriptor.closing(state, journal, "the run was given up")?;
        // What was set before the first turn is meant for it. Later ones begin with nothing: the
        // conversations of nodes that remember earlier visits begin anew, too.
        if GraphRegister::load(state)?.turn > 0 {
            records.extend(leftovers(state, &[MEMORY, STRAND, OVERLAY, VISITS, METRICS, NODE]));
        }
        Ok(records)
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        if let Input::Value(value) = input {
            self.begin(driver, self.input_of(&value)?).await?;
        } else if driver.stopping().is_none() {
            driver.commit_staged().await?;
        }
        let at = driver.read(GraphRegister::load).await?;
        if at.turn == 0 || at.done {
            let reason = "the run had not begun when its process ended: start it again";
            return Ok(End::new(RunOutcome::Cancelled, reason));
        }
        driver.begin_step();
        let config = self.config(driver);
        let most = if config.keep_clean_only { config.max_per_session.max(100) } else { config.max_per_session };
        driver.know_marks(most).await;
        Run::load(self, driver, &config).await?.go().await
    }
}

/// As it is written down, for fingerprints.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
