//! Agents in files.

use rekindle::plan::RetrySpec;
use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;

use super::{ModelSpec, Period};

/// An agent: a model, what it is told, and the tools it may use.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// What it is for. Where it is a tool of something else, the model is told this.
    pub description: Option<String>,
    /// The model: `provider/name`, the name of one of `models`, or an object.
    pub model: ModelSpec,
    /// What the model is told first.
    pub system: Option<String>,
    /// A file that says it instead, relative to this one.
    pub system_file: Option<String>,
    /// Tools that the model sees as one entry until it opens them.
    #[serde(default)]
    pub groups: Vec<GroupSpec>,
    /// What of a long conversation is sent to the model; all of it unless this says otherwise.
    pub reduction: Option<ReductionSpec>,
    /// How many calls of tools run at once; 16 unless this says otherwise.
    pub parallel: Option<usize>,
    /// The turn fails when the model makes the same call so often in a row; 5 unless this says
    /// otherwise, 0 for never.
    pub same_call_limit: Option<u32>,
    /// The turn fails when all calls of so many steps in a row failed; 5 unless this says otherwise,
    /// 0 for never.
    pub failure_limit: Option<u64>,
    /// How long the model may be silent, e.g. `10m`.
    pub model_timeout: Option<Period>,
    /// How a model that fails in passing is asked again.
    pub model_retry: Option<RetrySpec>,
}

/// Tools that the model sees as one entry until it opens them.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// The name of the entry.
    pub name: String,
    /// What is in it, so that the model can tell whether it needs it.
    pub description: String,
    /// The names of the tools in it, from `tools`, `files` and `mcp`.
    pub tools: Vec<String>,
}

/// What of a long conversation is sent to the model. A call and its result are never separated.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReductionSpec {
    /// All of it.
    Whole,
    /// The last so many messages.
    KeepLast(usize),
    /// As many of the last messages as have at most that many tokens, roughly.
    Tokens(u64),
    /// A summary of the older messages, then the last ones.
    Summarise(SummariseSpec),
}

/// How older messages are summarised.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SummariseSpec {
    /// How many of the last messages are sent as they are.
    pub keep_last: usize,
    /// A new summary is made when more messages than this are in none; twice `keep_last` unless this
    /// says otherwise.
    pub when_longer_than: Option<usize>,
    /// Who summarises; the agent's own model unless this says otherwise.
    pub model: Option<ModelSpec>,
    /// What it is asked.
    pub prompt: Option<String>,
}
