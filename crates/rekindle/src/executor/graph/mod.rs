//! The graph executor: nodes that do something, and edges that say what comes next.

mod condition;
mod config;
mod spec;
mod state;

pub use condition::{Condition, Test};
pub use config::CheckpointConfig;
pub use spec::{EdgeSpec, GraphSpec, Merge, NodeSpec, WaitNode, Work};
pub use state::{GraphMetrics, Visited};
