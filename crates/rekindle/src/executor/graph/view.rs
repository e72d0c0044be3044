//! A graph as people see it: where it stands, the way it came, and what came of a run.

use std::collections::{BTreeMap, HashSet};

use rekindle_core::record::RunOutcome;
use rekindle_core::{Json, Result, State};
use serde::{Deserialize, Serialize};

use super::agent_node::is_of_turn;
use super::draw::Trail;
use super::node::{layer, parent};
use super::spec::GraphSpec;
use super::state::{GraphMetrics, GraphRegister, Phase, ROOT, Strand, VISITS, Visited, path};
use crate::driver::{CheckpointConfig, MEMORY, RunReport};
use crate::message::Message;

/// Where a graph stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GraphState {
    /// The lines of execution; one unless it fanned out.
    pub strands: Vec<StrandView>,
    /// The nodes that were completed, in order.
    pub path: Vec<Visited>,
    /// The memory.
    pub memory: BTreeMap<String, Json>,
    /// What nodes wrote last, by key; of the memory, what did not come from outside.
    pub outputs: BTreeMap<String, Json>,
    /// How often each node was visited.
    pub visits: BTreeMap<String, u64>,
    /// What went wrong on the way.
    pub metrics: GraphMetrics,
    /// The conversations of agents, by node and visit.
    pub conversations: BTreeMap<String, Vec<Message>>,
    /// Whether it has come to its end.
    pub done: bool,
}

/// One line of execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StrandView {
    /// Its name; `0` is the first.
    pub strand: String,
    /// The node it is at.
    pub node: String,
    /// What it does there.
    pub status: StrandStatus,
    /// Why the node failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it wrote since it was split off; it becomes part of the memory where strands meet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, Json>,
}

/// What a line of execution does at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StrandStatus {
    /// The node is next.
    Next,
    /// The node has begun and not ended.
    Running,
    /// The node failed.
    Failed,
    /// The node is completed and none of its edges held.
    Stuck,
    /// It waits there for the strands it was split into.
    Split,
    /// It waits there for the others.
    Arrived,
    /// It has come to its end there.
    Ended,
}

impl From<Phase> for StrandStatus {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Ready => Self::Next,
            Phase::Running => Self::Running,
            Phase::Failed => Self::Failed,
            Phase::Choosing => Self::Stuck,
            Phase::Split => Self::Split,
            Phase::Arrived => Self::Arrived,
            Phase::Ended => Self::Ended,
        }
    }
}

impl GraphState {
    /// As `state` says.
    pub fn of(state: &State) -> Result<Self> {
        let at = GraphRegister::load(state)?;
        let taken: Vec<Visited> = state
            .log(&path())
            .get(at.path_from..)
            .unwrap_or_default()
            .iter()
            .map(Json::decode)
            .collect::<Result<_>>()?;
        let memory = stripped(state, MEMORY);
        let wrote: HashSet<&String> = taken.iter().flat_map(|visited| &visited.wrote).collect();
        let strands = Strand::all(state)?.into_iter().map(|(strand, at)| StrandView {
            strand,
            node: at.node,
            status: at.phase.into(),
            memory: BTreeMap::new(),
            error: at.error,
        });
        let strands = strands.map(|mut view| {
            if parent(&view.strand).is_some() {
                view.memory = stripped(state, &layer(&view.strand));
            }
            view
        });
        let mut visits = BTreeMap::new();
        for (node, count) in stripped(state, VISITS) {
            visits.insert(node, count.decode()?);
        }
        Ok(Self {
            strands: strands.collect(),
            outputs: memory
                .iter()
                .filter(|(key, _)| wrote.contains(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            memory,
            visits,
            metrics: GraphMetrics::load(state)?,
            conversations: conversations(state, &at)?,
            done: at.done,
            path: taken,
        })
    }

    /// Of conversations and memory only what `config` wants shown.
    #[must_use]
    pub fn shown(mut self, config: &CheckpointConfig) -> Self {
        if !config.include_conversations {
            self.conversations.clear();
        }
        if !config.include_full_memory {
            self.memory.clear();
            self.strands.iter_mut().for_each(|strand| strand.memory.clear());
        }
        self
    }

    /// The nodes that are next or under way.
    pub fn current(&self) -> Vec<&str> {
        let current = |strand: &&StrandView| matches!(strand.status, StrandStatus::Next | StrandStatus::Running);
        self.strands.iter().filter(current).map(|strand| strand.node.as_str()).collect()
    }

    /// The names of the nodes that were completed, in order.
    pub fn execution_path(&self) -> Vec<&str> {
        self.path.iter().map(|visited| visited.node.as_str()).collect()
    }

    /// The graph with the way it came, as Mermaid.
    pub fn to_mermaid(&self, graph: &GraphSpec) -> String {
        graph.to_mermaid(&self.trail())
    }

    /// The graph with the way it came, as SVG.
    pub fn to_svg(&self, graph: &GraphSpec) -> String {
        graph.to_svg(&self.trail())
    }

    fn trail(&self) -> Trail<'_> {
        let failed = self.strands.iter().filter(|strand| strand.status == StrandStatus::Failed);
        Trail::of(&self.path)
            .current(self.current().into_iter().map(str::to_owned).collect::<Vec<_>>())
            .failed(failed.map(|strand| strand.node.clone()).collect::<Vec<_>>())
    }
}

fn stripped(state: &State, prefix: &str) -> BTreeMap<String, Json> {
    let under = state.registers_under(prefix);
    under.filter_map(|(key, value)| Some((key.as_str().strip_prefix(prefix)?.to_owned(), value.clone()))).collect()
}

/// The conversations of this run of the graph.
fn conversations(state: &State, at: &GraphRegister) -> Result<BTreeMap<String, Vec<Message>>> {
    let logs = state.logs().filter_map(|(name, items)| Some((name.as_str().strip_prefix("messages/")?, items)));
    let logs = logs.filter(|(name, _)| is_of_turn(name, at.turn, at.step_from));
    logs.map(|(node, items)| Ok((node.to_owned(), items.iter().map(Message::from_json).collect::<Result<_>>()?)))
        .collect()
}

/// What one run of a graph did, in short: the `value` of its [`RunReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphSummary {
    /// Whether it came to its end.
    pub success: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time spent working, over all runs since the graph was started.
    pub total_duration_ms: u64,
    /// Tokens used, over all runs since the graph was started.
    pub tokens: u64,
    /// How many visits this run brought to their end.
    pub nodes_visited: u64,
}

/// What came of a run of a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GraphResult {
    /// Whether it came to its end.
    pub success: bool,
    /// Where it stands.
    pub state: GraphState,
    /// Why it did not come to its end.
    pub error: Option<String>,
    /// Time spent working, over all runs since the graph was started.
    pub total_duration_ms: u64,
    /// Tokens used, over all runs since the graph was started.
    pub tokens: u64,
    /// How many visits this run brought to their end.
    pub nodes_visited: u64,
    /// The run.
    pub report: RunReport,
}

impl GraphResult {
    pub(super) fn new(state: GraphState, report: RunReport) -> Result<Self> {
        let success = report.outcome == RunOutcome::Succeeded;
        let error = (!success).then(|| report.reason.clone());
        let summary: Option<GraphSummary> = report.value.as_ref().map(Json::decode).transpose()?;
        let nodes_visited = summary.map_or(0, |summary| summary.nodes_visited);
        let total_duration_ms = report.spent.active_micros / 1_000;
        let tokens = report.spent.of(crate::Budget::Tokens);
        Ok(Self { success, state, error, total_duration_ms, tokens, nodes_visited, report })
    }

    /// A key of the memory, decoded.
    pub fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        self.state.memory.get(key).map(Json::decode).transpose()
    }
}

/// The node a run begins with, as its strand says it.
pub(super) fn first(entry: &str) -> Result<rekindle_core::Record> {
    Strand::ready(entry).record(ROOT)
}
