//! Durations as people write them in files: `500ms`, `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let millis = UNITS.iter().find(|(name, _)| *name == unit.trim()).and_then(|(_, millis)| {
        let number: u64 = number.parse().ok()?;
        number.checked_mul(*millis)
    });
    millis.map(Duration::from_millis).ok_or_else(|| format!("`{text}` is no duration; write `500ms`, `30s` or `5m`"))
}

/// Writes a duration, in the largest unit that fits.
pub(crate) fn print(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |unit: &&(&str, u64)| millis.is_multiple_of(unit.1) && (millis > 0 || unit.0 == "s");
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{name}", millis / unit)
}

/// For `#[serde(with = …)]` on an optional duration.
pub(crate) mod optional {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(print).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse(&text).map_err(D::Error::custom)).transpose()
    }
}

/// For `#[serde(with = …)]` on a duration.
pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    print(*duration).serialize(serializer)
}

/// For `#[serde(with = …)]` on a duration.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
            assert_eq!(print(Duration::from_millis(millis)), text);
        }
        assert_eq!(print(Duration::ZERO), "0s");
        assert_eq!(parse(" 90 s "), Ok(Duration::from_secs(90)));
        for text in ["", "s", "5", "-1s", "1.5s", "5 weeks", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fuzzed_durations() {
        rekindle_fuzz::fuzz!("duration").seeds(["500ms", "30s", "5m", "2h", "1d"]).text(|text| {
            let duration = parse(text)?;
            assert_eq!(parse(&print(duration)), Ok(duration));
            Ok::<(), String>(())
        });
    }
}
