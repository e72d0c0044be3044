//! Records of what people decided: edits, acceptances, raised budgets, descriptions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Body, Extra};
use crate::id::BranchId;
use crate::json::Json;
use crate::position::{Hash, Head};

/// Somebody changed the state by hand. The changes follow in the same batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Somebody accepted that the agent, tools, plan or graph changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriftAccepted {
    /// The recorded fingerprint.
    pub from: Hash,
    /// The new one.
    pub to: Hash,
    /// What changed, for people.
    pub changes: Vec<String>,
    /// Who accepted it.
    pub author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Somebody resumed although history moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaleAccepted {
    /// What the caller had seen.
    pub expected: Head,
    /// What was there.
    pub actual: Head,
    /// Who accepted it.
    pub author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A person accepted something that would otherwise be refused (in the inbox).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// What was accepted, e.g. `rolled_back`.
    pub what: String,
    /// Who accepted it.
    pub author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Where branches ended before, as far as was known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads_before: BTreeMap<BranchId, Head>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Accepted {
    /// The session is in an older state than it was.
    pub const ROLLED_BACK: &'static str = "rolled_back";
}

/// Somebody raised a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// Which.
    pub budget: String,
    /// What it was.
    pub from: Json,
    /// What it is.
    pub to: Json,
    /// Who raised it.
    pub author: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Title, tags, labels or metadata of the session changed. What is absent stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionDescribed {
    /// The title now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tags now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The labels now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The metadata now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, Json>>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Body for Edit {}
impl Body for DriftAccepted {}
impl Body for StaleAccepted {}
impl Body for Accepted {}
impl Body for BudgetRaised {}
impl Body for SessionDescribed {}
