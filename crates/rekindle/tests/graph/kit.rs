//! What these tests share: a session in a world, functions that leave lines in a ledger, a function
//! that waits to be released, and what other processes send.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rekindle::core::record::{Checkpoint, CheckpointType, WaitOpened};
use rekindle::core::{CheckpointInfo, Record};
use rekindle::graph::{GraphInput, GraphResult, GraphState, NodeSpec};
use rekindle::operations::{self, Answer, At, HistoryOptions};
use rekindle::tool::{FnTool, Retries, ToolError, ToolOutput, tool};
use rekindle::{Agent, BranchId, Engine, Error, Graph, GraphBuilder, Json, ResumeOptions, Session, SessionKey};
use rekindle_models::{Script, ScriptedModel};
use rekindle_store::{FaultPlan, FaultyStore};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::support::{Kind, Ledger, World, records};

/// The arguments of a function that takes anything.
pub type Given = BTreeMap<String, Value>;

/// A world with one session, `s`, in it.
pub struct Rig {
    pub world: World,
    pub engine: Engine,
    pub session: Session,
}

impl Rig {
    pub async fn new(kind: Kind) -> Self {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        Self { world, engine, session }
    }

    pub async fn memory() -> Self {
        Self::new(Kind::Memory).await
    }

    /// The session as another process sees it.
    pub async fn again(&self) -> Session {
        self.world.engine().open_session("s").await.unwrap()
    }

    /// The session as a process sees it whose store fails by that plan.
    pub async fn faulty(&self) -> (Session, Arc<FaultPlan>) {
        let plan = Arc::new(FaultPlan::default());
        let engine = self.world.engine_over(Arc::new(FaultyStore::new(self.world.store(), plan.clone())));
        (engine.open_session("s").await.unwrap(), plan)
    }

    pub fn key(&self) -> &SessionKey {
        self.session.key()
    }

    /// Where the graph stands.
    pub async fn graph(&self) -> GraphState {
        GraphState::of(&crate::support::state(&self.engine, self.key()).await).unwrap()
    }

    /// Where it stood at a checkpoint.
    pub async fn graph_at(&self, checkpoint: &Checkpoint) -> GraphState {
        let at = At::Checkpoint(checkpoint.id.clone());
        GraphState::of(&operations::inspect(&self.engine, self.key(), &at).await.unwrap().state).unwrap()
    }

    /// Every record of the first branch.
    pub async fn records(&self) -> Vec<Record> {
        let records = records(&self.engine, self.key(), &BranchId::main()).await;
        records.into_iter().map(|(_, record)| record).collect()
    }

    pub async fn waits(&self) -> Vec<WaitOpened> {
        let state = crate::support::state(&self.engine, self.key()).await;
        state.waits().map(|wait| wait.opened.clone()).collect()
    }

    /// The only wait that is open.
    pub async fn wait(&self) -> WaitOpened {
        let mut waits = self.waits().await;
        assert_eq!(waits.len(), 1, "{waits:?}");
        waits.remove(0)
    }

    /// Answers the only open wait with a value.
    pub async fn answer(&self, value: Value) {
        let answer = Answer::value(self.wait().await.wait, Json::from(value), "maria");
        operations::answer(&self.engine, self.key(), &answer).await.unwrap();
    }

    /// The checkpoints of the current branch, oldest first.
    pub async fn checkpoints(&self) -> Vec<Checkpoint> {
        let options = HistoryOptions { limit: 10_000, ..HistoryOptions::default() };
        let page = operations::history(&self.engine, self.key(), &options).await.unwrap();
        page.checkpoints.into_iter().rev().map(|info: CheckpointInfo| info.checkpoint).collect()
    }

    /// The checkpoints of one kind, oldest first.
    pub async fn marks(&self, kind: CheckpointType) -> Vec<Checkpoint> {
        self.checkpoints().await.into_iter().filter(|mark| mark.kind == kind).collect()
    }

    pub async fn run(&self, graph: &Graph) -> rekindle::Result<GraphResult> {
        graph.run_once(GraphInput::new(), &self.session).await
    }

    pub async fn resume(&self, graph: &Graph) -> rekindle::Result<GraphResult> {
        graph.resume_once(&self.session).await
    }

    /// Starts the graph, or goes on with it.
    pub async fn run_or_resume(&self, graph: &Graph) -> rekindle::Result<GraphResult> {
        match crate::support::state(&self.engine, self.key()).await.run().is_some() {
            true => self.resume(graph).await,
            false => self.run(graph).await,
        }
    }

    pub async fn resume_with(&self, graph: &Graph, options: ResumeOptions) -> rekindle::Result<GraphResult> {
        let report = graph.resume_with(&self.session, options).await?.report().await?;
        graph.result(&self.session, report).await
    }
}

/// A function that gives back what it was given.
pub fn echo(name: &str) -> FnTool<Given> {
    tool(name, "Gives it back.", async |_, given: Given| Ok::<_, ToolError>(value(&given)))
}

/// A function that always gives this back.
pub fn gives(name: &str, what: impl Into<Value>) -> FnTool<Given> {
    let what = what.into();
    tool(name, "Gives it.", move |_, _: Given| {
        let what = what.clone();
        async move { Ok::<_, ToolError>(ToolOutput::json(Json::from(what))) }
    })
}

/// A function that remembers these keys.
pub fn remembers(name: &str, what: &[(&str, Value)]) -> FnTool<Given> {
    let what: Vec<(String, Json)> =
        what.iter().map(|(key, value)| ((*key).into(), Json::from(value.clone()))).collect();
    tool(name, "Remembers.", move |_, _: Given| {
        let what = what.clone();
        async move {
            let none = ToolOutput::json(Json::null());
            Ok::<_, ToolError>(what.into_iter().fold(none, |output, (key, value)| output.and_remember(key, value)))
        }
    })
}

/// A function that leaves a line with its name and key in the ledger, and gives back its name.
pub fn noting(ledger: &Ledger, name: &'static str) -> FnTool<Given> {
    noting_then(ledger, name, move |_| Value::from(name))
}

/// The same, giving back something else.
pub fn noting_then(
    ledger: &Ledger,
    name: &'static str,
    give: impl Fn(&Given) -> Value + Clone + Send + Sync + 'static,
) -> FnTool<Given> {
    let ledger = ledger.clone();
    tool(name, "Leaves a line.", move |call, given: Given| {
        let (ledger, give) = (ledger.clone(), give.clone());
        async move {
            ledger.write(&format!("{name} {}", call.idempotency_key()));
            Ok::<_, ToolError>(ToolOutput::json(Json::from(give(&given))))
        }
    })
}

/// A function that fails until the ledger has its line so many times.
pub fn failing(ledger: &Ledger, name: &'static str, times: usize) -> FnTool<Given> {
    let ledger = ledger.clone();
    tool(name, "Fails at first.", move |_, _: Given| {
        let ledger = ledger.clone();
        async move {
            ledger.write(name);
            match ledger.count(name) > times {
                true => Ok(name),
                false => Err(ToolError::failed("not yet")),
            }
        }
    })
}

fn value(given: &Given) -> ToolOutput {
    ToolOutput::json(Json::of(given).unwrap())
}

/// How often the ledger has lines that begin with this word.
pub fn times(ledger: &Ledger, word: &str) -> usize {
    ledger.lines().iter().filter(|line| line.split(' ').next() == Some(word)).count()
}

/// A node for a function without arguments.
pub fn node(id: &str) -> NodeSpec {
    NodeSpec::function(id)
}

/// An agent of that name that answers from a script.
pub fn agent(name: &str, script: Script) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(script);
    let agent = Agent::builder_with(name, Arc::new(model.clone())).model_retries(quick(2)).build().unwrap();
    (agent, model)
}

pub fn quick(attempts: u32) -> Retries {
    Retries { attempts, first_pause: Duration::from_millis(1), longest_pause: Duration::from_millis(1) }
}

/// Nodes in a row, each calling the function of its name.
pub fn row(builder: GraphBuilder, nodes: &[&str]) -> GraphBuilder {
    let builder = nodes.iter().fold(builder, |builder, id| builder.node(node(id)));
    builder.path(nodes.iter().copied())
}

/// What an error says, with its hints and causes.
pub fn text<T: std::fmt::Debug>(result: rekindle::Result<T>) -> String {
    let error: Error = result.unwrap_err();
    format!("{error:?} {error}")
}

/// A function that says when it was called and ends when it is released or told to stop.
#[derive(Clone, Debug)]
pub struct Held {
    calls: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    began: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

impl Default for Held {
    fn default() -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        Self {
            calls: Arc::default(),
            now: Arc::default(),
            most: Arc::default(),
            began: semaphore(),
            release: semaphore(),
        }
    }
}

impl Held {
    pub fn function(&self, name: &str) -> FnTool<Given> {
        let held = self.clone();
        let result = name.to_owned();
        tool(name, "Takes its time.", move |call, _: Given| {
            let (held, result) = (held.clone(), result.clone());
            async move {
                held.calls.fetch_add(1, Ordering::SeqCst);
                let now = held.now.fetch_add(1, Ordering::SeqCst) + 1;
                held.most.fetch_max(now, Ordering::SeqCst);
                held.began.add_permits(1);
                tokio::select! {
                    permit = held.release.acquire() => permit.unwrap().forget(),
                    () = call.cancelled() => return Err(ToolError::failed("told to stop")),
                }
                held.now.fetch_sub(1, Ordering::SeqCst);
                Ok(result)
            }
        })
    }

    /// Once it has been called once more.
    pub async fn began(&self) {
        self.began.acquire().await.unwrap().forget();
    }

    /// Lets one call end.
    pub fn release(&self) {
        self.release.add_permits(1);
    }

    /// How many were under way at once.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}
