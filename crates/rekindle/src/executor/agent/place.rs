//! Where a loop runs: as a session of its own, or inside a node of a graph.

use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::Result;
use rekindle_core::record::CheckpointType;

use super::state::Scope;
use crate::driver::{Driver, Frequency, NewCheckpoint, Recorded};
use crate::executor::call::{DecidedBy, Ended, Ready, Shape};
use crate::memory::MemoryView;
use crate::message::{Message, ToolResult};
use crate::middleware::Middleware;

/// Where a loop runs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Under which names it keeps its state.
    pub(crate) scope: Scope,
    /// The memory its tools see.
    pub(crate) memory: MemoryView,
    /// Which positions are marked.
    pub(crate) checkpoints: Frequency,
    /// The node of the graph, if it runs in one.
    pub(crate) node: Option<String>,
}

impl Place {
    /// A session of its own.
    pub(super) fn session(checkpoints: Frequency) -> Self {
        Self { scope: Scope::default(), memory: MemoryView::default(), checkpoints, node: None }
    }

    pub(super) fn is_node(&self) -> bool {
        self.node.is_some()
    }

    /// The mark of an iteration.
    pub(super) fn iteration(&self, step: u64, description: String) -> NewCheckpoint {
        let kind = if self.is_node() { CheckpointType::LoopIteration } else { CheckpointType::Iteration };
        let passing = self.is_node();
        NewCheckpoint { node: self.node.clone(), passing, ..NewCheckpoint::auto(kind, step, description) }
    }
}

/// The result of a call as a message of the conversation.
pub(super) struct MessageShape<'a> {
    pub(super) middleware: &'a [Arc<dyn Middleware>],
    pub(super) memory: MemoryView,
    /// The node of the graph, if it runs in one.
    pub(super) node: Option<String>,
}

#[async_trait]
impl Shape for MessageShape<'_> {
    async fn record(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded> {
        let mut result = ended.result;
        for middleware in self.middleware {
            // The call has happened: whatever fails behind it, that must go on record.
            if let Err(error) = middleware.after_tool(&ready.call, &mut result).await {
                let text = format!("middleware `{}` failed on the result: {error}", middleware.name());
                result = ToolResult::failed(&ready.call, &text);
                break;
            }
        }
        let mut records = Vec::new();
        for (key, value) in ended.remember {
            records.push(self.memory.write(&key, value)?);
        }
        let message = Message::tool(result).with_id(driver.engine().journal().ids(), driver.now());
        Ok(Recorded { records, ..message.to_json()?.into() })
    }

    fn memory(&self) -> MemoryView {
        self.memory.clone()
    }

    fn closes_interrupted(&self) -> bool {
        self.node.is_none()
    }

    fn node(&self) -> Option<String> {
        self.node.clone()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Model
    }
}
