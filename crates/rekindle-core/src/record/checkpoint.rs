//! Records of checkpoints: marks on positions. Session, branch, seq and time of a checkpoint
//! are those of the record; the rest is here.

use serde::{Deserialize, Serialize};

use super::{Body, Extra, Usage, is_default};
use crate::id::{CheckpointId, RunId};
use crate::position::Hash;

/// What brought a checkpoint about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointSource {
    /// New input arrived.
    Input,
    /// The executor went on.
    #[default]
    Loop,
    /// Somebody edited the state.
    Update,
    /// A branch was forked.
    Fork,
}

/// Who asked for a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointTrigger {
    /// The configured frequency.
    #[default]
    Auto,
    /// A person, a tool or the program.
    Manual,
    /// A failure.
    Error,
}

/// What kind of moment a checkpoint marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointType {
    /// A turn ended.
    #[default]
    Turn,
    /// An iteration of the agent loop ended.
    Iteration,
    /// A plan step ended.
    Step,
    /// A graph node is about to run.
    NodeStart,
    /// A graph node has run.
    NodeComplete,
    /// An edge is about to be followed.
    EdgeTransition,
    /// An iteration inside a node ended.
    LoopIteration,
    /// The author of the graph declared this safe.
    SafePoint,
    /// A person is about to be asked, or asked for it.
    UserCheckpoint,
}

/// Marks this position with why it is worth coming back to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The checkpoint before it on its line of history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<CheckpointId>,
    /// What brought it about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub source: CheckpointSource,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trigger: CheckpointTrigger,
    /// What kind of moment it marks.
    #[serde(rename = "type", default, skip_serializing_if = "is_default")]
    pub kind: CheckpointType,
    /// The number of the step it follows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The run that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Active time of the session so far, in microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub active_micros: u64,
    /// What the session used so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Whether nothing failed on the way here.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub clean: bool,
    /// Whether a run may be resumed from here.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub resumable: bool,
    /// Of what the run depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Hash>,
    /// The node of a graph it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What comes after that node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// Retention never drops a pinned one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pinned: bool,
    /// For filters and retention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Checkpoint {
    /// An automatic, clean, resumable checkpoint of a turn.
    pub fn new(id: CheckpointId) -> Self {
        Self {
            id,
            parent: None,
            source: CheckpointSource::default(),
            trigger: CheckpointTrigger::default(),
            kind: CheckpointType::default(),
            step: 0,
            description: String::new(),
            run: None,
            active_micros: 0,
            usage: Usage::default(),
            clean: true,
            resumable: true,
            fingerprint: None,
            node: None,
            next: Vec::new(),
            pinned: false,
            tags: Vec::new(),
            extra: Extra::new(),
        }
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// Checkpoints that are no longer marks. Their positions stay until retention trims them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRemoved {
    /// Which.
    pub checkpoints: Vec<CheckpointId>,
    /// Why.
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A checkpoint was pinned, unpinned or tagged after it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointMarked {
    /// Which.
    pub checkpoint: CheckpointId,
    /// Whether it is pinned now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// Its tags now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The wanted checkpoint was damaged and an earlier one was used, by explicit choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSubstituted {
    /// The damaged one.
    pub wanted: CheckpointId,
    /// The one used.
    pub used: CheckpointId,
    /// What was wrong.
    pub reason: String,
    /// Who chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl CheckpointMarked {
    /// `checkpoint` is pinned, or no longer.
    pub fn pinned(checkpoint: CheckpointId, pinned: bool) -> Self {
        Self { checkpoint, pinned: Some(pinned), tags: None, extra: Extra::new() }
    }
}

impl CheckpointRemoved {
    /// The reason a run gives that has made more of them than it wants to keep. Pinned ones stay.
    pub const SURPLUS: &'static str = "surplus";

    /// `checkpoints` are no longer marks.
    pub fn new(checkpoints: Vec<CheckpointId>, reason: impl Into<String>) -> Self {
        Self { checkpoints, reason: reason.into(), extra: Extra::new() }
    }
}

impl Body for Checkpoint {}
impl Body for CheckpointRemoved {}
impl Body for CheckpointMarked {}
impl Body for CheckpointSubstituted {}
