//! Building a graph.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, OnceLock};

use rekindle_core::{Error, Json, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::check::{check_nesting, check_references, check_shape, saved};
use super::join::Reducer;
use super::node::{Choose, GraphMemory, Node, Prepared};
use super::output::SetOutput;
use super::spec::{EdgeSpec, GraphSpec, NodeSpec, Work};
use super::wait::WaitTool;
use super::{Graph, Inner, VISITS_IN_A_RUN};
use crate::driver::{Budgets, CheckpointConfig, RunOptions, run_option_setters};
use crate::executor::agent::Agent;
use crate::executor::call::Entry;
use crate::executor::faults::Faults;
use crate::executor::plan::Plan;
use crate::executor::reference::Template;
use crate::tool::{IntoOutput, Tool, ToolContext, ToolError, tool};

/// Builds a [`Graph`].
#[derive(Debug)]
pub struct GraphBuilder {
    spec: GraphSpec,
    functions: HashMap<String, Arc<dyn Tool>>,
    tools: HashMap<String, Arc<dyn Tool>>,
    agents: HashMap<String, Agent>,
    plans: HashMap<String, Plan>,
    graphs: HashMap<String, Graph>,
    reducers: BTreeMap<String, Reducer>,
    routers: HashMap<String, Choose>,
    options: RunOptions,
    /// What was registered twice under one name.
    twice: Vec<(&'static str, String)>,
}

impl GraphBuilder {
    pub(super) fn new(spec: GraphSpec) -> Self {
        Self {
            spec,
            functions: HashMap::new(),
            tools: HashMap::new(),
            agents: HashMap::new(),
            plans: HashMap::new(),
            graphs: HashMap::new(),
            reducers: BTreeMap::new(),
            routers: HashMap::new(),
            options: RunOptions::default(),
            twice: Vec::new(),
        }
    }

    /// One more node. The first one is where runs begin, unless [`GraphBuilder::entry`] says
    /// otherwise.
    #[must_use]
    pub fn node(mut self, node: NodeSpec) -> Self {
        if self.spec.entry.is_empty() {
            self.spec.entry.clone_from(&node.id);
        }
        self.spec.nodes.push(node);
        self
    }

    /// What may come after a node.
    #[must_use]
    pub fn edge(mut self, edge: EdgeSpec) -> Self {
        self.spec.edges.push(edge);
        self
    }

    /// One after the other, always.
    #[must_use]
    pub fn path<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let nodes: Vec<String> = nodes.into_iter().map(Into::into).collect();
        self.spec.edges.extend(nodes.windows(2).map(|pair| EdgeSpec::new(&pair[0], &pair[1])));
        self
    }

    /// The node it begins with.
    #[must_use]
    pub fn entry(mut self, node: impl Into<String>) -> Self {
        self.spec.entry = node.into();
        self
    }

    /// Keys of the memory that a run must be given.
    #[must_use]
    pub fn inputs<I>(mut self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.spec.inputs.extend(keys.into_iter().map(Into::into));
        self
    }

    /// The memory its runs begin with, one key of it.
    #[must_use]
    pub fn memory(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.spec.memory.insert(key.into(), value.into());
        self
    }

    /// A function that nodes of that name call. It only reads unless it is given as a tool that
    /// says otherwise: see [`GraphBuilder::tool`].
    #[must_use]
    pub fn function<A, F, Fut, T>(mut self, name: impl Into<String>, function: F) -> Self
    where
        A: JsonSchema + DeserializeOwned + Send + 'static,
        F: Fn(ToolContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
        T: IntoOutput,
    {
        let name = name.into();
        let known = self.functions.insert(name.clone(), Arc::new(tool(&name, "", function)));
        self.note_twice("functions", name, known.is_some())
    }

    /// A tool that nodes may call.
    #[must_use]
    pub fn tool(self, tool: impl Tool) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// A tool that is shared.
    #[must_use]
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        let name = tool.spec().name.clone();
        let known = self.tools.insert(name.clone(), tool);
        self.note_twice("tools", name, known.is_some())
    }

    /// An agent that nodes may have work.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        let name = agent.name().to_owned();
        let known = self.agents.insert(name.clone(), agent);
        self.note_twice("agents", name, known.is_some())
    }

    /// A plan that nodes may carry out.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        let name = plan.name().to_owned();
        let known = self.plans.insert(name.clone(), plan);
        self.note_twice("plans", name, known.is_some())
    }

    /// A graph that nodes may run.
    #[must_use]
    pub fn graph(mut self, graph: Graph) -> Self {
        let name = graph.name().to_owned();
        let known = self.graphs.insert(name.clone(), graph);
        self.note_twice("graphs", name, known.is_some())
    }

    fn note_twice(mut self, what: &'static str, name: String, is_known: bool) -> Self {
        self.twice.extend(is_known.then_some((what, name)));
        self
    }

    /// A function that makes one value of what was there before and of what was written at the same
    /// time, in the order of the edges.
    #[must_use]
    pub fn reducer<F>(mut self, name: impl Into<String>, reduce: F) -> Self
    where
        F: Fn(Option<&Value>, &[Value]) -> Result<Value> + Send + Sync + 'static,
    {
        self.reducers.insert(name.into(), Reducer(Arc::new(reduce)));
        self
    }

    /// A function by which a router names the node that comes next, one of those its edges lead to.
    #[must_use]
    pub fn router<F>(mut self, name: impl Into<String>, choose: F) -> Self
    where
        F: Fn(&GraphMemory<'_>) -> String + Send + Sync + 'static,
    {
        self.routers.insert(name.into(), Choose(Arc::new(choose)));
        self
    }

    /// How many nodes run at once.
    #[must_use]
    pub fn parallel(mut self, nodes: usize) -> Self {
        self.spec.parallel = Some(nodes);
        self
    }

    /// How often a node may be visited in one run, unless it says so itself.
    #[must_use]
    pub fn max_visits(mut self, visits: u64) -> Self {
        self.spec.max_visits = Some(visits);
        self
    }

    /// When checkpoints are made, unless the engine or a run says otherwise.
    #[must_use]
    pub fn checkpoints(mut self, config: CheckpointConfig) -> Self {
        self.spec.checkpoints = Some(config);
        self
    }

    run_option_setters!();

    /// What one execution of the graph may use: a visit counts as an iteration, and so does each
    /// call of a model inside a node.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.options.budgets = budgets;
        self
    }

    /// How its runs behave, all of it.
    #[must_use]
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// The graph. An error names everything that is wrong with it, each with its place.
    pub fn build(mut self) -> Result<Graph> {
        check_nesting(&mut self.spec)?;
        if let Some((what, name)) = self.twice.first() {
            return Err(Error::invalid(format!("there are two {what} named `{name}`")).hint("rename one of them"));
        }
        let reducers: HashSet<&str> = self.reducers.keys().map(String::as_str).collect();
        check_shape(&self.spec, &reducers)?;
        let mut faults = Faults::default();
        let mut nodes = Vec::new();
        let (mut edges, mut entries) = (self.edges_by_node(), Entries::new());
        for (number, spec) in self.spec.nodes.iter().enumerate() {
            let leaving = edges.remove(spec.id.as_str()).unwrap_or_default();
            let prepared = self.prepare(spec, leaving, &mut entries).and_then(|node| self.check(&node).map(|()| node));
            match prepared {
                Ok(node) => nodes.push(node),
                Err(why) => faults.add(format!("nodes[{number}] (node `{}`)", spec.id), why),
            }
        }
        faults.settle("the graph", &self.spec.name)?;
        let index = nodes.iter().enumerate().map(|(number, node)| (node.spec.id.clone(), number)).collect();
        let mut options = self.options;
        options.checkpoint_config = options.checkpoint_config.or_else(|| self.spec.checkpoints.clone());
        let inner = Inner { spec: self.spec, nodes, index, reducers: self.reducers, options, print: OnceLock::new() };
        Ok(Graph { inner: Arc::new(inner) })
    }

    fn prepare(&self, spec: &NodeSpec, edges: Vec<EdgeSpec>, entries: &mut Entries) -> Result<Node, String> {
        let save = saved(spec);
        let work = match &spec.work {
            Work::Function { function, arguments } => {
                let name = function.as_ref().unwrap_or(&spec.id);
                let found = self.functions.get(name).or_else(|| self.tools.get(name));
                call(entries, found.ok_or_else(|| missing("function", name, &self.functions))?, arguments)?
            }
            Work::Tool { tool, arguments } => {
                let found = self.tools.get(tool).ok_or_else(|| missing("tool", tool, &self.tools))?;
                call(entries, found, arguments)?
            }
            Work::Agent { agent, prompt, continues } => {
                let found = self.agents.get(agent).ok_or_else(|| missing("agent", agent, &self.agents))?;
                self.looped(spec, &save, found, prompt, *continues)?
            }
            Work::Plan { plan, query, context } => {
                let found = self.plans.get(plan).ok_or_else(|| missing("plan", plan, &self.plans))?;
                let mut arguments = Map::from_iter([("context".to_owned(), Value::Object(context.clone()))]);
                if !query.is_empty() {
                    arguments.insert("query".to_owned(), Value::String(query.clone()));
                }
                call(entries, &(Arc::new(found.as_tool("")) as Arc<dyn Tool>), &arguments)?
            }
            Work::Graph { graph, memory } => {
                let found = self.graphs.get(graph).ok_or_else(|| missing("graph", graph, &self.graphs))?;
                call(entries, &(Arc::new(found.as_tool("")) as Arc<dyn Tool>), memory)?
            }
            Work::Wait(wait) => {
                let waits: Arc<dyn Tool> = Arc::new(WaitTool::new(&spec.id, wait)?);
                call(entries, &waits, &WaitTool::arguments(wait))?
            }
            Work::Router { choose } => {
                let found = choose
                    .as_ref()
                    .map(|name| self.routers.get(name).cloned().ok_or_else(|| missing("router", name, &self.routers)));
                Prepared::Route { choose: found.transpose()? }
            }
        };
        let max_visits = spec.max_visits.or(self.spec.max_visits).unwrap_or(VISITS_IN_A_RUN);
        let implied = spec.save.is_empty() && !save.is_empty();
        Ok(Node { spec: spec.clone(), work, edges, save, implied, max_visits })
    }

    /// An agent, with the tool by which it gives back what is not its answer.
    fn looped(
        &self,
        spec: &NodeSpec,
        save: &BTreeMap<String, String>,
        agent: &Agent,
        prompt: &str,
        continues: bool,
    ) -> Result<Prepared, String> {
        let asked: Vec<String> =
            spec.writes.iter().filter(|key| !save.contains_key(*key) && !key.ends_with('*')).cloned().collect();
        let agent = match asked.is_empty() {
            true => agent.clone(),
            false => agent.with_tool(Arc::new(SetOutput::new(&asked))).map_err(|error| error.to_string())?,
        };
        Ok(Prepared::Loop { agent, prompt: Template::parse_text(prompt)?, continues, asked })
    }

    /// The edges of each node: by priority, in their order among equals.
    fn edges_by_node(&self) -> HashMap<String, Vec<EdgeSpec>> {
        let mut edges: HashMap<String, Vec<EdgeSpec>> = HashMap::new();
        for edge in &self.spec.edges {
            edges.entry(edge.from.clone()).or_default().push(edge.clone());
        }
        edges.values_mut().for_each(|edges| edges.sort_by_key(|edge| std::cmp::Reverse(edge.priority)));
        edges
    }

    fn check(&self, node: &Node) -> Result<(), String> {
        match &node.work {
            Prepared::Call { arguments: template, .. } | Prepared::Loop { prompt: template, .. } => {
                check_references(template, node)
            }
            Prepared::Route { .. } if node.edges.is_empty() => Err("a router needs edges".into()),
            Prepared::Route { choose: Some(_) } if node.spec.fan_out.is_some() => {
                Err("a router that names one node cannot fan out".into())
            }
            Prepared::Route { .. } => Ok(()),
        }
    }
}

/// What was prepared for tools, by where they are: nodes that call the same tool share its limit of
/// calls at once.
type Entries = HashMap<*const (), Arc<Entry>>;

fn call(entries: &mut Entries, tool: &Arc<dyn Tool>, arguments: &Map<String, Value>) -> Result<Prepared, String> {
    let entry = match entries.entry(Arc::as_ptr(tool).cast()) {
        Occupied(known) => Arc::clone(known.get()),
        // What is prepared holds the tool, so nothing else comes to lie where it is.
        Vacant(new) => {
            let entry = Entry::new(Arc::clone(tool)).map_err(|error| error.to_string())?;
            Arc::clone(new.insert(Arc::new(entry)))
        }
    };
    let arguments = Template::parse(&Value::Object(arguments.clone()))?;
    if let Template::Plain(value) = &arguments {
        let faults = entry.schema.faults(&Json::from(value.clone()));
        faults.map_err(|why| format!("the arguments do not fit `{}`: {why}", tool.spec().name))?;
    }
    Ok(Prepared::Call { entry, arguments })
}

fn missing<T>(what: &str, name: &str, known: &HashMap<String, T>) -> String {
    let mut names: Vec<_> = known.keys().map(String::as_str).collect();
    names.sort_unstable();
    names.truncate(20);
    let there = if names.is_empty() { "there are none".to_owned() } else { format!("there are: {}", names.join(", ")) };
    format!("there is no {what} `{name}`; {there}")
}

/// An error for something that was asked of a node that is not in the graph.
pub(super) fn no_node(id: &str) -> Error {
    Error::not_found(format!("the graph has no node `{id}`"))
}
