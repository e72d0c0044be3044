//! Groups of tools that a model sees as one entry until it opens them.

use std::sync::Arc;

use super::Tool;

/// Tools that a model is not shown at first. It sees one tool with the group's name; calling
/// that opens the group, and which groups are open is part of the session's state.
#[derive(Clone, Debug)]
pub struct ToolGroup {
    /// The name of the tool that opens it.
    pub name: String,
    /// What is in it, so that the model can tell whether it needs it.
    pub description: String,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
}

impl ToolGroup {
    /// An empty group.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), tools: Vec::new() }
    }

    /// The same with one more tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }
}
