//! How runs behave, as files and configuration say it.

use rekindle::Durability;
use rekindle::schemars::{self, JsonSchema};
use rekindle::{DamagedInbox, OnWait, PersistFailure, RunOptions};
use serde::Deserialize;

use super::{BudgetsSpec, CheckpointsSpec, Period, RetentionSpec};

/// How runs behave. What is left out is as usual.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptionsSpec {
    /// What one turn may use; of a plan or a graph, one execution.
    pub budgets: Option<BudgetsSpec>,
    /// What the whole session may use.
    pub session_budgets: Option<BudgetsSpec>,
    /// When commits are on disk; `async` unless this says otherwise.
    pub durability: Option<DurabilityName>,
    /// What happens when the store fails for longer than a few tries; `halt` unless this says
    /// otherwise.
    pub on_persist_failure: Option<PersistFailureName>,
    /// When checkpoints are made.
    pub checkpoints: Option<CheckpointsSpec>,
    /// Which checkpoints are kept when a run ends; all unless this says otherwise.
    pub retention: Option<RetentionSpec>,
    /// Whether the outcome of each call is recorded on its own; yes unless this says otherwise.
    pub pending_writes: Option<bool>,
    /// What a run does when everything it could go on with waits for somebody; `suspend` unless this
    /// says otherwise.
    pub on_wait: Option<OnWaitName>,
    /// What a run does when records of its session's inbox cannot be read; `stop` unless this says otherwise.
    pub on_damaged_inbox: Option<DamagedInboxName>,
    /// How long calls under way may take to end when the run is stopped, e.g. `10s`.
    pub grace: Option<Period>,
}

/// When commits are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityName {
    /// Each before the run goes on.
    Sync,
    /// In order, while the run goes on; side effects wait for what is before them.
    Async,
    /// Only when the run ends or pauses.
    Exit,
}

/// What happens when the store fails for longer than a few tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PersistFailureName {
    /// The run stops before its next side effect.
    Halt,
    /// The run stands still until the store is back.
    Pause,
    /// The run goes on, and stores what it can once the store is back.
    Degrade,
}

/// What a run does when everything it could go on with waits for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnWaitName {
    /// It ends with the status `waiting`; an answer and a resume go on.
    Suspend,
    /// It stays and goes on as soon as it is answered.
    Hold,
}

/// What a run does when records of its session's inbox cannot be read: what was sent in them is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DamagedInboxName {
    /// It does not begin, or stops before its next step.
    Stop,
    /// It goes on without them, which is recorded.
    Continue,
}

impl RunOptionsSpec {
    /// What is said here, and where nothing is said, what `other` says.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            budgets: both(self.budgets, other.budgets),
            session_budgets: both(self.session_budgets, other.session_budgets),
            durability: self.durability.or(other.durability),
            on_persist_failure: self.on_persist_failure.or(other.on_persist_failure),
            checkpoints: self.checkpoints.or(other.checkpoints),
            retention: self.retention.or(other.retention),
            pending_writes: self.pending_writes.or(other.pending_writes),
            on_wait: self.on_wait.or(other.on_wait),
            on_damaged_inbox: self.on_damaged_inbox.or(other.on_damaged_inbox),
            grace: self.grace.or(other.grace),
        }
    }

    /// Sets in `options` what is said here.
    pub fn apply(&self, options: &mut RunOptions) {
        if let Some(budgets) = &self.budgets {
            options.budgets = budgets.budgets();
        }
        if let Some(budgets) = &self.session_budgets {
            options.session_budgets = budgets.budgets();
        }
        if let Some(durability) = self.durability {
            options.durability = durability.into();
        }
        if let Some(policy) = self.on_persist_failure {
            options.on_persist_failure = policy.into();
        }
        if let Some(checkpoints) = &self.checkpoints {
            options.checkpoints = checkpoints.frequency();
        }
        if let Some(retention) = &self.retention {
            options.retention = Some(retention.policy());
        }
        options.pending_writes = self.pending_writes.unwrap_or(options.pending_writes);
        options.on_wait = self.on_wait.map_or(options.on_wait, Into::into);
        options.on_damaged_inbox = self.on_damaged_inbox.map_or(options.on_damaged_inbox, Into::into);
        options.grace = self.grace.map_or(options.grace, |grace| grace.0);
    }
}

fn both(own: Option<BudgetsSpec>, other: Option<BudgetsSpec>) -> Option<BudgetsSpec> {
    match (own, other) {
        (Some(own), Some(other)) => Some(own.or(other)),
        (own, other) => own.or(other),
    }
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Sync => Self::Sync,
            DurabilityName::Async => Self::Async,
            DurabilityName::Exit => Self::Exit,
        }
    }
}

impl From<PersistFailureName> for PersistFailure {
    fn from(name: PersistFailureName) -> Self {
        match name {
            PersistFailureName::Halt => Self::Halt,
            PersistFailureName::Pause => Self::Pause,
            PersistFailureName::Degrade => Self::Degrade,
        }
    }
}

impl From<OnWaitName> for OnWait {
    fn from(name: OnWaitName) -> Self {
        match name {
            OnWaitName::Suspend => Self::Suspend,
            OnWaitName::Hold => Self::Hold,
        }
    }
}

impl From<DamagedInboxName> for DamagedInbox {
    fn from(name: DamagedInboxName) -> Self {
        match name {
            DamagedInboxName::Stop => Self::Stop,
            DamagedInboxName::Continue => Self::Continue,
        }
    }
}
