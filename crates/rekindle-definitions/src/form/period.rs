//! Lengths of time as people write them.

use std::borrow::Cow;
use std::time::Duration;

use rekindle::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A length of time: `500ms`, `30s`, `5m`, `2h`, `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

impl std::str::FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let millis = UNITS.iter().find(|(name, _)| *name == unit.trim()).and_then(|(_, millis)| {
            let number: u64 = number.parse().ok()?;
            number.checked_mul(*millis)
        });
        let short: String = text.chars().take(40).collect();
        let period = millis.map(|millis| Self(Duration::from_millis(millis)));
        period.ok_or_else(|| format!("`{short}` is no duration\nwrite `500ms`, `30s`, `5m`, `2h` or `1d`"))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Period;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a duration such as `30s`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Period, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Period, E> {
                Err(E::custom(format!("the number {number} has no unit\nwrite `{number}s` for seconds")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A length of time: `500ms`, `30s`, `5m`, `2h`, `1d`.",
            "pattern": r"^\s*[0-9]+\s*(ms|s|m|h|d)\s*$",
        })
    }
}
