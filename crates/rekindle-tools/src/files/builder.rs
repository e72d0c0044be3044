//! Building the file tools: they all have a root, a name and a limit.

use std::path::PathBuf;

use rekindle::tool::{ToolOptions, ToolSpec};
use rekindle::{Error, Json, Result};

use super::Protected;
use super::root::Root;
use crate::checks::{self, Faults};

/// What a file tool is made of.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) spec: ToolSpec,
    pub(crate) options: ToolOptions,
    pub(crate) root: Root,
    pub(crate) max_bytes: usize,
}

/// How a tool is made of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish<T> {
    pub(super) make: fn(Parts) -> T,
    /// Whether it can tell if a call happened.
    pub(super) checks: bool,
}

/// A file tool that is not finished.
#[derive(Clone, Debug)]
#[must_use]
pub struct FileToolBuilder<T> {
    root: PathBuf,
    spec: ToolSpec,
    options: ToolOptions,
    max_bytes: usize,
    protected: Protected,
    finish: Finish<T>,
}

impl<T> FileToolBuilder<T> {
    pub(super) fn new(
        root: PathBuf,
        spec: ToolSpec,
        options: ToolOptions,
        max_bytes: usize,
        finish: Finish<T>,
    ) -> Self {
        Self { root, spec, options, max_bytes, protected: Protected::default(), finish }
    }

    /// Its name, if it is not to have its usual one.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// What the model is told of it.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.spec.description = description.into();
        self
    }

    /// The most that is read or written: 256 KiB of text or names unless more is said, and 4 MiB for
    /// tools that write.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Paths that are not written, even under the root.
    pub fn protect(mut self, paths: Protected) -> Self {
        self.protected = paths;
        self
    }

    /// What the engine must know.
    pub fn options(mut self, options: ToolOptions) -> Self {
        self.options = options;
        self
    }

    /// The tool. An error names everything that is wrong with it; the root must be a directory.
    pub fn build(self) -> Result<T> {
        let mut faults = Faults::default();
        checks::spec(&mut faults, &self.spec);
        checks::options(&mut faults, &self.options, self.finish.checks, "a tool that can check, which this is not");
        faults.check(self.max_bytes > 0, || "its limit is 0".to_owned());
        faults.into_result("tool", &self.spec.name)?;
        let root = Root::new(self.root, self.protected)
            .map_err(|fault| Error::not_found(format!("tool `{}`: {fault}", self.spec.name)))?;
        Ok((self.finish.make)(Parts { spec: self.spec, options: self.options, root, max_bytes: self.max_bytes }))
    }
}

/// What a model is told of a file tool.
pub(super) fn spec(name: &str, description: &str, parameters: serde_json::Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: description.into(), parameters: Json::from(parameters), version: None }
}
