//! What these tests share beyond the rig of the agent's tests: a tool that counts, a model that
//! waits to be released, and bounded waits for what must happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::{Record, Seq};
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Agent, AgentBuilder, BranchId, Event, Events, Position, Result, ResumeOptions, RunHandle, RunReport};
use rekindle_models::{Script, ScriptedModel};
use tokio::sync::Semaphore;

pub use crate::rig::{Held, Rig, agent, agent_of, echo, of};
use crate::support::Of;

/// Counts what happened.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Once more; how often before.
    pub fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A tool with a side effect: it counts its calls.
    pub fn tool(&self, name: &str) -> FnTool<Of> {
        let counter = self.clone();
        tool(name, "Counts.", move |_, of: Of| {
            counter.add();
            async move { Ok::<_, ToolError>(of.what) }
        })
        .writes()
    }
}

/// A scripted model that says when it is asked, and answers when it is released.
#[derive(Clone, Debug)]
pub struct HeldModel {
    inner: ScriptedModel,
    free: usize,
    asked: Counter,
    began: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

impl HeldModel {
    /// The first `free` answers it gives at once.
    pub fn new(script: Script, free: usize) -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        let inner = ScriptedModel::new(script);
        Self { inner, free, asked: Counter::default(), began: semaphore(), release: semaphore() }
    }

    /// Once it was asked for an answer that it holds back.
    pub async fn began(&self) {
        self.began.acquire().await.unwrap().forget();
    }

    /// From now on it answers at once.
    pub fn release(&self) {
        self.release.close();
    }

    /// An agent with the name of all agents here.
    pub fn agent(&self, add: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
        add(Agent::builder_with("tester", Arc::new(self.clone()))).build().unwrap()
    }
}

#[async_trait]
impl Model for HeldModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.inner.capabilities()
    }

    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> std::result::Result<Answer, ModelError> {
        if self.asked.add() >= self.free {
            self.began.add_permits(1);
            tokio::select! {
                // It is never given a permit: it is closed.
                _ = self.release.acquire() => {}
                () = request.cancel.cancelled() => return Err(ModelError::passing("told to stop")),
            }
        }
        self.inner.answer(request, deltas).await
    }
}

/// What must come soon.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it never comes")
}

/// Looks again and again until it finds something, for what nobody tells of.
pub async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    soon(async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

/// The events of the first branch, from its beginning.
pub async fn follow(rig: &Rig) -> Events {
    Events::follow(&rig.engine, rig.key(), &Position::new(BranchId::main(), Seq::ZERO)).await.unwrap()
}

/// Once a record like that is on the first branch.
pub async fn recorded(rig: &Rig, wanted: impl Fn(&Record) -> bool) {
    let mut events = follow(rig).await;
    soon(async {
        while !matches!(events.next().await.unwrap(), Some(Event::Recorded { record, .. }) if wanted(&record)) {}
    })
    .await;
}

/// How a run ends, whether it began or not.
pub async fn ended(run: Result<RunHandle>) -> Result<RunReport> {
    soon(run?.report()).await
}

/// Resumes as another process does; how that ends.
pub async fn resumed(agent: &Agent, rig: &Rig) -> RunReport {
    ended(agent.resume(&rig.again().await).await).await.unwrap()
}

/// Runs with a message, or goes on with none, as another process does; how that ends.
pub async fn run_with(agent: &Agent, rig: &Rig, message: Option<&str>, options: ResumeOptions) -> Result<RunReport> {
    let input = message.map(Into::into).into_iter().collect();
    ended(agent.run_with(input, &rig.again().await, options).await).await
}
