//! What the engine must know of a tool.

use std::time::Duration;

use rekindle_core::record::InDoubtPolicy;
use serde::{Deserialize, Serialize};

/// What the engine must know of a tool. The default is a tool that only reads: it may be
/// repeated, runs in parallel with others, and has a minute.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOptions {
    /// Whether it changes anything outside.
    pub writes: bool,
    /// What to do with a call that was under way when its process died. Unless declared: `ask`
    /// for a tool that writes, `replay_safe` for one that only reads.
    pub in_doubt: Option<InDoubtPolicy>,
    /// How long one try may take.
    pub timeout: Option<Duration>,
    /// How often a passing failure is tried again.
    pub retries: Retries,
    /// How many calls of it run at once.
    pub concurrency: Option<usize>,
    /// Whether its calls wait for the calls before them, and the calls after it for them.
    pub sequential: bool,
    /// Whether a person must agree to each call.
    pub approval: Option<Approval>,
    /// Whether a checkpoint is made before it when checkpoints are `smart`.
    pub risky: bool,
    /// The largest result, in bytes of JSON.
    pub max_result_bytes: usize,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            writes: false,
            in_doubt: None,
            timeout: Some(Duration::from_secs(60)),
            retries: Retries::default(),
            concurrency: None,
            sequential: false,
            approval: None,
            risky: false,
            max_result_bytes: 1 << 20,
        }
    }
}

impl ToolOptions {
    /// What is done with a call in doubt.
    pub fn policy(&self) -> InDoubtPolicy {
        self.in_doubt.unwrap_or(if self.writes { InDoubtPolicy::Ask } else { InDoubtPolicy::ReplaySafe })
    }
}

/// How passing failures are tried again: with exponential backoff and jitter.
#[derive(Clone, Debug, PartialEq)]
pub struct Retries {
    /// How many tries in all.
    pub attempts: u32,
    /// The pause before the second try; doubled before each further one.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 3, first_pause: Duration::from_millis(200), longest_pause: Duration::from_secs(30) }
    }
}

impl Retries {
    /// One try.
    pub fn none() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// The pause before the try after `attempt`. `random` spreads those that failed together: the
    /// pause is between half of the full one and all of it.
    pub fn pause(&self, attempt: u32, random: u64) -> Duration {
        let doubled = self.first_pause.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        let full = doubled.min(self.longest_pause);
        let micros = u64::try_from(full.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros / 2 + random % (micros / 2 + 1))
    }
}

/// A person must agree to a call before it is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Approval {
    /// What the person is asked; the call itself is shown too.
    pub prompt: String,
    /// How many must agree; one unless more is said.
    pub approvals: u32,
    /// When to remind, after it was asked.
    pub remind_after: Option<Duration>,
    /// When it ends by itself, after it was asked.
    pub expires_after: Option<Duration>,
    /// Whether the call is made then; otherwise it is rejected.
    pub approve_on_expiry: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undeclared_tool_is_asked_about_only_if_it_writes() {
        assert_eq!(ToolOptions::default().policy(), InDoubtPolicy::ReplaySafe);
        assert_eq!(ToolOptions { writes: true, ..ToolOptions::default() }.policy(), InDoubtPolicy::Ask);
        let declared =
            ToolOptions { writes: true, in_doubt: Some(InDoubtPolicy::Idempotent), ..ToolOptions::default() };
        assert_eq!(declared.policy(), InDoubtPolicy::Idempotent);
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_are_spread() {
        let retries =
            Retries { attempts: 9, first_pause: Duration::from_millis(100), longest_pause: Duration::from_millis(400) };
        for (attempt, full) in [(1, 100), (2, 200), (3, 400), (4, 400), (200, 400)] {
            for random in [0, 7, u64::MAX] {
                let pause = retries.pause(attempt, random).as_millis();
                assert!((full / 2..=full).contains(&pause), "{attempt}: {pause}");
            }
        }
    }
}
