//! A graph as it is written down: what files hold and what the builder makes.

use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::record::WaitKind;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::condition::Condition;
use crate::driver::CheckpointConfig;
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

impl GraphSpec {
    /// The JSON Schema of graphs in files.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }
}

impl Work {
    /// Every value it is given, with the field it stands in.
    pub(super) fn values_mut(&mut self) -> Vec<(&'static str, &mut Value)> {
        let (field, given) = match self {
            Self::Function { arguments, .. } | Self::Tool { arguments, .. } => ("arguments", arguments),
            Self::Plan { context, .. } => ("context", context),
            Self::Graph { memory, .. } => ("memory", memory),
            Self::Wait(wait) => {
                let fields = [("shows", &mut wait.shows), ("schema", &mut wait.schema), ("default", &mut wait.default)];
                return fields.into_iter().filter_map(|(field, value)| Some((field, value.as_mut()?))).collect();
            }
            Self::Agent { .. } | Self::Router { .. } => return Vec::new(),
        };
        given.values_mut().map(|value| (field, value)).collect()
    }

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
