//! The amount of work of a run, as the environment says it.

use std::path::PathBuf;
use std::time::Duration;

/// Cases of a target in an ordinary test run.
const CASES: u32 = 400;
/// The seed of ordinary test runs: the same inputs every time.
const SEED: u64 = 0x5eed;

/// The effort spent on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Cases of each target, from `REKINDLE_FUZZ_CASES`.
    pub cases: u32,
    /// Time of each target, from `REKINDLE_FUZZ_SECONDS`; cases are not counted then.
    pub time: Option<Duration>,
    /// A part of the names of the targets that run at all, from `REKINDLE_FUZZ_TARGET`.
    pub target: Option<String>,
    /// Seed of the random numbers, from `REKINDLE_FUZZ_SEED`.
    pub seed: u64,
    /// File that each input is written to before it is tried, from `REKINDLE_FUZZ_TRACE`: it holds the culprit
    /// if the process dies, of a stack overflow or an allocation that fails.
    pub trace: Option<PathBuf>,
}

impl Effort {
    /// Reads the environment.
    ///
    /// # Panics
    ///
    /// If a variable is set and is not a number.
    pub fn from_environment() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| {
            let text = variable(name).filter(|text| !text.is_empty())?;
            let number = text.parse::<u64>();
            Some(number.unwrap_or_else(|_| panic!("{name} is `{text}`, which is not a number")))
        };
        Self {
            cases: number("REKINDLE_FUZZ_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap_or(u32::MAX)),
            time: number("REKINDLE_FUZZ_SECONDS").map(Duration::from_secs),
            target: variable("REKINDLE_FUZZ_TARGET").filter(|name| !name.is_empty()),
            seed: number("REKINDLE_FUZZ_SEED").unwrap_or(SEED),
            trace: variable("REKINDLE_FUZZ_TRACE").filter(|path| !path.is_empty()).map(PathBuf::from),
        }
    }
}

impl Default for Effort {
    fn default() -> Self {
        Self { cases: CASES, time: None, target: None, seed: SEED, trace: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_much() {
        let check = |set: &[(&str, &str)], expected: Effort| {
            let variable = |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_string());
            assert_eq!(Effort::read(variable), expected);
        };
        check(&[], Effort::default());
        check(&[("REKINDLE_FUZZ_CASES", "9")], Effort { cases: 9, ..Effort::default() });
        check(&[("REKINDLE_FUZZ_CASES", "99999999999")], Effort { cases: u32::MAX, ..Effort::default() });
        check(
            &[("REKINDLE_FUZZ_SECONDS", "60"), ("REKINDLE_FUZZ_SEED", "7")],
            Effort { time: Some(Duration::from_secs(60)), seed: 7, ..Effort::default() },
        );
        check(&[("REKINDLE_FUZZ_TARGET", "frame")], Effort { target: Some("frame".into()), ..Effort::default() });
        check(
            &[("REKINDLE_FUZZ_SECONDS", ""), ("REKINDLE_FUZZ_TRACE", "x")],
            Effort { trace: Some("x".into()), ..Effort::default() },
        );
    }

    #[test]
    #[should_panic(expected = "REKINDLE_FUZZ_CASES is `many`")]
    fn a_typing_error_is_not_taken_for_the_default() {
        Effort::read(|name| (name == "REKINDLE_FUZZ_CASES").then(|| "many".into()));
    }
}
