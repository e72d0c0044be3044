//! A clock that moves only when it is told to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::{Clock, Timestamp};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl Default for ManualClock {
    /// Some time in 2026.
    fn default() -> Self {
        Self(AtomicU64::new(1_794_700_000_000_000))
    }
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the clock back.
    pub fn set_back(&self, by: Duration) {
        self.0.fetch_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
