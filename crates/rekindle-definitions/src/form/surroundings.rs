//! What an agent, a plan and a graph may use.

use std::collections::BTreeMap;

use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::Value;

use super::{AgentFile, GraphFile, McpEntry, ModelSpec, PlanFile, Reference, SecretText, ToolEntry};

/// What may be used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Surroundings {
    /// Tools: commands, scripts, HTTP requests, questions, other agents.
    #[serde(default)]
    #[schemars(with = "Vec<ToolEntry>")]
    pub(crate) tools: Vec<Value>,
    /// Tools for the files under a directory.
    pub(crate) files: Option<FilesEntry>,
    /// MCP servers whose tools are used, by name.
    #[serde(default)]
    pub(crate) mcp: BTreeMap<String, McpEntry>,
    /// Models by names of your own.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, ModelSpec>,
    /// Where secrets are, by the names that tools use.
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, SecretText>,
}

/// Other work that a plan or a graph may have done.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crew {
    /// Agents, by the names they have here.
    #[serde(default)]
    pub(crate) agents: BTreeMap<String, Reference<AgentFile>>,
    /// Plans, by the names they have here.
    #[serde(default)]
    pub(crate) plans: BTreeMap<String, Reference<PlanFile>>,
    /// Graphs, by the names they have here.
    #[serde(default)]
    pub(crate) graphs: BTreeMap<String, Reference<GraphFile>>,
}

/// Tools for the files under a directory: `read_file` and `list_files`, and with `access: write` also
/// `write_file` and `edit_file`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilesEntry {
    /// The directory, relative to this file.
    pub(crate) root: String,
    /// What may be done; `read` unless this says otherwise.
    #[serde(default)]
    pub(crate) access: FileAccessName,
    /// Whether the directory is made if it is missing.
    #[serde(default)]
    pub(crate) create: bool,
}

/// What may be done with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileAccessName {
    /// They are read.
    #[default]
    Read,
    /// They are read and written.
    Write,
}
