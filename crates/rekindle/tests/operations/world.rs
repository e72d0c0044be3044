//! What the tests work with: an engine over a store whose clock stands still, and agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rekindle::core::codec::Codec;
use rekindle::core::record::{EffectIntent, EffectKind, InDoubtPolicy, LogAppend, RegisterSet, RunStarted};
use rekindle::core::{IdSource, LogName, Record, RegisterKey, Target};
use rekindle::message::{Message, Part, Role, ToolCall};
use rekindle::model::ModelError;
use rekindle::operations::{self, At};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, EffectId, Engine, Error, Journal, Json, ResumeOptions, RunId, Session, Store};
use rekindle_models::{Script, ScriptedModel, Turn};
use rekindle_store::{MemoryStore, SqliteStore, StoreOptions};
use rekindle_testkit::{Hooked, ManualClock};
use serde_json::json;
use tokio::sync::Notify;

use crate::interloper::Interloper;

pub struct World {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    _directory: Option<tempfile::TempDir>,
}

impl World {
    pub fn memory() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(StoreOptions::new().with_clock(clock.clone()));
        Self { engine: engine(Arc::new(store), &clock), clock, _directory: None }
    }

    pub fn sqlite() -> Self {
        let clock = Arc::new(ManualClock::default());
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().with_clock(clock.clone());
        let store = SqliteStore::open(directory.path().join("test.db"), options).unwrap();
        Self { engine: engine(Arc::new(store), &clock), clock, _directory: Some(directory) }
    }

    /// Over a store in which somebody else is quicker when told to be.
    pub fn with_interloper() -> (Self, Arc<Interloper>) {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(StoreOptions::new().with_clock(clock.clone()));
        let interloper = Arc::new(Interloper::new(store.clone(), clock.clone()));
        let hooked = Hooked::new(Arc::new(store), interloper.clone());
        (Self { engine: engine(Arc::new(hooked), &clock), clock, _directory: None }, interloper)
    }

    pub async fn session(&self, id: &str) -> Session {
        self.engine.create(id).await.unwrap()
    }

    /// The texts of the conversation at a moment.
    pub async fn texts(&self, session: &Session, at: &At) -> Vec<String> {
        let seen = operations::inspect(&self.engine, session.key(), at).await.unwrap();
        Agent::messages(&seen.state).unwrap().iter().map(Message::text).collect()
    }

    /// Appends records to `main`, as a process did that then died.
    pub async fn leave_behind(&self, session: &Session, records: &[Record]) {
        let info = session.info().await.unwrap();
        let main = info.current_branch().unwrap();
        let target = Target::new(session.key().clone(), main.branch.clone(), main.head);
        self.engine.journal().append(&target, records).await.unwrap();
    }

    /// An agent's run that died while it made a call that must never be made twice.
    pub async fn dead_run(&self, id: &str, policy: InDoubtPolicy) -> Session {
        let session = self.session(id).await;
        let call = ToolCall::new("c1", "pay", Json::parse(r#"{"cents":5}"#).unwrap());
        let hash = rekindle::wait::digest(&call.arguments).unwrap();
        let said = [Message::user("pay"), Message::new(Role::Assistant, vec![Part::ToolCall(call)])];
        let said = said.iter().map(|message| message.to_json().unwrap()).collect();
        let at = Json::parse(r#"{"turn":1,"iteration":1,"step":1,"phase":"act"}"#).unwrap();
        let intent = EffectIntent::new(EffectId::new("t1.0.c1").unwrap(), EffectKind::Tool, "pay", hash);
        let records = [
            RunStarted::new(RunId::new("run_dead").unwrap(), "agent").into(),
            LogAppend::new(LogName::new("messages").unwrap(), said).into(),
            RegisterSet::new(RegisterKey::new("loop").unwrap(), at).into(),
            EffectIntent { policy, ..intent }.into(),
        ];
        self.leave_behind(&session, &records).await;
        session
    }
}

fn engine(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> Engine {
    static SEED: AtomicU64 = AtomicU64::new(1);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&SEED.fetch_add(1, Ordering::SeqCst).to_le_bytes());
    Engine::with_journal(Journal::new(store, Codec::new(), clock.clone(), IdSource::seeded(seed)))
}

#[derive(serde::Deserialize, JsonSchema)]
pub struct Sum {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, JsonSchema)]
pub struct Pay {
    cents: u64,
}

#[derive(serde::Deserialize, JsonSchema)]
pub struct Nothing {}

/// Adds two numbers, then thanks.
pub fn adder() -> Agent {
    let add = tool("add", "Adds.", async |_, sum: Sum| Ok(sum.a + sum.b));
    let script = Script::new("adder")
        .turn(Turn::call("add", json!({"a": 19, "b": 23})))
        .text("It is 42.")
        .text("You are welcome.")
        .text("Bye.");
    Agent::builder("adder", ScriptedModel::new(script)).tool(add).build().unwrap()
}

/// Pays what it is told to, if somebody agrees.
pub fn payer(approval: Approval) -> Agent {
    let pay = tool("pay", "Pays.", async |_, pay: Pay| Ok(format!("paid {}", pay.cents)));
    let pay = pay.writes().never_again().needs_approval(approval);
    let script = Script::new("payer").turn(Turn::call("pay", json!({"cents": 5}))).text("It is paid.").repeating_last();
    Agent::builder("payer", ScriptedModel::new(script)).tool(pay).build().unwrap()
}

/// Asks a question.
pub fn asker(spec: WaitSpec) -> Agent {
    let ask = tool("ask", "Asks.", move |_, _: Nothing| {
        let spec = spec.clone();
        async move { Ok(ToolOutput::wait(spec)) }
    });
    let script = Script::new("asker").turn(Turn::call("ask", json!({}))).text("Thanks.");
    Agent::builder("asker", ScriptedModel::new(script)).tool(ask).build().unwrap()
}

/// Fails, then answers.
pub fn failing() -> Agent {
    let error = ModelError { message: "no credit".into(), retry: false, retry_after: None };
    let script = Script::new("failing").turn(Turn::error(error)).text("Better now.");
    Agent::builder("failing", ScriptedModel::new(script)).build().unwrap()
}

/// Works until it is let go.
pub fn busy(begun: Arc<Notify>, go: Arc<Notify>) -> Agent {
    let work = tool("work", "Works.", move |_, _: Nothing| {
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            begun.notify_one();
            go.notified().await;
            Ok("done")
        }
    });
    let script = Script::new("busy").turn(Turn::call("work", json!({}))).text("Ready.");
    Agent::builder("busy", ScriptedModel::new(script)).tool(work).build().unwrap()
}

pub async fn resume(world: &World, session: &Session, agent: &Agent) -> rekindle::Result<rekindle::RunReport> {
    let options = ResumeOptions::new("test");
    let run =
        operations::resume(&world.engine, session.key(), agent.executor(), agent.options().clone(), options).await?;
    run.report().await
}

/// The code of an error, which must say what happened and the way out.
pub fn code<T: std::fmt::Debug>(result: rekindle::Result<T>) -> &'static str {
    let error: Error = result.unwrap_err();
    assert!(!error.message().is_empty() && !error.next_step().is_empty());
    assert!(error.operation().is_some(), "{error:?}");
    error.code()
}
