//! Points in time as plain integers, and the clock that whoever does I/O must supply.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The far end of time.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// This point moved forward by `duration`, saturating at [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros)).min(Self::MAX)
    }

    /// This point moved back by `duration`, saturating at the epoch.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds since the Unix epoch.
    pub fn as_millis(self) -> u64 {
        self.0 / 1_000
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
            second_of_day / 3_600,
            second_of_day / 60 % 60,
            second_of_day % 60,
            self.0 % 1_000_000
        )
    }
}

/// Days since 1970-01-01 to a date of the proleptic Gregorian calendar.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Tells the time. Stores own one, so that a lease expires by the store's clock alone.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// The time since the machine was started, where that can be told. All processes of the machine
    /// share it, and setting the wall clock does not change it.
    fn since_boot(&self) -> Option<BootTime> {
        None
    }
}

/// A point in time by the clock that started with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTime {
    /// Tells one start of one machine from every other.
    pub boot: u64,
    /// Microseconds since then.
    pub micros: u64,
}

/// A point in time by both clocks of a store on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the wall clock.
    pub wall: Timestamp,
    /// Since the machine was started.
    pub boot: Option<BootTime>,
}

impl Moment {
    /// Reads both clocks of `clock`.
    pub fn of(clock: &dyn Clock) -> Self {
        Self { wall: clock.now(), boot: clock.since_boot() }
    }

    /// The boot time at which the wall clock will show `time`, unless it is set meanwhile.
    pub fn boot_at(&self, time: Timestamp) -> Option<BootTime> {
        let micros = |boot: BootTime| boot.micros.saturating_add(time.0).saturating_sub(self.wall.0);
        self.boot.map(|boot| BootTime { micros: micros(boot), ..boot })
    }

    /// Returns what the wall clock will show at a boot time, unless it is set meanwhile; nothing if that was
    /// measured by another clock.
    pub fn wall_at(&self, time: BootTime) -> Option<Timestamp> {
        let now = self.boot.filter(|now| now.boot == time.boot)?;
        let wall = self.wall.0.saturating_add(time.micros).saturating_sub(now.micros);
        Some(Timestamp(wall).min(Timestamp::MAX))
    }
}

impl From<Timestamp> for Moment {
    fn from(wall: Timestamp) -> Self {
        Self { wall, boot: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(micros: u64, expected: &str) {
        assert_eq!(Timestamp(micros).to_string(), expected);
    }

    #[test]
    fn prints_rfc_3339() {
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_399_000_001, "2000-02-28T23:59:59.000001Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z");
        check(1_794_740_400_123_456, "2026-11-15T11:00:00.123456Z");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(5).minus(Duration::from_secs(1)), Timestamp(0));
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp(1).since(Timestamp(5)), Duration::ZERO);
    }
}
