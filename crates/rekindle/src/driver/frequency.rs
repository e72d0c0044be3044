//! Which positions are marked as checkpoints. The journal is written regardless.

use std::time::Duration;

/// When a checkpoint is made by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frequency {
    /// When a turn ends.
    #[default]
    PerTurn,
    /// When a turn or an iteration ends.
    PerIteration,
    /// When a turn ends, and after every so many iterations.
    Every(u32),
    /// Only when asked for, and when a run fails.
    Manual,
    /// When a turn ends, and where it pays.
    Smart(Smart),
}

/// Where a checkpoint pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smart {
    /// After a step that took this long.
    pub slow: Duration,
    /// After a step that added this many bytes to the state.
    pub large: usize,
    /// Before tools that are declared risky.
    pub before_risky: bool,
}

impl Default for Smart {
    fn default() -> Self {
        Self { slow: Duration::from_secs(10), large: 64 << 10, before_risky: true }
    }
}

impl Frequency {
    /// Whether a step that ended is marked.
    pub(crate) fn marks_step(&self, step: u64, took: Duration, bytes: usize) -> bool {
        match self {
            Self::PerTurn | Self::Manual => false,
            Self::PerIteration => true,
            Self::Every(n) => step.is_multiple_of(u64::from((*n).max(1))),
            Self::Smart(smart) => took >= smart.slow || bytes >= smart.large,
        }
    }

    /// Whether new input is marked.
    pub(crate) fn marks_input(&self) -> bool {
        matches!(self, Self::PerIteration | Self::Every(_))
    }

    /// Whether the end of a turn is marked.
    pub(crate) fn marks_turn(&self) -> bool {
        *self != Self::Manual
    }

    /// Whether the moment before a risky call is marked.
    pub(crate) fn marks_risky(&self) -> bool {
        matches!(self, Self::Smart(smart) if smart.before_risky)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frequency: Frequency, expected: [bool; 4]) {
        let second = Duration::from_secs(1);
        let quick = frequency.marks_step(1, second, 10);
        let third = frequency.marks_step(3, second, 10);
        let slow = frequency.marks_step(1, second * 60, 10);
        let large = frequency.marks_step(1, second, 1 << 20);
        assert_eq!([quick, third, slow, large], expected, "{frequency:?}");
    }

    #[test]
    fn frequencies_mark_what_they_say() {
        check(Frequency::PerTurn, [false; 4]);
        check(Frequency::Manual, [false; 4]);
        check(Frequency::PerIteration, [true; 4]);
        check(Frequency::Every(3), [false, true, false, false]);
        check(Frequency::Every(0), [true; 4]);
        check(Frequency::Smart(Smart::default()), [false, false, true, true]);
    }
}
