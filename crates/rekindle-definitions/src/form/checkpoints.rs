//! When checkpoints are made, in files of agents and plans. Graphs have their own form.

use std::fmt;

use rekindle::schemars::{self, JsonSchema};
use rekindle::{Frequency, Smart};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::Period;

/// When checkpoints are made: a name, or an object with `every` or `smart`.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[serde(untagged)]
pub enum CheckpointsSpec {
    /// By name.
    Named(CheckpointName),
    /// When a turn ends, and after every so many iterations.
    Every {
        /// How many iterations.
        every: u32,
    },
    /// When a turn ends, and where it pays.
    Smart {
        /// Where it pays.
        smart: SmartSpec,
    },
}

/// When checkpoints are made, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointName {
    /// When a turn ends.
    PerTurn,
    /// When a turn or an iteration ends; for a plan, a step.
    PerIteration,
    /// Only when asked for, and when a run fails.
    Manual,
    /// When a turn ends, before risky tools, and after slow or large steps.
    Smart,
}

/// Where a checkpoint pays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmartSpec {
    /// After a step that took this long; `10s` unless this says otherwise.
    pub slow: Option<Period>,
    /// After a step that added this many bytes to the state; 65536 unless this says otherwise.
    pub large: Option<usize>,
    /// Before tools and steps that are declared risky; yes unless this says otherwise.
    pub before_risky: Option<bool>,
}

impl CheckpointsSpec {
    /// As runs take it.
    pub fn frequency(&self) -> Frequency {
        match self {
            Self::Named(CheckpointName::PerTurn) => Frequency::PerTurn,
            Self::Named(CheckpointName::PerIteration) => Frequency::PerIteration,
            Self::Named(CheckpointName::Manual) => Frequency::Manual,
            Self::Named(CheckpointName::Smart) => Frequency::Smart(Smart::default()),
            Self::Every { every } => Frequency::Every(*every),
            Self::Smart { smart } => {
                let usual = Smart::default();
                Frequency::Smart(Smart {
                    slow: smart.slow.map_or(usual.slow, |slow| slow.0),
                    large: smart.large.unwrap_or(usual.large),
                    before_risky: smart.before_risky.unwrap_or(usual.before_risky),
                })
            }
        }
    }
}

impl<'de> Deserialize<'de> for CheckpointsSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

/// Tried one by one, an error would not say which part of which form is wrong.
struct Either;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Object {
    Every(u32),
    Smart(SmartSpec),
}

impl<'de> Visitor<'de> for Either {
    type Value = CheckpointsSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`per_turn`, `per_iteration`, `manual`, `smart`, or an object with `every` or `smart`")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<CheckpointsSpec, E> {
        CheckpointName::deserialize(serde::de::value::StrDeserializer::new(name)).map(CheckpointsSpec::Named)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<CheckpointsSpec, A::Error> {
        Ok(match Object::deserialize(MapAccessDeserializer::new(fields))? {
            Object::Every(0) => return Err(A::Error::custom("`every` must be at least 1")),
            Object::Every(every) => CheckpointsSpec::Every { every },
            Object::Smart(smart) => CheckpointsSpec::Smart { smart },
        })
    }
}
