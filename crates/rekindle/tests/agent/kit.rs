//! What these tests share: a session in a world, a model that remembers what it was sent, a tool
//! that waits to be released, and what other processes send.
#![allow(dead_code)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::record::{
    Command, Decision, Extra, InboxAnswer, InboxCommand, InboxMessage, InboxMode, RunEnded, WaitOpened,
};
use rekindle::core::{Record, Seq};
use rekindle::message::ToolResult;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::{FnTool, Retries, ToolError, tool};
use rekindle::{
    Agent, AgentBuilder, BranchId, Engine, Event, Events, Json, Message, MessageId, Position, RunId, Session,
    SessionKey,
};
use rekindle_models::{Asked, Script, ScriptedModel};
use rekindle_store::{FaultPlan, FaultyStore};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{Kind, Of, World, records};

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

    pub async fn messages(&self) -> Vec<Message> {
        crate::support::messages(&self.engine, self.key()).await
    }

    pub async fn state(&self) -> rekindle::State {
        crate::support::state(&self.engine, self.key()).await
    }

    /// Every record of the first branch.
    pub async fn records(&self) -> Vec<Record> {
        self.records_of(&BranchId::main()).await
    }

    pub async fn records_of(&self, branch: &BranchId) -> Vec<Record> {
        let records = records(&self.world.engine(), self.key(), branch).await;
        records.into_iter().map(|(_, record)| record).collect()
    }

    /// The results of tools in the conversation.
    pub async fn results(&self) -> Vec<ToolResult> {
        self.messages().await.iter().flat_map(Message::results).cloned().collect()
    }

    pub async fn waits(&self) -> Vec<WaitOpened> {
        self.state().await.waits().map(|wait| wait.opened.clone()).collect()
    }

    /// The only wait that is open.
    pub async fn wait(&self) -> WaitOpened {
        let mut waits = self.waits().await;
        assert_eq!(waits.len(), 1, "{waits:?}");
        waits.remove(0)
    }

    /// Sends, as another process.
    pub async fn send(&self, records: &[Record]) {
        self.world.engine().journal().send(self.key(), records).await.unwrap();
    }

    pub fn message_id(&self) -> MessageId {
        let journal = self.engine.journal();
        MessageId::generate(journal.ids(), journal.clock().now())
    }

    pub fn message(&self, mode: InboxMode, text: &str) -> Record {
        InboxMessage { mode, ..InboxMessage::new(self.message_id(), Json::from(text)) }.into()
    }

    pub fn command(&self, command: Command, only_run: Option<RunId>) -> Record {
        let new = InboxCommand::new(self.message_id(), command);
        InboxCommand { only_run, author: Some("maria".into()), reason: "because".into(), ..new }.into()
    }

    /// What somebody decides on a wait.
    pub fn answer(&self, wait: &WaitOpened, decision: Decision, author: &str) -> InboxAnswer {
        InboxAnswer {
            message: self.message_id(),
            wait: wait.wait.clone(),
            decision,
            author: author.into(),
            credential: None,
            claimed: false,
            value: None,
            arguments: None,
            digest: wait.digest,
            reason: String::new(),
            extra: Extra::new(),
        }
    }

    /// Answers the only open wait with a value.
    pub async fn answer_with(&self, value: Value) {
        let wait = self.wait().await;
        let answer = InboxAnswer { value: Some(Json::from(value)), ..self.answer(&wait, Decision::Answer, "maria") };
        self.send(&[answer.into()]).await;
    }

    /// How the first run that ends from now on, or ended before, came to its end.
    pub async fn ended(&self) -> RunEnded {
        let start = Position::new(BranchId::main(), Seq::ZERO);
        let mut events = Events::follow(&self.engine, self.key(), &start).await.unwrap();
        loop {
            if let Some(Event::Recorded { record: Record::RunEnded(ended), .. }) = events.next().await.unwrap() {
                return ended;
            }
        }
    }
}

pub fn of(what: &str) -> Value {
    json!({ "what": what })
}

/// A scripted model that remembers everything it was sent, and minds open calls.
#[derive(Clone, Debug)]
pub struct Spy {
    inner: ScriptedModel,
    views: Arc<Mutex<Vec<Vec<Message>>>>,
}

impl Spy {
    pub fn new(script: Script) -> Self {
        Self { inner: ScriptedModel::new(script), views: Arc::default() }
    }

    pub fn requests(&self) -> Vec<Asked> {
        self.inner.requests()
    }

    pub fn count(&self) -> usize {
        self.requests().len()
    }

    /// The conversations it was sent.
    pub fn views(&self) -> Vec<Vec<Message>> {
        self.views.lock().unwrap().clone()
    }

    pub fn last_view(&self) -> Vec<Message> {
        self.views().pop().unwrap()
    }
}

#[async_trait]
impl Model for Spy {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.inner.capabilities()
    }

    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        let view: Vec<Message> = request.view.messages().collect::<Result<_, _>>().unwrap();
        let closed = is_closed(&view);
        self.views.lock().unwrap().push(view);
        if !closed {
            return Err(ModelError::fatal("a call in the conversation is open, or a result has no call"));
        }
        self.inner.answer(request, deltas).await
    }
}

/// Whether every answer with calls is followed by exactly their results.
pub fn is_closed(messages: &[Message]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        for result in message.results() {
            let Some(at) = open.iter().position(|id| *id == result.call) else { return false };
            open.remove(at);
        }
        if message.results().next().is_none() && !open.is_empty() {
            return false;
        }
        open.extend(message.calls().map(|call| call.id.as_str()));
    }
    open.is_empty()
}

/// An agent whose passing failures are tried again at once.
pub fn agent(script: Script, add: impl FnOnce(AgentBuilder) -> AgentBuilder) -> (Agent, Spy) {
    let spy = Spy::new(script);
    (agent_of(&spy, add), spy)
}

pub fn agent_of(spy: &Spy, add: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    let builder = Agent::builder_with("tester", Arc::new(spy.clone())).model_retries(quick(4));
    add(builder).build().unwrap()
}

pub fn quick(attempts: u32) -> Retries {
    Retries { attempts, first_pause: Duration::from_millis(1), longest_pause: Duration::from_millis(1) }
}

pub fn echo() -> FnTool<Of> {
    tool("echo", "Says it again.", async |_, of: Of| Ok::<_, ToolError>(of.what))
}

/// A tool that says when it was called and ends when it is released or told to stop.
#[derive(Clone, Debug)]
pub struct Held {
    calls: Arc<AtomicUsize>,
    began: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

impl Default for Held {
    fn default() -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        Self { calls: Arc::default(), began: semaphore(), release: semaphore() }
    }
}

impl Held {
    pub fn tool(&self, name: &str) -> FnTool<Of> {
        self.tool_ending(name, Ok)
    }

    /// The same, ending in that way when it is released.
    pub fn tool_ending(&self, name: &str, end: fn(String) -> Result<String, ToolError>) -> FnTool<Of> {
        let held = self.clone();
        tool(name, "Takes its time.", move |call, of: Of| {
            let held = held.clone();
            async move {
                held.calls.fetch_add(1, Ordering::SeqCst);
                held.began.add_permits(1);
                tokio::select! {
                    permit = held.release.acquire() => permit.unwrap().forget(),
                    () = call.cancelled() => return Err(ToolError::failed("told to stop")),
                }
                end(of.what)
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

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}
