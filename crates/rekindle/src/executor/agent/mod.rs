//! The agent loop: a model that calls tools until it has an answer, durable at every step.

mod act;
mod asking;
mod builder;
mod child;
mod descriptor;
mod place;
mod plan;
pub(crate) mod state;
mod think;
mod toolbox;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::{Error, Json, Result, SessionHeader, State};

use super::{Descriptor, Executor, Input, unfit};
use crate::driver::{Driver, End, Fingerprint, ResumeOptions, RunHandle, RunOptions, RunReport, start};
use crate::engine::Engine;
use crate::message::Message;
use crate::middleware::Middleware;
use crate::model::Model;
use crate::reduction::Reduction;
use crate::session::Session;
use crate::tool::Retries;

pub use builder::AgentBuilder;
pub use child::SubAgent;
pub(crate) use descriptor::{AgentDescriptor, KIND, settled_in};
pub(crate) use place::Place;
pub(crate) use state::{LoopState, Scope};
use toolbox::Toolbox;
use turn::Turn;
pub(crate) use turn::{call_effect, closing_in, unended_calls};

/// An agent: a model, what it is told, and the tools it may use. Cheap to clone.
///
/// ```
/// use rekindle::schemars::{self, JsonSchema};
/// use rekindle::tool::tool;
/// use rekindle::{Agent, Engine};
/// use rekindle_models::{Script, ScriptedModel, Turn};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Sum { a: i64, b: i64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// let add = tool("add", "Adds two numbers.", async |_, sum: Sum| Ok(sum.a + sum.b));
/// # let script = Script::new("demo")
/// #     .turn(Turn::call("add", serde_json::json!({"a": 19, "b": 23})))
/// #     .turn(Turn::text("It is 42."));
/// # let model = ScriptedModel::new(script);
/// let agent = Agent::builder("calculator", model).system("You add.").tool(add).build()?;
///
/// let engine = Engine::memory()?; // for real: Engine::open("sqlite:./agents.db")?
/// let session = engine.create("sums").await?;
/// let report = agent.run_once("what is 19 + 23?", &session).await?;
/// assert_eq!(report.text(), "It is 42.");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    name: String,
    model: Arc<dyn Model>,
    system: Option<Arc<str>>,
    toolbox: Toolbox,
    middleware: Vec<Arc<dyn Middleware>>,
    reduction: Reduction,
    options: RunOptions,
    model_retries: Retries,
    model_timeout: Duration,
    same_call_limit: u32,
    failure_limit: u64,
    parallel: usize,
}

impl Agent {
    /// A new agent of that name.
    pub fn builder(name: impl Into<String>, model: impl Model) -> AgentBuilder {
        AgentBuilder::new(name.into(), Arc::new(model))
    }

    /// The same with a model that is shared.
    pub fn builder_with(name: impl Into<String>, model: Arc<dyn Model>) -> AgentBuilder {
        AgentBuilder::new(name.into(), model)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Creates a session that says it is this agent's, so that it can be found by it.
    pub async fn create_session(&self, engine: &Engine, id: &str) -> Result<Session> {
        let header = SessionHeader { agent: Some(self.name().to_owned()), ..SessionHeader::new(engine.key(id)?) };
        engine.create_with(header).await
    }

    /// How its runs behave.
    pub fn options(&self) -> &RunOptions {
        &self.inner.options
    }

    /// Starts a turn. An error if the session has an unfinished run: it says how to go on.
    pub async fn run(&self, message: impl Into<Message>, session: &Session) -> Result<RunHandle> {
        self.run_with(vec![message.into()], session, ResumeOptions::default()).await
    }

    /// Starts a turn and waits for its end.
    pub async fn run_once(&self, message: impl Into<Message>, session: &Session) -> Result<RunReport> {
        self.run(message, session).await?.report().await
    }

    /// Goes on with an unfinished run.
    pub async fn resume(&self, session: &Session) -> Result<RunHandle> {
        self.resume_with(session, ResumeOptions::default()).await
    }

    /// Goes on with an unfinished run, with what is to be said about it.
    pub async fn resume_with(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.run_with(Vec::new(), session, options).await
    }

    /// Starts a turn with `messages` or, without any, goes on with an unfinished run.
    pub async fn run_with(
        &self,
        messages: Vec<Message>,
        session: &Session,
        options: ResumeOptions,
    ) -> Result<RunHandle> {
        let executor: Arc<dyn Executor> = self.executor();
        let input = if messages.is_empty() { Input::Resume } else { Input::Messages(messages) };
        start(session.engine(), session.key(), executor, input, self.inner.options.clone(), options).await
    }

    /// Asks once, in a session of its own in memory.
    pub async fn ask(&self, message: impl Into<Message>) -> Result<RunReport> {
        let session = Engine::memory()?.create_new().await?;
        self.run_once(message, &session).await
    }

    /// The same with one more tool.
    pub(crate) fn with_tool(&self, tool: Arc<dyn crate::tool::Tool>) -> Result<Self> {
        let inner = &self.inner;
        let inner = Inner {
            name: inner.name.clone(),
            model: Arc::clone(&inner.model),
            system: inner.system.clone(),
            toolbox: inner.toolbox.with(tool)?,
            middleware: inner.middleware.clone(),
            reduction: inner.reduction.clone(),
            options: inner.options.clone(),
            model_retries: inner.model_retries.clone(),
            model_timeout: inner.model_timeout,
            same_call_limit: inner.same_call_limit,
            failure_limit: inner.failure_limit,
            parallel: inner.parallel,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its loop inside a node of a graph.
    pub(crate) async fn enter<'a>(&'a self, driver: &'a Driver, place: Place) -> Result<NodeTurn<'a>> {
        Turn::load(&self.inner, driver, place).await.map(NodeTurn)
    }

    /// Returns its executor, for [`crate::operations::start`], [`crate::operations::resume`] and workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        self.inner.clone()
    }

    /// The messages of a session, decoded.
    pub fn messages(state: &State) -> Result<Vec<Message>> {
        state.log(&state::messages()).iter().map(Message::from_json).collect()
    }
}

/// The loop of an agent inside a node of a graph.
pub(crate) struct NodeTurn<'a>(Turn<'a>);

impl NodeTurn<'_> {
    /// Begins turn `turn` with `prompt`, or goes on with it.
    pub(crate) async fn run(&mut self, turn: u64, prompt: String) -> Result<End> {
        match self.0.at.turn < turn {
            true => self.0.begin(vec![Message::user(prompt)]).await?,
            false => self.0.recover().await?,
        }
        self.0.go().await
    }
}

#[async_trait]
impl Executor for Inner {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(AgentDescriptor)
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut print = Fingerprint::new()
            .with("agent", &self.name)
            .with("model", self.model.name())
            .with_hash_of("system prompt", self.system.as_deref().unwrap_or_default().as_bytes())
            .with("reduction", self.reduction.describe());
        for (limits, of) in [(&self.options.budgets, "turn"), (&self.options.session_budgets, "session")] {
            print = print.with(format!("budgets of the {of}"), serde_json::to_string(limits).unwrap_or_default());
        }
        for layer in &self.middleware {
            print = print.with(format!("middleware {}", layer.name()), layer.state().version.to_string());
        }
        for (name, text) in self.toolbox.prints() {
            print = print.with_hash_of(format!("tool {name}"), text.as_bytes());
        }
        print
    }

    fn check_input(&self, input: &Input, _set: &[&str]) -> Result<()> {
        match input {
            Input::Value(value) => message_of(&self.name, value).map(drop),
            _ => Ok(()),
        }
    }

    fn gives_up_failed(&self) -> bool {
        true
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        let place = Place::session(driver.options().checkpoints.clone());
        let mut turn = Turn::load(self, driver, place).await?;
        match input {
            Input::Messages(messages) => turn.begin(messages).await?,
            Input::Value(value) => turn.begin(vec![message_of(&self.name, &value)?]).await?,
            Input::Resume => turn.recover().await?,
        }
        turn.go().await
    }
}

/// The message that a turn begins with which is given a value: a message, or its text.
fn message_of(agent: &str, value: &Json) -> Result<Message> {
    let message = Message::from_json(value).or_else(|_| value.decode::<String>().map(Message::user));
    message.map_err(|error| unfit(KIND, agent, error))
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("name", &self.name).field("model", &self.model).finish_non_exhaustive()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A failure of the loop itself.
fn step_failed(message: impl Into<String>) -> Error {
    Error::new(rekindle_core::ErrorKind::StepFailed, message.into())
}
