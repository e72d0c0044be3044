//! A tool with what was prepared for it.

use std::sync::Arc;

use rekindle_core::{Error, Result};
use tokio::sync::Semaphore;

use crate::tool::{Schema, Tool, ToolSpec};

/// A tool with what was prepared for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) schema: Schema,
    pub(crate) permits: Option<Arc<Semaphore>>,
}

impl Entry {
    /// An error if its name or its schema is not valid.
    pub(crate) fn new(tool: Arc<dyn Tool>) -> Result<Self> {
        let spec = tool.spec();
        let name = spec.name.clone();
        check_name(&name)?;
        check_object(spec)?;
        let schema = Schema::new(&spec.parameters)
            .map_err(|error| Error::invalid(format!("tool `{name}`: {}", error.message())))?;
        let permits = tool.options().concurrency.map(|calls| Arc::new(Semaphore::new(calls.max(1))));
        Ok(Self { tool, schema, permits })
    }

    /// What it depends on, for fingerprints: its spec and what happens to it in doubt.
    pub(crate) fn print(&self) -> String {
        let text = serde_json::to_string(self.tool.spec()).unwrap_or_default();
        format!("{text}{:?}", self.tool.options().policy())
    }
}

/// Arguments are always an object: that is what models send.
fn check_object(spec: &ToolSpec) -> Result<()> {
    let kind = spec.parameters.to_value()?.get("type").and_then(|kind| kind.as_str().map(str::to_owned));
    match kind.as_deref() {
        None | Some("object") => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "tool `{}` takes {other} for its arguments, and models send an object",
            spec.name
        ))
        .hint("take a struct; for a tool without arguments, one without fields: `struct Nothing {}`")),
    }
}

/// What every provider takes as the name of a tool.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        let message = format!("`{name}` is not a name for a tool");
        return Err(Error::invalid(message).hint("use up to 64 letters, digits, `_` and `-`"));
    }
    Ok(())
}
