//! Records that change the state: logs and registers.

use serde::{Deserialize, Serialize};

use super::{Body, Extra};
use crate::id::{EffectId, LogName, RegisterKey};
use crate::json::Json;

/// Appends items to a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogAppend {
    /// The log.
    pub log: LogName,
    /// The items, in order.
    pub items: Vec<Json>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Appends the values of settled effects to a log, in this order, whatever order they ended in.
/// Each value is stored once, in its outcome; the effects are done with, and leave the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogAppendOutcomes {
    /// The log.
    pub log: LogName,
    /// The effects whose values are appended.
    pub effects: Vec<EffectId>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Replaces `remove` items of a log, from index `at`, by `items`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogSplice {
    /// The log.
    pub log: LogName,
    /// The index of the first item replaced.
    pub at: u64,
    /// How many items go.
    pub remove: u64,
    /// What comes in their place.
    pub items: Vec<Json>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Sets a register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterSet {
    /// The register.
    pub key: RegisterKey,
    /// Its new value.
    pub value: Json,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Removes a register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterUnset {
    /// The register.
    pub key: RegisterKey,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for LogAppend {}
impl Body for LogAppendOutcomes {}
impl Body for LogSplice {}
impl Body for RegisterSet {}
impl Body for RegisterUnset {}

impl LogAppend {
    /// Appends `items` to `log`.
    pub fn new(log: LogName, items: Vec<Json>) -> Self {
        Self { log, items, extra: Extra::new() }
    }
}

impl LogAppendOutcomes {
    /// Appends the values of `effects` to `log`.
    pub fn new(log: LogName, effects: Vec<EffectId>) -> Self {
        Self { log, effects, extra: Extra::new() }
    }
}

impl LogSplice {
    /// Replaces `remove` items of `log` from index `at` by `items`.
    pub fn new(log: LogName, at: u64, remove: u64, items: Vec<Json>) -> Self {
        Self { log, at, remove, items, extra: Extra::new() }
    }
}

impl RegisterSet {
    /// Sets `key` to `value`.
    pub fn new(key: RegisterKey, value: Json) -> Self {
        Self { key, value, extra: Extra::new() }
    }
}

impl RegisterUnset {
    /// Removes `key`.
    pub fn new(key: RegisterKey) -> Self {
        Self { key, extra: Extra::new() }
    }
}
