//! Stored forms of the built-in executors: the names of their registers and logs, and the values that stand there.
//! For programs that write sessions without running them, such as importers. No behaviour lives here.
//!
//! A session written in these forms is resumed by the executor as if it had run the session itself.
//! The structs are non-exhaustive: later versions add fields, and values begin with their defaults.

pub use crate::driver::MEMORY;

/// Stored forms of the agent loop.
pub mod agent {
    use rekindle_core::{EffectId, Result};

    pub use crate::executor::agent::state::{LOOP, LoopState, MESSAGES_OF, Phase, Scope};
    use crate::message::ToolCall;
    pub use crate::message::conversation as messages;

    /// Returns the effect that stands for a call of a tool: `number` is the place of the call in the answer of `step`.
    pub fn call_effect(scope: &Scope, step: u64, number: usize, call: &ToolCall) -> Result<EffectId> {
        crate::executor::agent::call_effect(scope, step, number, call)
    }
}

/// Stored forms of plans. Their statuses and results are in [`plan`](crate::plan).
pub mod plan {
    pub use crate::executor::plan::state::{PLAN, PlanRegister, STEP, StepRegister, results};
}

/// Stored forms of graphs. The entries of their path are in [`graph`](crate::graph).
pub mod graph {
    pub use crate::executor::graph::state::{
        GRAPH, GraphRegister, METRICS, NodeMetrics, Phase, ROOT, STRAND, Strand, VISITS, path,
    };
}
