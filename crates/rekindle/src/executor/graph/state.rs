//! Where a graph stands, as the session's registers and logs say it.
//!
//! | name | holds |
//! | --- | --- |
//! | register `graph` | [`GraphRegister`] |
//! | register `strand/<id>` | [`Strand`]: one line of execution; `0` is the first |
//! | register `memory/<key>` | the memory, one register for each key |
//! | register `overlay/<strand>/<key>` | what a strand wrote since it was split off |
//! | register `visits/<node>` | how often the node was visited in this turn |
//! | register `metrics/<node>` | [`NodeMetrics`] of a node that did not go smoothly |
//! | log `path` | [`Visited`] for each node that was completed |
//! | registers `node/<scope>/…`, log `messages/<scope>` | the loop of an agent node |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use rekindle_core::record::{RegisterSet, RegisterUnset};
use rekindle_core::{Json, LogName, Record, Result, State};
use serde::{Deserialize, Serialize};

use crate::driver::register;

/// The register that says which run of the graph this is.
pub const GRAPH: &str = "graph";
/// The prefix of the registers of strands.
pub const STRAND: &str = "strand/";
/// The prefix of what strands wrote.
pub(crate) const OVERLAY: &str = "overlay/";
/// The prefix of the counts of visits.
pub const VISITS: &str = "visits/";
/// The prefix of what went wrong on the way.
pub const METRICS: &str = "metrics/";
/// The strand every run begins with.
pub const ROOT: &str = "0";

/// The log of the nodes that were completed.
pub fn path() -> LogName {
    static NAME: LazyLock<LogName> = LazyLock::new(|| LogName::new("path").expect("`path` is a legal name of a log"));
    NAME.clone()
}

/// Which run of the graph this is, how far it has come, and whether it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphRegister {
    /// The turn, from 1: each time the graph is run anew.
    pub turn: u64,
    /// How many visits have begun in the session; never repeated.
    pub step: u64,
    /// Whether it has come to its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// How many nodes of earlier turns stand in the path.
    #[serde(default, skip_serializing_if = "none")]
    pub path_from: usize,
    /// How many visits of earlier turns have begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step_from: u64,
}

/// What a strand does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The node is next and has not begun.
    #[default]
    Ready,
    /// The node has begun and not ended.
    Running,
    /// The node failed; a resume tries it anew.
    Failed,
    /// The node is completed, and none of its edges held; a resume looks again.
    Choosing,
    /// It was split; it goes on with the node when its strands have arrived there.
    Split,
    /// It has arrived where the strands meet.
    Arrived,
    /// It has come to the end of the graph, at the node.
    Ended,
}

/// One line of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Strand {
    /// Where it is.
    pub node: String,
    /// What it does there.
    pub phase: Phase,
    /// The number of the visit that has begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step: u64,
    /// How often this visit failed for good: each resume tries it anew.
    #[serde(default, skip_serializing_if = "never")]
    pub failures: u32,
    /// The turn of the agent that works in the node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u64,
    /// How many strands it was split into.
    #[serde(default, skip_serializing_if = "none")]
    pub strands: usize,
    /// What the node said when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(step: &u64) -> bool {
    *step == 0
}

fn never(failures: &u32) -> bool {
    *failures == 0
}

fn none(strands: &usize) -> bool {
    *strands == 0
}

/// A node that was completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Visited {
    /// The number of the visit in the session, from 1.
    pub step: u64,
    /// The node.
    pub node: String,
    /// Which visit of the node it was in this run, from 1.
    pub visit: u64,
    /// The strand, unless it is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strand: Option<String>,
    /// What came next; nothing at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// The keys of the memory it wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<String>,
    /// What it gave back, where that does not stand in the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// What it said, if it failed and the graph went on by an edge for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took, all tries together.
    #[serde(default)]
    pub duration_ms: u64,
}

/// What went wrong in one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// How often its calls were tried again.
    #[serde(default)]
    pub retries: u64,
    /// How often it failed for good.
    #[serde(default)]
    pub failures: u64,
}

/// What went wrong on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphMetrics {
    /// How often calls were tried again.
    pub total_retries: u64,
    /// The nodes that failed at least once.
    pub nodes_with_failures: BTreeSet<String>,
}

impl GraphMetrics {
    pub(crate) fn load(state: &State) -> Result<Self> {
        let mut metrics = Self::default();
        for (key, value) in state.registers_under(METRICS) {
            let node: NodeMetrics = value.decode()?;
            metrics.total_retries = metrics.total_retries.saturating_add(node.retries);
            if node.failures > 0 {
                let name = key.as_str().strip_prefix(METRICS).unwrap_or_default();
                metrics.nodes_with_failures.insert(name.to_owned());
            }
        }
        Ok(metrics)
    }
}

impl GraphRegister {
    pub(crate) fn load(state: &State) -> Result<Self> {
        Ok(state.register(GRAPH).map(Json::decode).transpose()?.unwrap_or_default())
    }

    pub(crate) fn record(&self) -> Result<Record> {
        Ok(RegisterSet::new(register(GRAPH)?, Json::of(self)?).into())
    }
}

impl Visited {
    /// Visit `visit` of `node`, the `step`th of the session, of which nothing else is known.
    pub fn new(step: u64, node: &str, visit: u64) -> Self {
        Self {
            step,
            node: node.to_owned(),
            visit,
            strand: None,
            next: Vec::new(),
            wrote: Vec::new(),
            output: None,
            error: None,
            duration_ms: 0,
        }
    }
}

impl Strand {
    /// A strand that is to go on with `node`.
    pub fn ready(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Every strand of the state, by id.
    pub(crate) fn all(state: &State) -> Result<BTreeMap<String, Self>> {
        let strands = state.registers_under(STRAND);
        let strands = strands.filter_map(|(key, value)| Some((key.as_str().strip_prefix(STRAND)?, value)));
        strands.map(|(id, value)| Ok((id.to_owned(), value.decode()?))).collect()
    }

    pub(crate) fn record(&self, id: &str) -> Result<Record> {
        Ok(RegisterSet::new(register(&format!("{STRAND}{id}"))?, Json::of(self)?).into())
    }

    pub(crate) fn remove(id: &str) -> Result<Record> {
        Ok(RegisterUnset::new(register(&format!("{STRAND}{id}"))?).into())
    }
}

/// Whether the graph has not come to its end, as far as the state says.
pub(crate) fn is_mid_turn(state: &State) -> bool {
    GraphRegister::load(state).is_ok_and(|graph| graph.turn > 0 && !graph.done)
}

/// An error if a graph could not read `value` in the register `key`. Registers that are none of its
/// own take anything.
pub(crate) fn check_register(key: &str, value: &Json) -> Result<()> {
    match key {
        GRAPH => value.decode::<GraphRegister>().map(drop),
        _ if key.starts_with(STRAND) => value.decode::<Strand>().map(drop),
        _ if key.starts_with(VISITS) => value.decode::<u64>().map(drop),
        _ if key.starts_with(METRICS) => value.decode::<NodeMetrics>().map(drop),
        _ => Ok(()),
    }
}

/// An error if a graph could not read `item` in the log of that name. Logs that are none of its own
/// take anything.
pub(crate) fn check_item(log: &str, item: &Json) -> Result<()> {
    if log == path().as_str() { item.decode::<Visited>().map(drop) } else { Ok(()) }
}
