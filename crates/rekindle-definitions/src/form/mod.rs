//! What may stand in files, as types: their documentation is the documentation of the schemas.
//! Nothing here reads files or builds anything.

mod agent;
mod budgets;
mod checkpoints;
mod file;
mod mcp;
mod model;
mod options;
mod period;
mod policy;
mod reference;
mod retention;
mod script;
mod secret;
mod split;
mod surroundings;
mod tool;

pub use agent::{AgentSpec, ReductionSpec};
pub use budgets::{BudgetsSpec, Money};
pub use checkpoints::{CheckpointName, CheckpointsSpec, SmartSpec};
pub(crate) use file::{AgentFile, GraphFile, Head, PlanFile, keys_of, root_schema};
pub use mcp::McpEntry;
pub(crate) use model::Named;
pub use model::{ModelSettings, ModelSpec, PriceSpec, Provider};
pub use options::{DamagedInboxName, DurabilityName, OnWaitName, PersistFailureName, RunOptionsSpec};
pub use period::Period;
pub use policy::PolicySpec;
pub(crate) use policy::retries;
pub(crate) use reference::Reference;
pub use retention::{RetentionSpec, Tags};
pub(crate) use script::ScriptForm;
pub(crate) use secret::SecretName;
pub use secret::SecretText;
pub(crate) use split::Split;
pub(crate) use surroundings::{Crew, FileAccessName, Surroundings};
pub(crate) use tool::{BodySpec, HttpSpec, OutputName, QuestionSpec, StdinSpec, ToolEntry};
