//! An agent whose process can die in the middle of a call, and a model that remembers everything
//! it was sent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::{Extra, RunOutcome};
use rekindle::core::{Head, LogName, Record, Target};
use rekindle::message::{Part, Role, ToolCall};
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::reduction::Reduction;
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Agent, AgentBuilder, Engine, Error, Frequency, Json, Message, RunReport, Session, SessionKey};
use rekindle_models::{Script, ScriptedModel};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::json;

use crate::support::{Ledger, Of, World};

/// The life of a process: while it lasts, its store answers.
#[derive(Clone, Debug, Default)]
pub struct Life(Option<Arc<FaultPlan>>);

impl Life {
    /// A process that will die when a `die` tool is called.
    pub fn mortal() -> Self {
        Self(Some(Arc::default()))
    }

    /// A process that goes on for ever.
    pub fn immortal() -> Self {
        Self(None)
    }

    /// An engine of its own over the world's data.
    pub fn engine(&self, world: &World) -> Engine {
        match &self.0 {
            Some(plan) => world.engine_over(Arc::new(FaultyStore::new(world.store(), Arc::clone(plan)))),
            None => world.engine(),
        }
    }

    /// Nothing reaches the store from now on.
    pub fn end(&self) {
        if let Some(plan) = &self.0 {
            plan.fail_from(0, Fault::Unreachable);
        }
    }

    /// A tool in which the process dies, once `settled` other calls are on record.
    pub fn die_behind(&self, settled: usize) -> FnTool<Of> {
        let life = self.clone();
        tool("die", "The process dies in it.", move |call, of: Of| {
            let life = life.clone();
            async move {
                while life.0.is_some() {
                    let state = call.engine().journal().load(call.session(), None).await?.state;
                    if state.effects().filter(|effect| effect.is_settled()).count() >= settled {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                life.end();
                Ok::<_, ToolError>(format!("outlived {}", of.what))
            }
        })
        .idempotent()
    }

    /// A tool in which the process dies.
    pub fn die(&self) -> FnTool<Of> {
        self.die_behind(0)
    }
}

/// A run that must have died with its process.
pub fn died(ended: Result<RunReport, Error>) {
    let error = ended.map(|report| report.outcome).unwrap_err();
    assert!(["RK0016", "RK0017", "RK0018"].contains(&error.code()), "{error:?}");
}

/// A tool that writes what it does to a ledger.
pub fn noting(ledger: &Ledger, name: &'static str) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool(name, "Notes.", move |_, of: Of| {
        ledger.write(&format!("{name} {}", of.what));
        async move { Ok::<_, ToolError>(of.what) }
    })
}

/// An agent with a scripted model, the tools `echo` and `die`, everything on disk at once.
pub fn agent(life: &Life, script: Script) -> AgentBuilder {
    Agent::builder("tester", ScriptedModel::new(script))
        .durability(Durability::Sync)
        .checkpoints(Frequency::PerIteration)
        .tool(tool("echo", "Says it again.", async |_, of: Of| Ok::<_, ToolError>(of.what)))
        .tool(life.die())
}

pub fn of(what: &str) -> serde_json::Value {
    json!({ "what": what })
}

/// Two calls, death in the third, an answer.
pub fn script() -> Script {
    Script::new("m").call("echo", of("a")).call("echo", of("b")).call("die", of("here")).text("done")
}

/// A session whose process died in its third iteration.
pub async fn interrupted(world: &World) -> SessionKey {
    let life = Life::mortal();
    let session = life.engine(world).create("s").await.unwrap();
    died(agent(&life, script()).build().unwrap().run_once("go", &session).await);
    world.pass_leases();
    session.key().clone()
}

/// Goes on in a new process until the end.
pub async fn resume(agent: &Agent, engine: &Engine) -> RunReport {
    let session = engine.open_session("s").await.unwrap();
    let report = agent.resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{report:?}");
    report
}

pub fn messages_log() -> LogName {
    LogName::new("messages").unwrap()
}

/// Writes records behind the end of a session that nobody runs.
pub async fn append(engine: &Engine, session: &SessionKey, records: &[Record]) -> Head {
    let info = engine.journal().open(session).await.unwrap();
    let branch = info.current_branch().unwrap();
    let target = Target::new(session.clone(), branch.branch.clone(), branch.head);
    engine.journal().append(&target, records).await.unwrap().head
}

/// A session with `count` old messages.
pub async fn with_history(engine: &Engine, count: usize) -> Session {
    let session = engine.create("s").await.unwrap();
    let journal = engine.journal();
    let said = (0..count).map(|number| match number % 2 {
        0 => Message::user(format!("question {number}")),
        _ => Message::assistant(format!("answer {number}")),
    });
    let items = said.map(|message| message.with_id(journal.ids(), journal.clock().now()).to_json().unwrap());
    append(engine, session.key(), &[rekindle::core::record::LogAppend::new(messages_log(), items.collect()).into()])
        .await;
    session
}

/// Edits one message by hand.
pub async fn edit(engine: &Engine, session: &SessionKey, at: u64, text: &str) {
    let journal = engine.journal();
    let message = Message::user(text).with_id(journal.ids(), journal.clock().now()).to_json().unwrap();
    let edit =
        rekindle::core::record::Edit { author: "maria".into(), reason: "it was wrong".into(), extra: Extra::new() };
    let splice = rekindle::core::record::LogSplice::new(messages_log(), at, 1, vec![message]);
    append(engine, session, &[edit.into(), splice.into()]).await;
}

/// What a model was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub messages: Vec<Message>,
    pub previous: Option<String>,
    pub response: String,
    pub summary: bool,
}

/// A model that makes so many rounds of calls before it answers, and remembers what it was sent.
/// How far it is it reads off the last message alone, as it may be sent no more.
#[derive(Clone, Debug)]
pub struct Recorder {
    pub sent: Arc<Mutex<Vec<Sent>>>,
    rounds: usize,
    parallel: usize,
    keeps_history: bool,
    /// The round in whose calls the process dies.
    dies_in: Option<usize>,
    /// The process dies when it is asked something that is no summary.
    dies_when_asked: Option<Life>,
}

impl Recorder {
    pub fn new(rounds: usize) -> Self {
        Self { sent: Arc::default(), rounds, parallel: 1, keeps_history: false, dies_in: None, dies_when_asked: None }
    }

    pub fn parallel(self, parallel: usize) -> Self {
        Self { parallel, ..self }
    }

    pub fn keeping_history(self) -> Self {
        Self { keeps_history: true, ..self }
    }

    pub fn dying_in(self, round: usize) -> Self {
        Self { dies_in: Some(round), ..self }
    }

    pub fn dying_when_asked(self, life: &Life) -> Self {
        Self { dies_when_asked: Some(life.clone()), ..self }
    }

    /// What it was sent, summaries aside.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().iter().filter(|sent| !sent.summary).cloned().collect()
    }

    /// How often it was asked for a summary.
    pub fn summaries(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().iter().filter(|sent| sent.summary).cloned().collect()
    }

    /// The same memory for the process after this one.
    pub fn reborn(&self) -> Self {
        Self { dies_when_asked: None, ..self.clone() }
    }

    /// An agent around it, with the tools `step` and `die`.
    pub fn agent(&self, life: &Life, reduction: Reduction) -> Agent {
        Agent::builder("tester", self.clone())
            .durability(Durability::Sync)
            .checkpoints(Frequency::PerIteration)
            .reduction(reduction)
            .tool(tool("step", "Goes on.", async |_, of: Of| Ok::<_, ToolError>(of.what)))
            // Nothing is forced to disk before a call that may be repeated.
            .tool(life.die().replay_safe())
            .build()
            .unwrap()
    }

    fn answer_to(&self, last: &Message) -> Vec<Part> {
        // `outlived 3` is what `die` says where `step` says `3`.
        let done = last.results().next().map_or(0, |result| {
            let text: String = result.content.decode().unwrap();
            text.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
        });
        if done == self.rounds {
            return vec![Part::Text("answer".into())];
        }
        let round = done + 1;
        let name = if self.dies_in == Some(round) { "die" } else { "step" };
        let what = Json::from(json!({ "what": round.to_string() }));
        let call = |number| Part::ToolCall(ToolCall::new(format!("call_{round}_{number}"), name, what.clone()));
        (0..self.parallel).map(call).collect()
    }
}

#[async_trait]
impl Model for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities { keeps_history: self.keeps_history, ..ModelCapabilities::default() }
    }

    async fn answer(&self, request: &ModelRequest, _: &Deltas) -> Result<Answer, ModelError> {
        let messages: Vec<Message> = request.view.messages().map(Result::unwrap).collect();
        let last = messages.last().unwrap().clone();
        let summary = last.text().starts_with("Summarise");
        let response = format!("resp_{}", request.idempotency_key);
        let sent = Sent { messages, previous: request.previous.clone(), response: response.clone(), summary };
        self.sent.lock().unwrap().push(sent);
        if summary {
            return Ok(Answer::text("what was said before"));
        }
        if let Some(life) = &self.dies_when_asked {
            life.end();
        }
        let response = self.keeps_history.then_some(response);
        Ok(Answer { parts: self.answer_to(&last), response, ..Answer::default() })
    }
}

/// No call in it is open, and no result lacks its call.
#[track_caller]
pub fn check_whole(messages: &[Message]) {
    let mut open = Vec::new();
    for message in messages {
        if message.role != Role::Tool {
            assert!(open.is_empty(), "{open:?} were open when somebody spoke: {messages:#?}");
        }
        open.extend(message.calls().map(|call| call.id.clone()));
        for result in message.results() {
            let at = open.iter().position(|id| *id == result.call);
            open.swap_remove(at.unwrap_or_else(|| panic!("a result without its call: {messages:#?}")));
        }
    }
    assert!(open.is_empty(), "{open:?} are open: {messages:#?}");
}
