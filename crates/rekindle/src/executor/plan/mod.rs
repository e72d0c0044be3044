//! The plan executor: steps that call tools, in the order their dependencies demand.

mod spec;
mod state;

pub use spec::{PlanSpec, RetrySpec, StepSpec};
pub use state::{LastError, StepResult, StepStatus};
