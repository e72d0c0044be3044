//! Records of what people decided: edits, acceptances, raised budgets, descriptions, going on without lost records.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Body, Extra};
use crate::id::{BranchId, EffectId};
use crate::json::Json;
use crate::position::{Hash, Head, Seq};
use crate::session::Damage;

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

/// Title, tags, labels, metadata or the current branch of the session changed. What is absent stays as it was.
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
    /// The current branch now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<BranchId>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Records that cannot be read any more were passed over: the branch begins before them, or its run went on
/// without records of the inbox. A call that may have been begun in them is in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLost {
    /// The branch they stand on.
    pub branch: BranchId,
    /// The first of them.
    pub from: Seq,
    /// The last of them.
    pub through: Seq,
    /// What is wrong with them, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Calls of agents that were decided before them and had not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<EffectId>,
    /// The turn of a plan, graph or flow that had not ended: every call it has not recorded may be among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// Who went on without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl HistoryLost {
    /// Records `from` to `through` of a branch.
    pub fn new(branch: BranchId, from: Seq, through: Seq) -> Self {
        Self {
            branch,
            from,
            through,
            detail: String::new(),
            calls: Vec::new(),
            turn: None,
            author: None,
            extra: Extra::new(),
        }
    }

    /// The smallest span that holds all damage to one branch; none if there is no damage.
    pub fn of(damage: &[Damage]) -> Option<Self> {
        let (from, through) = (damage.iter().map(|one| one.first).min()?, damage.iter().map(|one| one.last).max()?);
        let first = damage.first()?;
        Some(Self { detail: first.detail.clone(), ..Self::new(first.branch.clone(), from, through) })
    }
}

impl fmt::Display for HistoryLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { branch, from, through, .. } = self;
        match from == through {
            true => write!(f, "record {from} of branch `{branch}` cannot be read"),
            false => write!(f, "records {from} to {through} of branch `{branch}` cannot be read"),
        }?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

impl Body for HistoryLost {}
impl Body for Edit {}
impl Body for DriftAccepted {}
impl Body for StaleAccepted {}
impl Body for Accepted {}
impl Body for BudgetRaised {}
impl Body for SessionDescribed {}
