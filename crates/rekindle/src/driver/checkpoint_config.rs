//! When a graph makes checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Frequency, Smart};

/// When a graph makes checkpoints, and how many it keeps. It is set for a graph, for an engine and
/// for a run; the last one counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Before a node runs.
    pub on_node_start: bool,
    /// After a node has run, with what comes next.
    pub on_node_complete: bool,
    /// Before an edge is followed.
    pub on_edge: bool,
    /// After each iteration of an agent inside a node.
    pub on_loop_iteration: bool,
    /// After every so many iterations of an agent inside a node; zero never.
    pub every_n_iterations: u32,
    /// How many automatic checkpoints a session keeps; zero keeps all.
    pub max_per_session: usize,
    /// How many nodes run between two looks at how many there are.
    pub prune_after_node_count: u64,
    /// Whether checkpoints after a failure go when a run ends well.
    pub keep_clean_only: bool,
    /// Whether the run goes on while a commit is written. Side effects wait for theirs either way.
    #[serde(rename = "async")]
    pub asynchronous: bool,
    /// Whether the conversations of agents are shown with a checkpoint. They are stored either way.
    pub include_conversations: bool,
    /// Whether the memory is shown with a checkpoint. It is stored either way.
    pub include_full_memory: bool,
    /// Instead of every node: before risky nodes, and after slow or large ones.
    pub smart: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            on_node_start: true,
            on_node_complete: true,
            on_edge: false,
            on_loop_iteration: false,
            every_n_iterations: 0,
            max_per_session: 100,
            prune_after_node_count: 10,
            keep_clean_only: false,
            asynchronous: true,
            include_conversations: true,
            include_full_memory: true,
            smart: false,
        }
    }
}

impl CheckpointConfig {
    /// When iterations of agents inside nodes are marked.
    pub(crate) fn iterations(&self) -> Frequency {
        match (self.on_loop_iteration, self.every_n_iterations) {
            (true, _) => Frequency::PerIteration,
            (false, 0) => Frequency::Manual,
            (false, n) => Frequency::Every(n),
        }
    }

    /// What is marked when not every node is.
    pub(crate) fn smartly(&self) -> Option<Smart> {
        self.smart.then(Smart::default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let text = serde_json::to_string(&CheckpointConfig::default()).unwrap();
        let expected = r#"{"on_node_start":true,"on_node_complete":true,"on_edge":false,"on_loop_iteration":false,"every_n_iterations":0,"max_per_session":100,"prune_after_node_count":10,"keep_clean_only":false,"async":true,"include_conversations":true,"include_full_memory":true,"smart":false}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<CheckpointConfig>("{}").unwrap(), CheckpointConfig::default());
        assert!(serde_json::from_str::<CheckpointConfig>(r#"{"on_node":true}"#).is_err());
    }
}
