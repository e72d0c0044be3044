//! What is said of a tool by whoever uses it, over what the tool says of itself.

use std::time::Duration;

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{Approval, Retries, ToolOptions};

/// What is said of a tool by whoever uses it; what is `None` is left as it is.
///
/// ```
/// use rekindle::tool::ToolOptions;
/// use rekindle_tools::ToolPolicy;
/// let policy = ToolPolicy { concurrency: Some(2), ..ToolPolicy::reads() };
/// let options = policy.apply(ToolOptions { writes: true, ..ToolOptions::default() });
/// assert!(!options.writes && options.concurrency == Some(2));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolPolicy {
    /// Whether it changes anything outside.
    pub writes: Option<bool>,
    /// What to do with a call that was under way when its process died.
    pub in_doubt: Option<InDoubtPolicy>,
    /// How long one try may take.
    pub timeout: Option<Duration>,
    /// How often a passing failure is tried again.
    pub retries: Option<Retries>,
    /// How many calls of it run at once.
    pub concurrency: Option<usize>,
    /// Whether its calls wait for the calls before them, and the calls after it for them.
    pub sequential: Option<bool>,
    /// Whether a person must agree to each call.
    pub approval: Option<Approval>,
    /// Whether a checkpoint is made before it when checkpoints are `smart`.
    pub risky: Option<bool>,
    /// The largest result, in bytes of JSON.
    pub max_result_bytes: Option<usize>,
}

impl ToolPolicy {
    /// It only reads: it may be repeated.
    pub fn reads() -> Self {
        Self { writes: Some(false), ..Self::default() }
    }

    /// It changes something outside: a call in doubt is put before a person.
    pub fn writes() -> Self {
        Self { writes: Some(true), ..Self::default() }
    }

    /// It changes something outside, but once for each idempotency key.
    pub fn idempotent() -> Self {
        Self { in_doubt: Some(InDoubtPolicy::Idempotent), ..Self::writes() }
    }

    /// What is said here, and where nothing is said, what `other` says. Who says whether the tool
    /// writes also says what is done with a call in doubt: that is not taken from `other` then.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            // A policy for a tool that reads must not go together with "it writes".
            in_doubt: self.in_doubt.or(if self.writes.is_some() { None } else { other.in_doubt }),
            writes: self.writes.or(other.writes),
            timeout: self.timeout.or(other.timeout),
            retries: self.retries.or(other.retries),
            concurrency: self.concurrency.or(other.concurrency),
            sequential: self.sequential.or(other.sequential),
            approval: self.approval.or(other.approval),
            risky: self.risky.or(other.risky),
            max_result_bytes: self.max_result_bytes.or(other.max_result_bytes),
        }
    }

    /// `options` with what is said here.
    pub fn apply(self, options: ToolOptions) -> ToolOptions {
        let said = self.or(Self { writes: Some(options.writes), in_doubt: options.in_doubt, ..Self::default() });
        ToolOptions {
            writes: said.writes.unwrap_or(options.writes),
            in_doubt: said.in_doubt,
            timeout: said.timeout.or(options.timeout),
            retries: said.retries.unwrap_or(options.retries),
            concurrency: said.concurrency.or(options.concurrency),
            sequential: said.sequential.unwrap_or(options.sequential),
            approval: said.approval.or(options.approval),
            risky: said.risky.unwrap_or(options.risky),
            max_result_bytes: said.max_result_bytes.unwrap_or(options.max_result_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_wins() {
        let options = ToolOptions::default();
        let policy = ToolPolicy { timeout: Some(Duration::from_secs(5)), ..ToolPolicy::default() };
        let both = policy.or(ToolPolicy { timeout: Some(Duration::from_secs(9)), ..ToolPolicy::idempotent() });
        let applied = both.apply(options);
        assert_eq!((applied.writes, applied.timeout), (true, Some(Duration::from_secs(5))));
        assert_eq!(applied.policy(), InDoubtPolicy::Idempotent);
    }

    #[test]
    fn who_says_that_it_writes_does_not_inherit_that_it_may_be_repeated() {
        let both = ToolPolicy::writes().or(ToolPolicy::idempotent());
        assert_eq!(both.apply(ToolOptions::default()).policy(), InDoubtPolicy::Ask);
        let kept =
            ToolPolicy::default().apply(ToolOptions { in_doubt: Some(InDoubtPolicy::Never), ..ToolOptions::default() });
        assert_eq!(kept.in_doubt, Some(InDoubtPolicy::Never));
    }
}
