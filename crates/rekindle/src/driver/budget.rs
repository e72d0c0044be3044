//! Budgets: what a turn and a session may use. What was used is state, so a resume never refills
//! it; raising a limit is explicit and recorded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use rekindle_core::record::Usage;
use rekindle_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The register that holds what was used.
pub(crate) const REGISTER: &str = "budget";

/// Something of which there is only so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Budget {
    /// Calls of the model, or steps of another executor.
    Iterations,
    /// Calls of tools.
    ToolCalls,
    /// Tokens sent and received.
    Tokens,
    /// Cost, in millionths of the currency unit.
    CostMicros,
    /// Time spent working, in milliseconds.
    ActiveMillis,
}

impl Budget {
    /// Every budget.
    pub const ALL: [Self; 5] = [Self::Iterations, Self::ToolCalls, Self::Tokens, Self::CostMicros, Self::ActiveMillis];

    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iterations => "iterations",
            Self::ToolCalls => "tool_calls",
            Self::Tokens => "tokens",
            Self::CostMicros => "cost_micros",
            Self::ActiveMillis => "active_millis",
        }
    }
}

impl std::str::FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|budget| budget.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|budget| budget.as_str()).collect();
            Error::invalid(format!("`{text}` is not a budget; use one of {}", names.join(", ")))
        })
    }
}

/// Limits. What is not limited here is not limited at all.
///
/// ```
/// use rekindle::{Budget, Budgets};
/// let budgets = Budgets::new().with(Budget::Iterations, 25).with(Budget::Tokens, 200_000);
/// # let _ = budgets;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budgets(BTreeMap<Budget, u64>);

impl Budgets {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits `budget`.
    #[must_use]
    pub fn with(mut self, budget: Budget, limit: u64) -> Self {
        self.0.insert(budget, limit);
        self
    }

    /// The limit of `budget`.
    pub fn limit(&self, budget: Budget) -> Option<u64> {
        self.0.get(&budget).copied()
    }
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Calls of the model, or steps of another executor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iterations: u64,
    /// Calls of tools.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
    /// Tokens sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Tokens received.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Cost, in millionths of the currency unit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micros: u64,
    /// Time spent working, in microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub active_micros: u64,
}

impl Spent {
    /// How much of `budget` was used.
    pub fn of(&self, budget: Budget) -> u64 {
        match budget {
            Budget::Iterations => self.iterations,
            Budget::ToolCalls => self.tool_calls,
            Budget::Tokens => self.input_tokens.saturating_add(self.output_tokens),
            Budget::CostMicros => self.cost_micros,
            Budget::ActiveMillis => self.active_micros / 1_000,
        }
    }

    /// As the usage of a call.
    pub fn usage(&self) -> Usage {
        Usage { input_tokens: self.input_tokens, output_tokens: self.output_tokens, cost_micros: self.cost_micros }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.iterations = self.iterations.saturating_add(other.iterations);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.active_micros = self.active_micros.saturating_add(other.active_micros);
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<Usage> for Spent {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cost_micros: usage.cost_micros,
            ..Self::default()
        }
    }
}

/// What was used, as the register says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    #[serde(default)]
    pub(crate) turn: Spent,
    #[serde(default)]
    pub(crate) session: Spent,
    /// Limits that were raised for this turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) raised: BTreeMap<Budget, u64>,
    /// Limits that were raised for the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) raised_session: BTreeMap<Budget, u64>,
    /// Raised for the turn that is about to begin.
    #[serde(skip)]
    pub(crate) raised_now: bool,
}

impl Ledger {
    /// Takes note of what was used.
    pub(crate) fn spend(&mut self, spent: Spent) {
        self.turn.add(&spent);
        self.session.add(&spent);
    }

    /// Takes note of time spent working.
    pub(crate) fn spend_time(&mut self, time: Duration) {
        let active_micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.spend(Spent { active_micros, ..Spent::default() });
    }

    /// A new turn begins: what the last one used and was granted no longer counts.
    pub(crate) fn next_turn(&mut self) {
        self.turn = Spent::default();
        if !std::mem::take(&mut self.raised_now) {
            self.raised.clear();
        }
    }

    /// Raises the limit of a budget, of the turn and of the session, wherever there is one.
    pub(crate) fn raise(&mut self, budget: Budget, limit: u64) -> Option<u64> {
        self.raised_now = true;
        let before = self.raised.get(&budget).copied();
        for raised in [&mut self.raised, &mut self.raised_session] {
            let known = raised.entry(budget).or_default();
            *known = limit.max(*known);
        }
        before
    }

    /// Takes back what was noted as used.
    pub(crate) fn refund(&mut self, spent: &Spent) {
        for of in [&mut self.turn, &mut self.session] {
            of.iterations = of.iterations.saturating_sub(spent.iterations);
            of.tool_calls = of.tool_calls.saturating_sub(spent.tool_calls);
        }
    }

    /// The first budget of which nothing is left.
    pub(crate) fn check(&self, turn: &Budgets, session: &Budgets) -> Result<()> {
        self.find(turn, session, |used, limit| used >= limit)
    }

    /// The first budget of which more was asked for than there is.
    pub(crate) fn check_asked(&self, turn: &Budgets, session: &Budgets) -> Result<()> {
        self.find(turn, session, |used, limit| used > limit)
    }

    fn find(&self, turn: &Budgets, session: &Budgets, over: impl Fn(u64, u64) -> bool) -> Result<()> {
        let both =
            [(turn, &self.turn, &self.raised, "turn"), (session, &self.session, &self.raised_session, "session")];
        for (limits, spent, raised, of) in both {
            for (&budget, &limit) in &limits.0 {
                let limit = limit.max(raised.get(&budget).copied().unwrap_or(0));
                let used = spent.of(budget);
                if over(used, limit) {
                    return Err(spent_error(budget, used, limit, of));
                }
            }
        }
        Ok(())
    }
}

fn spent_error(budget: Budget, used: u64, limit: u64, of: &str) -> Error {
    let name = budget.as_str();
    let kind = ErrorKind::BudgetSpent { budget: Cow::Borrowed(name), used, limit };
    Error::new(kind, format!("the {of}'s budget of {name} is used up: {used} of {limit}"))
        .hint(format!("resume with {name} raised above {used}, which is recorded, or cancel the run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_its_own_budget_and_not_the_session_s() {
        let mut ledger = Ledger::default();
        let turn = Budgets::new().with(Budget::Iterations, 2);
        let session = Budgets::new().with(Budget::Iterations, 3);
        let step = Spent { iterations: 1, ..Spent::default() };
        ledger.spend(step);
        assert!(ledger.check(&turn, &session).is_ok());
        ledger.spend(step);
        let error = ledger.check(&turn, &session).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BudgetSpent { used: 2, limit: 2, .. }), "{error:?}");
        ledger.next_turn();
        assert!(ledger.check(&turn, &session).is_ok());
        ledger.spend(step);
        assert!(ledger.check(&turn, &session).unwrap_err().message().contains("session"));
        ledger.raise(Budget::Iterations, 9);
        assert!(ledger.check(&turn, &session).is_ok());
        ledger.next_turn();
        assert_eq!(ledger.raised.len(), 1, "raised for the turn that begins");
        ledger.next_turn();
        assert_eq!((ledger.raised.len(), ledger.raised_session.len()), (0, 1));
        assert!(ledger.check(&turn, &session).is_ok());
    }

    #[test]
    fn what_was_used_survives_the_register() {
        let mut ledger = Ledger::default();
        ledger.spend(Usage { input_tokens: 3, output_tokens: 4, cost_micros: 5 }.into());
        ledger.raised.insert(Budget::Tokens, 10);
        let text = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
        assert_eq!(ledger.turn.of(Budget::Tokens), 7);
        assert!("nonsense".parse::<Budget>().unwrap_err().message().contains("tool_calls"));
    }
}
