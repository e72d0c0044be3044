//! What was built of a definition: something that runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rekindle::graph::GraphInput;
use rekindle::plan::PlanInput;
use rekindle::{
    Agent, Error, Executor, Graph, Input, Json, Message, Plan, Result, ResumeOptions, RunHandle, RunOptions, SecretRef,
    Session, operations, worker,
};
use rekindle_tools::McpServer;
use serde_json::{Map, Value};

use crate::build::Work;
use crate::definition::Kind;
use crate::document::list;

/// An agent, a plan or a graph that can run. Cheap to clone; its MCP servers live as long as one of
/// its clones.
#[derive(Clone)]
pub struct Built(Arc<Inner>);

struct Inner {
    work: Work,
    secrets: Vec<(String, SecretRef)>,
    model_names: Vec<String>,
    servers: Vec<McpServer>,
}

/// What a run is given.
///
/// ```
/// use rekindle_definitions::RunInput;
/// let input = RunInput::text("What should I pack?").with("city", "Lisbon");
/// assert_eq!(input.values["city"], "Lisbon");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunInput {
    /// What an agent is told, the query of a plan, or the only input of a graph.
    pub text: Option<String>,
    /// The context of a plan or the memory of a graph.
    pub values: Map<String, Value>,
}

impl RunInput {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), values: Map::new() }
    }

    /// Values by name.
    pub fn values(values: Map<String, Value>) -> Self {
        Self { text: None, values }
    }

    /// With one more value.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }
}

impl Built {
    pub(crate) fn new(
        work: Work,
        secrets: BTreeMap<String, SecretRef>,
        mut model_names: Vec<String>,
        servers: Vec<McpServer>,
    ) -> Self {
        model_names.sort();
        model_names.dedup();
        Self(Arc::new(Inner { work, secrets: secrets.into_iter().collect(), model_names, servers }))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        match self.0.work {
            Work::Agent(_) => Kind::Agent,
            Work::Plan(_) => Kind::Plan,
            Work::Graph(_) => Kind::Graph,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match &self.0.work {
            Work::Agent(agent) => agent.name(),
            Work::Plan(plan) => plan.name(),
            Work::Graph(graph) => graph.name(),
        }
    }

    /// What drives its sessions, for [`rekindle::operations`] and workers.
    pub fn executor(&self) -> Arc<dyn Executor> {
        match &self.0.work {
            Work::Agent(agent) => agent.executor(),
            Work::Plan(plan) => plan.executor(),
            Work::Graph(graph) => graph.executor(),
        }
    }

    /// How its runs behave.
    pub fn options(&self) -> &RunOptions {
        match &self.0.work {
            Work::Agent(agent) => agent.options(),
            Work::Plan(plan) => plan.options(),
            Work::Graph(graph) => graph.options(),
        }
    }

    fn run_options(&self) -> RunOptions {
        self.options().clone()
    }

    /// Where the secrets are that its tools use, and those of everything in it.
    pub fn secrets(&self) -> &[(String, SecretRef)] {
        &self.0.secrets
    }

    /// The models in it, as `provider/name`.
    pub fn model_names(&self) -> Vec<String> {
        self.0.model_names.clone()
    }

    /// The agent, if it is one.
    pub fn as_agent(&self) -> Option<&Agent> {
        if let Work::Agent(agent) = &self.0.work { Some(agent) } else { None }
    }

    /// The plan, if it is one.
    pub fn as_plan(&self) -> Option<&Plan> {
        if let Work::Plan(plan) = &self.0.work { Some(plan) } else { None }
    }

    /// The graph, if it is one.
    pub fn as_graph(&self) -> Option<&Graph> {
        if let Work::Graph(graph) = &self.0.work { Some(graph) } else { None }
    }

    /// Whether a run could begin with `input`, before anything is made for it.
    pub fn check(&self, input: &RunInput) -> Result<()> {
        let input = begins_with(&self.0.work, input.clone())?;
        let (Work::Graph(graph), Input::Value(input)) = (&self.0.work, input) else { return Ok(()) };
        let input: GraphInput = input.decode()?;
        let spec = graph.spec();
        let is_there = |key: &String| input.memory.contains_key(key) || spec.memory.contains_key(key);
        let missing: Vec<&String> = spec.inputs.iter().filter(|key| !is_there(key)).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => {
                let names = list(missing.into_iter().map(String::as_str));
                Err(Error::invalid(format!("the graph `{}` needs the inputs {names}", graph.name()))
                    .hint("give them by name"))
            }
        }
    }

    /// Starts a run. The session learns where the file's secrets are.
    pub async fn start(&self, session: &Session, input: RunInput, options: ResumeOptions) -> Result<RunHandle> {
        let (input, options) = (begins_with(&self.0.work, input)?, self.with_secrets(options));
        operations::start(session.engine(), session.key(), self.executor(), input, self.run_options(), options).await
    }

    /// Goes on with an unfinished run.
    pub async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        let options = self.with_secrets(options);
        operations::resume(session.engine(), session.key(), self.executor(), self.run_options(), options).await
    }

    /// Ends its MCP servers; runs that use them fail from then on.
    pub async fn shutdown(&self) {
        for server in &self.0.servers {
            server.shutdown().await;
        }
    }

    /// `options` with where the file's secrets are: what was said otherwise counts more.
    fn with_secrets(&self, options: ResumeOptions) -> ResumeOptions {
        let secrets = self.0.secrets.iter();
        secrets.fold(options, |options, (name, reference)| options.default_secret(name, reference.clone()))
    }
}

/// What workers run. An input is what [`Definition::job_input`](crate::Definition::job_input) makes.
#[rekindle::async_trait]
impl worker::Work for Built {
    fn name(&self) -> &str {
        self.name()
    }

    async fn start(&self, session: &Session, input: Json, options: ResumeOptions) -> Result<RunHandle> {
        let (input, options) = (Input::Value(input), self.with_secrets(options));
        operations::start(session.engine(), session.key(), self.executor(), input, self.run_options(), options).await
    }

    async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        self.resume(session, options).await
    }
}

/// An input as its executor takes it.
fn begins_with(work: &Work, input: RunInput) -> Result<Input> {
    match work {
        Work::Agent(agent) => match (input.text, input.values.is_empty()) {
            (Some(text), true) => Ok(Input::Messages(vec![Message::user(text)])),
            (None, true) => {
                Err(Error::invalid(format!("the agent `{}` must be told something", agent.name())).hint("give it text"))
            }
            (_, false) => Err(Error::invalid(format!("the agent `{}` takes text and no values", agent.name()))
                .hint("put the values into the text")),
        },
        Work::Plan(_) => {
            let input = PlanInput { query: input.text, context: input.values.into_iter().collect() };
            Ok(Input::Value(Json::of(&input)?))
        }
        Work::Graph(graph) => {
            let mut memory: BTreeMap<String, Value> = input.values.into_iter().collect();
            if let Some(text) = input.text {
                let key = only_input(graph, &memory)?;
                memory.insert(key, Value::String(text));
            }
            Ok(Input::Value(Json::of(&GraphInput { memory })?))
        }
    }
}

/// The input that text is for.
fn only_input(graph: &Graph, given: &BTreeMap<String, Value>) -> Result<String> {
    let inputs = &graph.spec().inputs;
    let open: Vec<&String> = inputs.iter().filter(|key| !given.contains_key(*key)).collect();
    match open.as_slice() {
        [only] => Ok((*only).clone()),
        _ if inputs.is_empty() => Err(Error::invalid(format!("the graph `{}` takes no input", graph.name()))
            .hint("start it without text, or give values for its memory")),
        _ => {
            let names = list(inputs.iter().map(String::as_str));
            Err(Error::invalid(format!("text does not say which input of the graph `{}` is meant", graph.name()))
                .hint(format!("give values by name; its inputs are {names}")))
        }
    }
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("kind", &self.kind()).field("name", &self.name()).finish_non_exhaustive()
    }
}
