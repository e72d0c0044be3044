//! Records of runs: started, waiting, ended.

use serde::{Deserialize, Serialize};

use super::{Body, Extra, is_default};
use crate::id::{OwnerId, RunId};
use crate::position::Hash;

/// When the commits of a run are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A commit returns after it is on disk.
    Sync,
    /// Commits are ordered and overlap with the work; a barrier stands before side effects.
    #[default]
    Async,
    /// Only at the end.
    Exit,
}

/// A run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run.
    pub run: RunId,
    /// What drives it: `agent`, `plan`, `graph` or a custom name.
    pub executor: String,
    /// The run it goes on from, if it is a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    /// Of the agent, tools, plan or graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Hash>,
    /// When its commits are on disk.
    #[serde(default, skip_serializing_if = "is_default")]
    pub durability: Durability,
    /// What is weaker than usual in this run, e.g. `pending_writes=false`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weakened: Vec<String>,
    /// The owner whose lease was ended so that this run could begin: it was dead, or was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<OwnerId>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a run does while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStateKind {
    /// It works.
    Running,
    /// It waits for a person, a signal or a time.
    Waiting,
}

/// A run began or ceased to wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// The run.
    pub run: RunId,
    /// What it does now.
    pub state: RunStateKind,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The turn is over; the session is open to the next message.
    Idle,
    /// The work is done.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was paused and can be resumed.
    Paused,
    /// It gave up its process while something waits; an answer resumes it.
    Waiting,
}

/// A run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How.
    pub outcome: RunOutcome,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The error's code, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for RunStarted {}
impl Body for RunState {}
impl Body for RunEnded {}

impl RunStarted {
    /// A new run of `executor`.
    pub fn new(run: RunId, executor: impl Into<String>) -> Self {
        Self {
            run,
            executor: executor.into(),
            continues: None,
            fingerprint: None,
            durability: Durability::default(),
            weakened: Vec::new(),
            evicted: None,
            extra: Extra::new(),
        }
    }

    /// The same, as a resume of `run`.
    #[must_use]
    pub fn continuing(mut self, run: Option<RunId>) -> Self {
        self.continues = run;
        self
    }
}

impl RunState {
    /// What `run` does now.
    pub fn new(run: RunId, state: RunStateKind) -> Self {
        Self { run, state, extra: Extra::new() }
    }
}

impl RunEnded {
    /// `run` ended with `outcome`.
    pub fn new(run: RunId, outcome: RunOutcome) -> Self {
        Self { run, outcome, reason: String::new(), code: None, extra: Extra::new() }
    }
}
