//! A tool with other options than its own.

use std::sync::Arc;

use rekindle::tool::{Checked, Leftovers, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::{Json, SessionKey, async_trait};

/// A tool with other options than its own.
#[derive(Clone, Debug)]
pub(super) struct Adjusted {
    tool: Arc<dyn Tool>,
    options: ToolOptions,
}

impl Adjusted {
    pub(super) fn new(tool: Arc<dyn Tool>, options: ToolOptions) -> Self {
        Self { tool, options }
    }

    /// The tool as it is, for what takes tools by value.
    pub(super) fn same(tool: &Arc<dyn Tool>) -> Self {
        Self { tool: Arc::clone(tool), options: tool.options().clone() }
    }
}

#[async_trait]
impl Tool for Adjusted {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    fn child(&self, parent: &SessionKey, idempotency_key: &str) -> Option<SessionKey> {
        self.tool.child(parent, idempotency_key)
    }

    async fn call(&self, context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        self.tool.call(context, arguments).await
    }

    async fn check(&self, context: &ToolContext, arguments: &Json) -> Result<Checked, ToolError> {
        self.tool.check(context, arguments).await
    }

    async fn end_leftovers(&self, context: &ToolContext, arguments: &Json) -> Result<Leftovers, ToolError> {
        self.tool.end_leftovers(context, arguments).await
    }
}
