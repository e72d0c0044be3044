//! Records of waits: durable pauses for a person, a signal or a time.

use serde::{Deserialize, Serialize};

use super::{Body, Extra, InboxAnswer};
use crate::id::{EffectId, RunId, WaitId};
use crate::json::Json;
use crate::position::Hash;
use crate::time::Timestamp;

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Approval of a tool call.
    Approval,
    /// A question to a person.
    Question,
    /// An external signal.
    Signal,
    /// A point in time.
    Timer,
}

/// A durable pause began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitOpened {
    /// The wait.
    pub wait: WaitId,
    /// What it is for.
    pub kind: WaitKind,
    /// What to show a person, or the signal's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The call to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectId>,
    /// The arguments shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Digest of exactly those arguments; an approval names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// How many must approve.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub approvals: u32,
    /// When to remind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_at: Option<Timestamp>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What counts as the answer then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Json>,
    /// The run that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

/// What somebody decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, with the arguments shown or edited ones.
    Approve,
    /// No.
    Reject,
    /// Here is the answer.
    Answer,
}

/// Somebody decided on a wait: an audit record, one for each decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitDecision {
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

/// The reminder of a wait was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitReminded {
    /// The wait.
    pub wait: WaitId,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A wait ran out of time, with nothing unread that answers it. It is still open: the record that
/// follows from its default closes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitExpired {
    /// The wait.
    pub wait: WaitId,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitCloseReason {
    /// It was answered.
    Answered,
    /// Its time came.
    Expired,
    /// The run was cancelled.
    Cancelled,
}

/// A wait ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitClosed {
    /// The wait.
    pub wait: WaitId,
    /// Why.
    pub reason: WaitCloseReason,
    /// The answer that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for WaitOpened {}
impl Body for WaitDecision {}
impl Body for WaitReminded {}
impl Body for WaitExpired {}
impl Body for WaitClosed {}

impl WaitOpened {
    /// A wait for one answer, without end.
    pub fn new(wait: WaitId, kind: WaitKind) -> Self {
        Self {
            wait,
            kind,
            prompt: String::new(),
            effect: None,
            arguments: None,
            digest: None,
            schema: None,
            approvals: 1,
            remind_at: None,
            expires_at: None,
            default: None,
            run: None,
            extra: Extra::new(),
        }
    }
}

impl WaitDecision {
    /// Returns what counts as one voice: a credential, or the author where there is none.
    pub fn voice(&self) -> Voice<'_> {
        match &self.credential {
            Some(credential) => Voice::Credential(credential),
            None => Voice::Author(&self.author),
        }
    }
}

/// One voice among the decisions on a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Voice<'a> {
    /// Somebody with this credential, under any name.
    Credential(&'a str),
    /// Somebody of this name, for whom a program vouches.
    Author(&'a str),
}

impl From<&InboxAnswer> for WaitDecision {
    /// The decision an answer in the inbox stands for.
    fn from(answer: &InboxAnswer) -> Self {
        Self {
            wait: answer.wait.clone(),
            decision: answer.decision,
            author: answer.author.clone(),
            credential: answer.credential.clone(),
            claimed: answer.claimed,
            value: answer.value.clone(),
            arguments: answer.arguments.clone(),
            digest: answer.digest,
            reason: answer.reason.clone(),
            extra: Extra::new(),
        }
    }
}

impl WaitClosed {
    /// `wait` ended.
    pub fn new(wait: WaitId, reason: WaitCloseReason, value: Option<Json>) -> Self {
        Self { wait, reason, value, extra: Extra::new() }
    }
}
