//! The status of a branch and of its session, as a fold of run records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::record::{Record, RunOutcome, RunStateKind};

/// What a session is doing. [`Status::Interrupted`] is never stored: it is what `running`
/// means once the lease has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing runs; open to the next message.
    #[default]
    Idle,
    /// A run works.
    Running,
    /// A run waits for a person, a signal or a time.
    Waiting,
    /// A run was paused and can be resumed.
    Paused,
    /// A run's process is gone; it can be resumed.
    Interrupted,
    /// The last run succeeded; open to the next message.
    Succeeded,
    /// The last run failed.
    Failed,
    /// The last run was cancelled.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Idle,
        Self::Running,
        Self::Waiting,
        Self::Paused,
        Self::Interrupted,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether an unfinished run stands behind it.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::Paused | Self::Interrupted)
    }

    /// The status after `records`, if they change it.
    pub fn after(records: &[Record]) -> Option<Self> {
        records.iter().rev().find_map(|record| match record {
            Record::RunStarted(_) => Some(Self::Running),
            Record::RunState(state) => Some(match state.state {
                RunStateKind::Running => Self::Running,
                RunStateKind::Waiting => Self::Waiting,
            }),
            Record::RunEnded(ended) => Some(match ended.outcome {
                RunOutcome::Idle => Self::Idle,
                RunOutcome::Succeeded => Self::Succeeded,
                RunOutcome::Failed => Self::Failed,
                RunOutcome::Cancelled => Self::Cancelled,
                RunOutcome::Paused => Self::Paused,
                RunOutcome::Waiting => Self::Waiting,
            }),
            _ => None,
        })
    }

    /// What a stored status means now, given whether its lease is live: a run without a live
    /// lease was interrupted.
    #[must_use]
    pub fn seen(self, lease_is_live: bool) -> Self {
        match self {
            Self::Running if !lease_is_live => Self::Interrupted,
            other => other,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|status| status.as_str()).collect();
            Error::invalid(format!("`{text}` is not a status; use one of {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunEnded;

    #[test]
    fn the_last_run_record_decides() {
        let run = crate::id::RunId::new("r").unwrap();
        let ended = |outcome| Record::from(RunEnded::new(run.clone(), outcome));
        assert_eq!(Status::after(&[]), None);
        assert_eq!(Status::after(&[ended(RunOutcome::Failed), ended(RunOutcome::Paused)]), Some(Status::Paused));
    }

    #[test]
    fn only_a_run_without_a_lease_is_interrupted() {
        for status in Status::ALL {
            let seen = status.seen(false);
            assert_eq!(seen == Status::Interrupted, matches!(status, Status::Running | Status::Interrupted));
            assert_eq!(status.seen(true), status);
            assert_eq!(status.to_string().parse::<Status>().unwrap(), status);
        }
    }
}
