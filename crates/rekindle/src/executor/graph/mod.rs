//! The graph executor: nodes that do something, and edges that say what comes next.

mod condition;
mod config;
mod spec;
mod state;

pub use condition::{Condition, Test};
pub use config::CheckpointConfig;
pub use spec::{EdgeSpec, GraphSpec, Merge, NodeSpec, WaitNode, Work};
pub use state::{GraphMetrics, Visited};

pub(crate) use state::{check_register, is_mid_turn};

use rekindle_core::{Journal, Record, Result, State};

/// The name under which sessions remember this executor.
pub(crate) const KIND: &str = "graph";

/// The records that give up an unfinished turn.
pub(crate) fn closing(state: &State, _journal: &Journal, _why: &str) -> Result<Vec<Record>> {
    Ok(state.waits().map(crate::wait::cancelled).collect())
}

/// The number of the last visit.
pub(crate) fn step(state: &State) -> Option<u64> {
    state::GraphRegister::load(state).ok().map(|graph| graph.step)
}
