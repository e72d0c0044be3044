//! Tools: what an agent can do to the world, and what the engine must know to do it once.

mod context;
mod effort;
mod function;
mod group;
mod lease;
mod leftovers;
mod options;
mod output;
mod schema;

use std::fmt;

use async_trait::async_trait;
use rekindle_core::{Json, SessionKey};
use serde::{Deserialize, Serialize};

pub use context::ToolContext;
pub use function::{FnTool, tool};
pub use group::ToolGroup;
pub use lease::HeldLease;
pub use leftovers::Leftovers;
pub use options::{Approval, Retries, ToolOptions};
pub use output::{Checked, IntoOutput, ToolError, ToolOutput};
pub(crate) use output::{Reply, Verdict};
pub(crate) use schema::Schema;

/// A tool.
///
/// # Contract
/// * [`Tool::call`] may be cut short at any instant and never come back; what the engine then
///   does is what [`ToolOptions`] declare.
/// * A tool with side effects hands [`ToolContext::idempotency_key`] or [`ToolContext::fence`]
///   to whatever it changes, where that can use it.
/// * It stops soon after [`ToolContext::cancelled`]; if it does not, it is abandoned.
/// * Work that can outlive this process, such as a child process, ends by itself when this process
///   dies or its [lease](ToolContext::lease) ends, and [`Tool::end_leftovers`] makes sure of that.
///
/// Most tools are functions: see [`tool`].
#[async_trait]
pub trait Tool: fmt::Debug + Send + Sync + 'static {
    /// What the model is told.
    fn spec(&self) -> &ToolSpec;

    /// What the engine must know.
    fn options(&self) -> &ToolOptions;

    /// Does it. The arguments fit the schema of the spec.
    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError>;

    /// The session it drives when called by `parent` with that idempotency key, if it drives one.
    fn child(&self, _parent: &SessionKey, _idempotency_key: &str) -> Option<SessionKey> {
        None
    }

    /// Finds out whether an earlier call with the same idempotency key happened. Asked only of
    /// tools whose policy is `check`.
    async fn check(&self, _context: &ToolContext, _arguments: &Json) -> Result<Checked, ToolError> {
        Ok(Checked::Unknown)
    }

    /// Ends what an earlier call with the same idempotency key may have left running, waits for its
    /// end, and tells what still runs. Called before anything is decided about a call in doubt, and
    /// before a call that did not come back is tried again.
    async fn end_leftovers(&self, _context: &ToolContext, _arguments: &Json) -> Result<Leftovers, ToolError> {
        Ok(Leftovers::none())
    }
}

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
    /// Its version; a change is drift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
