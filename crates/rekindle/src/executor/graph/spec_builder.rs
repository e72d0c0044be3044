//! Nodes and edges written in Rust.

use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::record::WaitKind;
use serde_json::{Map, Value};

use super::condition::Condition;
use super::spec::{EdgeSpec, Merge, NodeSpec, WaitNode, Work};
use crate::executor::plan::RetrySpec;

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
