//! Budgets in files.

use std::borrow::Cow;

use rekindle::schemars::{self, JsonSchema, Schema, SchemaGenerator, json_schema};
use rekindle::{Budget, Budgets};
use serde::{Deserialize, Deserializer};

use super::Period;

/// What may be used. What is not limited here is not limited at all, except that a turn of an agent
/// has fifty iterations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetsSpec {
    /// Calls of the model, or steps of a plan, or visits of a graph's nodes.
    pub iterations: Option<u64>,
    /// Calls of tools.
    pub tool_calls: Option<u64>,
    /// Tokens sent and received.
    pub tokens: Option<u64>,
    /// Cost in units of the currency, e.g. `0.50`. It needs models with a `price`.
    pub cost: Option<Money>,
    /// Time spent working, e.g. `10m`. Waiting for a person is not counted.
    pub active_time: Option<Period>,
}

impl BudgetsSpec {
    /// What is said here, and where nothing is said, what `other` says.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            iterations: self.iterations.or(other.iterations),
            tool_calls: self.tool_calls.or(other.tool_calls),
            tokens: self.tokens.or(other.tokens),
            cost: self.cost.or(other.cost),
            active_time: self.active_time.or(other.active_time),
        }
    }

    /// As runs take them.
    pub fn budgets(&self) -> Budgets {
        let active = self.active_time.map(|time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX));
        let limits = [
            (Budget::Iterations, self.iterations),
            (Budget::ToolCalls, self.tool_calls),
            (Budget::Tokens, self.tokens),
            (Budget::CostMicros, self.cost.map(|cost| cost.0)),
            (Budget::ActiveMillis, active),
        ];
        let given = limits.into_iter().filter_map(|(budget, limit)| Some((budget, limit?)));
        given.fold(Budgets::new(), |budgets, (budget, limit)| budgets.with(budget, limit))
    }
}

/// An amount of money in millionths of the currency unit; in files a decimal number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money(pub u64);

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let units = f64::deserialize(deserializer)?;
        let micros = (units * 1e6).round();
        if !(0.0..=9e15).contains(&micros) {
            return Err(serde::de::Error::custom(format!("{units} is no amount of money\ngive a number from 0 up")));
        }
        // Not negative and below 2^53, so nothing is lost.
        Ok(Self(micros as u64))
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "description": "An amount in units of the currency, e.g. 0.50." })
    }
}
