//! A graph as it is written down: what files hold and what the builder makes.

use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::record::WaitKind;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::condition::Condition;
use super::config::CheckpointConfig;
use crate::executor::duration;
use crate::executor::plan::RetrySpec;

/// A graph: nodes that do something, and edges that say what comes next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The node it begins with.
    pub entry: String,
    /// The keys of the memory a run must be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// The memory its runs begin with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, Value>,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// What comes after what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgeSpec>,
    /// How often a node may be visited in one run, unless it says so itself; a hundred times
    /// unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_visits: Option<u64>,
    /// How many nodes run at once; eight unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<usize>,
    /// When checkpoints are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointConfig>,
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("unevaluatedProperties" = false))]
pub struct NodeSpec {
    /// Its name in the graph: letters, digits, `_` and `-`.
    pub id: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What it does.
    #[serde(flatten)]
    pub work: Work,
    /// The keys of the memory it may read; a name that ends in `*` stands for all that begin so,
    /// one that ends in `?` for a key that may be missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// The keys of the memory it may write; a name that ends in `*` stands for all that begin so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Which part of its result (JSON Pointer; empty for all of it) goes into which key of the
    /// memory. If it may write one key and this says nothing, its result goes there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub save: BTreeMap<String, String>,
    /// How often it may be visited in one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_visits: Option<u64>,
    /// How passing failures are tried again, unless the tool's own way will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long one try may take, e.g. `30s`, unless the tool's own limit will do.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Duration>,
    /// Follows all edges that hold, at the same time, until they meet in this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_out: Option<String>,
    /// How the writes of what ran at the same time become one, by key; only where they meet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub merge: BTreeMap<String, Merge>,
    /// The moment after it is marked as one to come back to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe_point: bool,
    /// Whether a checkpoint is made before it when checkpoints are `smart`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub risky: bool,
    /// What the builder was told that does not suit the kind of work.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) misplaced: Vec<&'static str>,
}

/// A node as it comes in: what is said about its work is read last, so that a word nobody knows is
/// not passed over.
#[derive(Deserialize)]
struct RawNode {
    id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    #[serde(default)]
    save: BTreeMap<String, String>,
    #[serde(default)]
    max_visits: Option<u64>,
    #[serde(default)]
    retry: Option<RetrySpec>,
    #[serde(default, with = "duration::optional")]
    timeout: Option<Duration>,
    #[serde(default)]
    fan_out: Option<String>,
    #[serde(default)]
    merge: BTreeMap<String, Merge>,
    #[serde(default)]
    safe_point: bool,
    #[serde(default)]
    risky: bool,
    #[serde(flatten)]
    work: Map<String, Value>,
}

impl<'de> Deserialize<'de> for NodeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawNode::deserialize(deserializer)?;
        let work = Work::deserialize(Value::Object(raw.work))
            .map_err(|error| D::Error::custom(format!("node `{}`: {error}", raw.id)))?;
        Ok(Self {
            id: raw.id,
            description: raw.description,
            work,
            reads: raw.reads,
            writes: raw.writes,
            save: raw.save,
            max_visits: raw.max_visits,
            retry: raw.retry,
            timeout: raw.timeout,
            fan_out: raw.fan_out,
            merge: raw.merge,
            safe_point: raw.safe_point,
            risky: raw.risky,
            misplaced: Vec::new(),
        })
    }
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// Calls a function of the program.
    Function {
        /// Its name; the node's own unless this says otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<String>,
        /// What it is given. `${memory.<key>…}` stands for what it names.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        arguments: Map<String, Value>,
    },
    /// Calls a tool.
    Tool {
        /// Its name.
        tool: String,
        /// What it is given. `${memory.<key>…}` stands for what it names.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        arguments: Map<String, Value>,
    },
    /// Has an agent work until it has an answer. Its conversation is part of the session.
    Agent {
        /// Its name.
        agent: String,
        /// What it is told. `${memory.<key>…}` stands for what it names.
        prompt: String,
        /// Whether it remembers what was said at earlier visits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
    },
    /// Carries out a plan, in a session of its own.
    Plan {
        /// Its name.
        plan: String,
        /// The request it is to answer.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        query: String,
        /// The working memory it begins with. `${memory.<key>…}` stands for what it names.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        context: Map<String, Value>,
    },
    /// Runs another graph, in a session of its own.
    Graph {
        /// Its name.
        graph: String,
        /// The memory it begins with. `${memory.<key>…}` stands for what it names.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        memory: Map<String, Value>,
    },
    /// Waits for a person, a signal or a time; the answer is the result.
    Wait(WaitNode),
    /// Does nothing but choose what comes next.
    Router {
        /// A function of the program that names the node, instead of the conditions of the edges.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choose: Option<String>,
    },
}

/// What a node waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitNode {
    /// What kind of wait it is.
    #[serde(default = "question")]
    #[schemars(with = "Option<WaitName>")]
    pub wait: WaitKind,
    /// What a person is shown, or the name of the signal. `${memory.<key>…}` stands for what it
    /// names.
    #[serde(default)]
    pub prompt: String,
    /// For an approval: exactly what is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows: Option<Value>,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// How many must agree to an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u32>,
    /// When to remind, e.g. `1h`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub remind_after: Option<Duration>,
    /// When it ends by itself, e.g. `2d`.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub expires_after: Option<Duration>,
    /// What counts as the answer then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

impl Default for WaitNode {
    /// A question that says nothing.
    fn default() -> Self {
        Self {
            wait: WaitKind::Question,
            prompt: String::new(),
            shows: None,
            schema: None,
            approvals: None,
            remind_after: None,
            expires_after: None,
            default: None,
        }
    }
}

fn question() -> WaitKind {
    WaitKind::Question
}

/// The names of the kinds of waits, for the schema.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only its schema is used")]
enum WaitName {
    Question,
    Approval,
    Signal,
    Timer,
}

/// What may come after a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EdgeSpec {
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// When. Without it, always after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// Of the edges that hold, the one with the highest priority is followed; among equals, the
    /// first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Followed if no other edge holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
}

fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

/// How writes of one key that were made at the same time become one. Their order is the order of
/// the edges they came from, never that of the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// They do not: different values are an error.
    #[default]
    Error,
    /// The first counts.
    First,
    /// The last counts.
    Last,
    /// All are appended to the list that was there before.
    Append,
    /// A function of the program decides.
    Reducer(String),
}

impl NodeSpec {
    /// A node that does `work`.
    pub fn new(id: impl Into<String>, work: Work) -> Self {
        Self {
            id: id.into(),
            description: String::new(),
            work,
            reads: Vec::new(),
            writes: Vec::new(),
            save: BTreeMap::new(),
            max_visits: None,
            retry: None,
            timeout: None,
            fan_out: None,
            merge: BTreeMap::new(),
            safe_point: false,
            risky: false,
            misplaced: Vec::new(),
        }
    }

    /// Calls the function of the node's own name.
    pub fn function(id: impl Into<String>) -> Self {
        Self::new(id, Work::Function { function: None, arguments: Map::new() })
    }

    /// Calls a tool.
    pub fn tool(id: impl Into<String>, tool: impl Into<String>) -> Self {
        Self::new(id, Work::Tool { tool: tool.into(), arguments: Map::new() })
    }

    /// Has an agent work.
    pub fn agent(id: impl Into<String>, agent: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self::new(id, Work::Agent { agent: agent.into(), prompt: prompt.into(), continues: false })
    }

    /// Carries out a plan.
    pub fn plan(id: impl Into<String>, plan: impl Into<String>) -> Self {
        Self::new(id, Work::Plan { plan: plan.into(), query: String::new(), context: Map::new() })
    }

    /// Runs another graph.
    pub fn graph(id: impl Into<String>, graph: impl Into<String>) -> Self {
        Self::new(id, Work::Graph { graph: graph.into(), memory: Map::new() })
    }

    /// Asks a person.
    pub fn question(id: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self::new(id, Work::Wait(WaitNode { prompt: prompt.into(), ..WaitNode::default() }))
    }

    /// Asks a person to agree to exactly what is shown. If it is rejected, the node fails.
    pub fn approval(id: impl Into<String>, prompt: impl Into<String>, shows: impl Into<Value>) -> Self {
        let (wait, shows) = (WaitKind::Approval, Some(shows.into()));
        Self::new(id, Work::Wait(WaitNode { wait, shows, prompt: prompt.into(), ..WaitNode::default() }))
    }

    /// Waits for a signal from outside.
    pub fn signal(id: impl Into<String>, signal: impl Into<String>) -> Self {
        Self::new(id, Work::Wait(WaitNode { wait: WaitKind::Signal, prompt: signal.into(), ..WaitNode::default() }))
    }

    /// Waits for so long.
    pub fn timer(id: impl Into<String>, after: Duration) -> Self {
        let (wait, expires_after) = (WaitKind::Timer, Some(after));
        Self::new(id, Work::Wait(WaitNode { wait, expires_after, ..WaitNode::default() }))
    }

    /// Chooses what comes next.
    pub fn router(id: impl Into<String>) -> Self {
        Self::new(id, Work::Router { choose: None })
    }

    /// What it is for.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The agent remembers what was said at earlier visits.
    #[must_use]
    pub fn continues(mut self) -> Self {
        match &mut self.work {
            Work::Agent { continues, .. } => *continues = true,
            _ => self.misplaced.push("continues"),
        }
        self
    }

    /// Calls the function of that name instead of its own.
    #[must_use]
    pub fn calls(mut self, name: impl Into<String>) -> Self {
        match &mut self.work {
            Work::Function { function, .. } => *function = Some(name.into()),
            _ => self.misplaced.push("function"),
        }
        self
    }

    /// A function of that name chooses what comes next.
    #[must_use]
    pub fn chosen_by(mut self, name: impl Into<String>) -> Self {
        match &mut self.work {
            Work::Router { choose } => *choose = Some(name.into()),
            _ => self.misplaced.push("choose"),
        }
        self
    }

    /// The request the plan is to answer.
    #[must_use]
    pub fn query(mut self, request: impl Into<String>) -> Self {
        match &mut self.work {
            Work::Plan { query, .. } => *query = request.into(),
            _ => self.misplaced.push("query"),
        }
        self
    }

    /// Gives the function, the tool, the plan or the graph one more argument.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        match &mut self.work {
            Work::Function { arguments: given, .. }
            | Work::Tool { arguments: given, .. }
            | Work::Plan { context: given, .. }
            | Work::Graph { memory: given, .. } => drop(given.insert(name.into(), value.into())),
            Work::Agent { .. } | Work::Wait(_) | Work::Router { .. } => self.misplaced.push("arguments"),
        }
        self
    }

    /// May read these keys of the memory.
    #[must_use]
    pub fn reads<I>(mut self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.reads.extend(keys.into_iter().map(Into::into));
        self
    }

    /// May write these keys of the memory.
    #[must_use]
    pub fn writes<I>(mut self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.writes.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Puts the part of its result at `pointer` into `key`.
    #[must_use]
    pub fn save(mut self, key: impl Into<String>, pointer: impl Into<String>) -> Self {
        self.save.insert(key.into(), pointer.into());
        self
    }

    /// May be visited so often in one run.
    #[must_use]
    pub fn max_visits(mut self, visits: u64) -> Self {
        self.max_visits = Some(visits);
        self
    }

    /// How passing failures are tried again.
    #[must_use]
    pub fn retry(mut self, retries: impl Into<RetrySpec>) -> Self {
        self.retry = Some(retries.into());
        self
    }

    /// How long one try may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Follows all edges that hold at the same time, until they meet in the node `join`.
    #[must_use]
    pub fn fan_out(mut self, join: impl Into<String>) -> Self {
        self.fan_out = Some(join.into());
        self
    }

    /// How writes of `key` that were made at the same time become one here.
    #[must_use]
    pub fn merge(mut self, key: impl Into<String>, merge: Merge) -> Self {
        self.merge.insert(key.into(), merge);
        self
    }

    /// The moment after it is marked as one to come back to.
    #[must_use]
    pub fn safe_point(mut self) -> Self {
        self.safe_point = true;
        self
    }

    /// A checkpoint is made before it when checkpoints are `smart`.
    #[must_use]
    pub fn risky(mut self) -> Self {
        self.risky = true;
        self
    }
}

impl EdgeSpec {
    /// From one node to another, always after a success.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into(), when: None, priority: 0, default: false }
    }

    /// Only if `condition` holds.
    #[must_use]
    pub fn when(mut self, condition: impl Into<Condition>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// Before edges of a lower priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Whether it can only be followed after a failure.
    pub(crate) fn is_for_failure(&self) -> bool {
        self.when.as_ref().is_some_and(Condition::is_about_failure)
    }

    /// If no other edge holds.
    #[must_use]
    pub fn or_else(mut self) -> Self {
        self.default = true;
        self
    }
}

impl GraphSpec {
    /// The JSON Schema of graphs in files.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }
}

impl Work {
    /// What kind of node it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Function { .. } => "function",
            Self::Tool { .. } => "tool",
            Self::Agent { .. } => "agent",
            Self::Plan { .. } => "plan",
            Self::Graph { .. } => "graph",
            Self::Wait(_) => "wait",
            Self::Router { .. } => "router",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_and_written() {
        let texts = [
            r#"{"id":"a","kind":"function"}"#,
            r#"{"id":"a","kind":"tool","tool":"t","arguments":{"n":1},"reads":["k"],"save":{"x":"/y"},"timeout":"30s"}"#,
            r#"{"id":"a","kind":"agent","agent":"w","prompt":"go","continues":true,"writes":["k"]}"#,
            r#"{"id":"a","kind":"wait","wait":"approval","prompt":"ok?","expires_after":"2d"}"#,
            r#"{"id":"a","kind":"router","fan_out":"j"}"#,
            r#"{"id":"a","kind":"function","merge":{"x":"append","y":{"reducer":"sum"}}}"#,
        ];
        for text in texts {
            let node: NodeSpec = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&node).unwrap(), text);
        }
    }

    #[test]
    fn words_nobody_knows_are_refused() {
        let texts = [
            (r#"{"id":"a","kind":"agent","agent":"w","promt":"go","prompt":"x"}"#, "`promt`"),
            (r#"{"id":"a","kind":"router","tool":"x"}"#, "`tool`"),
            (r#"{"id":"a","kind":"wait","prompt":"x","timout":"3s"}"#, "`timout`"),
            (r#"{"id":"a","kind":"loop"}"#, "`loop`"),
            (r#"{"id":"a","kind":"router","timeout":"3 weeks"}"#, "3 weeks"),
        ];
        for (text, word) in texts {
            let error = serde_json::from_str::<NodeSpec>(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
