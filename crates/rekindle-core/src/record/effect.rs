//! Records of effects: intent before, partials while, outcome after.

use serde::{Deserialize, Serialize};

use super::{Body, Extra, is_default};
use crate::id::{EffectId, RunId, SessionKey};
use crate::json::Json;
use crate::position::Hash;

/// What kind of call an effect is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// A tool call.
    Tool,
    /// A model call.
    Model,
    /// A custom durable step.
    Step,
    /// A child session.
    Child,
}

/// What to do with an effect that was intended but never settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtPolicy {
    /// Run it again: it has no side effect.
    ReplaySafe,
    /// Run it again with the same idempotency key.
    Idempotent,
    /// Ask the tool whether it happened.
    Check,
    /// Ask a person.
    Ask,
    /// Fail the step.
    Never,
}

/// An effect is about to start. Durable before a side effect may begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectIntent {
    /// The effect; the call id of a tool call.
    pub effect: EffectId,
    /// What kind of call it is.
    pub kind: EffectKind,
    /// The tool, model or step.
    pub name: String,
    /// The version of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Hash of the canonical arguments.
    pub arguments_hash: Hash,
    /// The arguments, where they stand nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// Given to the tool; the same over retry and resume, new on a fork.
    pub idempotency_key: String,
    /// What to do if it never settles.
    pub policy: InDoubtPolicy,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The step it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The child session, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<SessionKey>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How an effect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    /// It succeeded.
    Ok,
    /// The tool said no; the model may react.
    ToolError,
    /// It could not be carried out; a retry may help.
    InfraError,
    /// It was stopped.
    Cancelled,
    /// Nobody knows whether it happened.
    InDoubt,
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_tokens: u64,
    /// Tokens received.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_tokens: u64,
    /// Cost in millionths of the currency unit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost_micros: u64,
}

/// An effect has ended. A settled effect is never run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectOutcome {
    /// The effect.
    pub effect: EffectId,
    /// Which try ended.
    pub attempt: u32,
    /// How.
    pub status: OutcomeStatus,
    /// Its result; for tools, the message that goes into the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// What went wrong, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long the try took, in microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub duration_micros: u64,
    /// What it used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Whether it was made up to close an open call, rather than received.
    #[serde(default, skip_serializing_if = "is_default")]
    pub synthetic: bool,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl EffectOutcome {
    /// Whether this settles the effect for good: an infrastructure error may be retried.
    pub fn settles(&self) -> bool {
        !matches!(self.status, OutcomeStatus::InfraError | OutcomeStatus::InDoubt)
    }
}

/// What an effect has streamed since its last partial. Never taken for an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectPartial {
    /// The effect.
    pub effect: EffectId,
    /// Which try streams.
    pub attempt: u32,
    /// The new part.
    pub value: Json,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for EffectIntent {}
impl Body for EffectOutcome {}
impl Body for EffectPartial {}

impl EffectIntent {
    /// The first attempt at `effect`. Its idempotency key is the effect's id; whoever runs a fork
    /// must give it another.
    pub fn new(effect: EffectId, kind: EffectKind, name: impl Into<String>, arguments_hash: Hash) -> Self {
        Self {
            idempotency_key: effect.to_string(),
            effect,
            kind,
            name: name.into(),
            version: None,
            arguments_hash,
            arguments: None,
            attempt: 1,
            policy: InDoubtPolicy::Ask,
            run: None,
            step: None,
            child: None,
            extra: Extra::new(),
        }
    }
}

impl EffectOutcome {
    /// How the first attempt at `effect` ended.
    pub fn new(effect: EffectId, status: OutcomeStatus, value: Option<Json>) -> Self {
        Self {
            effect,
            attempt: 1,
            status,
            value,
            error: None,
            duration_micros: 0,
            usage: Usage::default(),
            synthetic: false,
            extra: Extra::new(),
        }
    }
}

impl EffectPartial {
    /// What the first attempt at `effect` streamed.
    pub fn new(effect: EffectId, value: Json) -> Self {
        Self { effect, attempt: 1, value, extra: Extra::new() }
    }
}
