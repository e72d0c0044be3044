//! Records of the inbox. What others send a session stands on its own branch, so that it needs
//! no lease and never disturbs the owner's appends; the owner takes it over in its own time.

use serde::{Deserialize, Serialize};

use super::{Body, Decision, Extra};
use crate::id::{MessageId, RunId, WaitId};
use crate::json::Json;
use crate::position::{Hash, Seq};

/// What a message does to the run it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxMode {
    /// Becomes the next turn.
    #[default]
    Queue,
    /// Goes into the next model call.
    Steer,
    /// Stops the run first.
    Interrupt,
}

/// A message for the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// The message; sending the same id twice counts once.
    pub message: MessageId,
    /// What it does to a run.
    pub mode: InboxMode,
    /// What it says.
    pub content: Json,
    /// From whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The run that begins with it; without one, any run may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a run is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop safely, to be resumed.
    Pause,
    /// Stop for good.
    Cancel,
    /// Stop the current step.
    Interrupt,
    /// Mark where the run is; the reason is the description.
    Checkpoint,
}

/// A command for the session, honoured after a restart too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxCommand {
    /// The message; sending the same id twice counts once.
    pub message: MessageId,
    /// What to do.
    pub command: Command,
    /// Only if this is the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_run: Option<RunId>,
    /// From whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxAnswer {
    /// The message; sending the same id twice counts once.
    pub message: MessageId,
    /// The wait.
    pub wait: WaitId,
    /// What was decided.
    pub decision: Decision,
    /// By whom.
    pub author: String,
    /// The credential of the author, e.g. `token:maria`; nothing where a program vouches for the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// True if the author is only what the environment or the request said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The arguments to use in place of those shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// The digest of the arguments that were shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The run has taken over everything in the inbox up to a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxTaken {
    /// The last inbox record taken.
    pub through: Seq,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for InboxMessage {}
impl Body for InboxCommand {}
impl Body for InboxAnswer {}
impl Body for InboxTaken {}

impl InboxMessage {
    /// A message for the next turn.
    pub fn new(message: MessageId, content: Json) -> Self {
        Self { message, mode: InboxMode::Queue, content, author: None, run: None, extra: Extra::new() }
    }
}

impl InboxCommand {
    /// A command to whatever runs.
    pub fn new(message: MessageId, command: Command) -> Self {
        Self { message, command, only_run: None, author: None, reason: String::new(), extra: Extra::new() }
    }
}

impl InboxTaken {
    /// The inbox was taken over up to a record.
    pub fn new(through: Seq) -> Self {
        Self { through, extra: Extra::new() }
    }
}
