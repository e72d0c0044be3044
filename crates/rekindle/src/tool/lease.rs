//! The lease of a run, as its tools see it.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The lease that a call is made under, as far as this process knows. The store lets nobody else take
/// the session before it has ended.
#[derive(Clone, Debug)]
pub struct HeldLease {
    until: watch::Receiver<Instant>,
}

impl HeldLease {
    pub(crate) fn new(until: watch::Receiver<Instant>) -> Self {
        Self { until }
    }

    /// The time for which the lease is surely held if it is not renewed any more.
    pub fn left(&self) -> Duration {
        self.until.borrow().saturating_duration_since(Instant::now())
    }

    /// Waits until the lease is renewed, for ever if it is not. A renewal since the last call, or since
    /// this was made, counts.
    pub async fn renewed(&mut self) {
        if self.until.changed().await.is_err() {
            // The run has ended, and with it the renewals.
            std::future::pending().await
        }
    }
}
