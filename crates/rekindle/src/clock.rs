//! The store's time on a machine whose clock may be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rekindle_core::{Clock, Timestamp};

/// By how much the clock may be off before it is corrected: answers take their time too.
const TOLERATED: i64 = 2_000_000;

/// How long an answer of the store is under way, more or less.
const MOMENT: i64 = 5_000;

/// A clock that is corrected by what the store says.
#[derive(Debug)]
pub(super) struct StoreClock {
    local: Arc<dyn Clock>,
    /// What is added to the local time, in microseconds.
    offset: AtomicI64,
    /// By how much the local time was off last.
    measured: AtomicI64,
}

impl StoreClock {
    pub(super) fn new(local: Arc<dyn Clock>) -> Self {
        Self { local, offset: AtomicI64::new(0), measured: AtomicI64::new(0) }
    }

    /// Takes note of the store's time; the correction in seconds if it is the first.
    pub(super) fn observe(&self, store: Timestamp) -> Option<f64> {
        let off = signed(store).saturating_sub(signed(self.local.now()));
        self.measured.store(off, Ordering::SeqCst);
        let wanted = if off.abs() > TOLERATED { off } else { 0 };
        let before = self.offset.swap(wanted, Ordering::SeqCst);
        (before == 0 && wanted != 0).then_some(wanted as f64 / 1e6)
    }

    /// What the store's clock shows when this one shows `time`. A moment more, so that a job is not
    /// ready before whoever looks at it agrees.
    pub(super) fn as_store(&self, time: Timestamp) -> Timestamp {
        let left = self.measured.load(Ordering::SeqCst) - self.offset.load(Ordering::SeqCst);
        let time = signed(time).saturating_add(left).saturating_add(MOMENT);
        Timestamp(u64::try_from(time).unwrap_or_default()).min(Timestamp::MAX)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let now = signed(self.local.now()).saturating_add(self.offset.load(Ordering::SeqCst));
        Timestamp(u64::try_from(now).unwrap_or_default())
    }
}

fn signed(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u64);

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(self.0)
        }
    }

    fn check(local: u64, store: u64, told: bool, now: u64) {
        let clock = StoreClock::new(Arc::new(Fixed(local)));
        assert_eq!(clock.observe(Timestamp(store)).is_some(), told);
        assert_eq!(clock.observe(Timestamp(store)), None, "told once");
        assert_eq!(clock.now(), Timestamp(now));
    }

    #[test]
    fn a_time_is_told_as_the_store_would() {
        let check = |local: u64, store: u64, time: u64, expected: u64| {
            let clock = StoreClock::new(Arc::new(Fixed(local)));
            clock.observe(Timestamp(store));
            assert_eq!(clock.as_store(Timestamp(time)), Timestamp(expected + MOMENT as u64));
        };
        // A little off: runs go by the local clock, the store by its own.
        check(10_000_000, 11_000_000, 20_000_000, 21_000_000);
        check(11_000_000, 10_000_000, 20_000_000, 19_000_000);
        // Far off: both go by the store's.
        check(10_000_000, 7_210_000_000, 7_220_000_000, 7_220_000_000);
    }

    #[test]
    fn a_clock_that_is_off_is_corrected() {
        check(10_000_000, 11_000_000, false, 10_000_000);
        check(10_000_000, 7_210_000_000, true, 7_210_000_000);
        check(7_210_000_000, 10_000_000, true, 10_000_000);
        check(0, u64::MAX, true, i64::MAX as u64);
    }
}
