//! The store's time. Rules about time (when a wait expires, when a timer fires) go by it, because the
//! clocks of the machines that share a store may differ.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rekindle_core::{BootTime, Clock, Moment, Timestamp};

/// By how much the local clock may be off before that is worth telling.
const WORTH_TELLING: Duration = Duration::from_secs(2);

/// By how much the store may seem to be behind what it showed before: answers take their time.
const LATENCY: Duration = Duration::from_secs(1);

/// Time an answer of the store is under way, more or less.
const MOMENT: Duration = Duration::from_millis(5);

/// Shows the store's time: that of its last answer, and what has passed since by a clock that
/// nobody sets. Shows the local time until the store has answered.
///
/// The time shown is never ahead of the store, so nothing expires early by it.
#[derive(Debug)]
pub(crate) struct StoreClock {
    local: Arc<dyn Clock>,
    seen: Mutex<Option<Seen>>,
    told: AtomicBool,
}

/// The store's time in an answer, and when that was received.
#[derive(Clone, Copy, Debug)]
struct Seen {
    store: Timestamp,
    local: Moment,
}

impl Seen {
    fn now(&self, local: Moment) -> Timestamp {
        let passed = match (self.local.boot, local.boot) {
            (Some(then), Some(now)) if then.boot == now.boot => now.micros.saturating_sub(then.micros),
            _ => local.wall.0.saturating_sub(self.local.wall.0),
        };
        self.store.plus(Duration::from_micros(passed))
    }
}

impl StoreClock {
    pub(crate) fn new(local: Arc<dyn Clock>) -> Self {
        Self { local, seen: Mutex::default(), told: AtomicBool::new(false) }
    }

    /// Takes note of the store's time in an answer that was just received. By how many seconds the
    /// local clock is off, once, if that is worth telling.
    pub(crate) fn observe(&self, store: Timestamp) -> Option<f64> {
        let local = Moment::of(&*self.local);
        let mut seen = self.seen();
        // The quickest answer is the best one, unless the store's clock was set.
        let kept = seen.is_some_and(|seen| seen.now(local) >= store && seen.now(local).since(store) < LATENCY);
        if !kept {
            *seen = Some(Seen { store, local });
        }
        let off = store.since(local.wall).max(local.wall.since(store));
        let seconds = (store.0 as f64 - local.wall.0 as f64) / 1e6;
        (off > WORTH_TELLING && !self.told.swap(true, Ordering::SeqCst)).then_some(seconds)
    }

    /// Returns when the store's clock surely shows `time`: a moment later, so that a job is not ready before
    /// the process that looks at it agrees.
    pub(crate) fn surely(time: Timestamp) -> Timestamp {
        time.plus(MOMENT)
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let local = Moment::of(&*self.local);
        self.seen().map_or(local.wall, |seen| seen.now(local))
    }

    fn since_boot(&self) -> Option<BootTime> {
        self.local.since_boot()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// A wall clock that can be set, beside a boot clock that cannot.
    #[derive(Debug, Default)]
    struct Local {
        wall: AtomicU64,
        boot: AtomicU64,
    }

    impl Local {
        fn advance(&self, micros: u64) {
            self.wall.fetch_add(micros, Ordering::SeqCst);
            self.boot.fetch_add(micros, Ordering::SeqCst);
        }
    }

    impl Clock for Local {
        fn now(&self) -> Timestamp {
            Timestamp(self.wall.load(Ordering::SeqCst))
        }

        fn since_boot(&self) -> Option<BootTime> {
            Some(BootTime { boot: 1, micros: self.boot.load(Ordering::SeqCst) })
        }
    }

    fn at(wall: u64) -> (Arc<Local>, StoreClock) {
        let local = Arc::new(Local { wall: AtomicU64::new(wall), boot: AtomicU64::new(7) });
        (Arc::clone(&local), StoreClock::new(local))
    }

    #[test]
    fn the_stores_time_counts_however_the_local_clock_is_set() {
        let check = |wall: u64, store: u64, told: bool| {
            let (local, clock) = at(wall);
            assert_eq!(clock.now(), Timestamp(wall), "nothing is known of the store");
            assert_eq!(clock.observe(Timestamp(store)).is_some(), told);
            assert_eq!(clock.observe(Timestamp(store)), None, "told once");
            local.advance(500);
            assert_eq!(clock.now(), Timestamp(store + 500));
            local.wall.store(0, Ordering::SeqCst);
            assert_eq!(clock.now(), Timestamp(store + 500));
        };
        check(10_000_000, 11_000_000, false);
        check(10_000_000, 7_210_000_000, true);
        check(7_210_000_000, 10_000_000, true);
    }

    #[test]
    fn a_slow_answer_does_not_set_it_back() {
        let (local, clock) = at(0);
        clock.observe(Timestamp(1_000_000));
        local.advance(1_000);
        clock.observe(Timestamp(1_000_900));
        assert_eq!(clock.now(), Timestamp(1_001_000));
        clock.observe(Timestamp(1_002_000));
        assert_eq!(clock.now(), Timestamp(1_002_000), "a quicker one sets it right");
        clock.observe(Timestamp(2_000));
        assert_eq!(clock.now(), Timestamp(2_000), "the store's clock was set");
    }
}
