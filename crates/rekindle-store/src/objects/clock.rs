//! The time leases go by: the object service's, so that machines need not agree.
//!
//! A service tells its time only as the time it wrote something, in whole seconds. So the time is
//! known up to an interval: an owner's own writes are judged by its late end, everybody else's by
//! its early end. A lease is thus over for its owner before anybody else may take it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rekindle_core::{Clock, Error, ErrorKind, Result, Timestamp};
use tokio::sync::Mutex;

use super::bucket::Bucket;
use super::layout::hex;

/// How long a measurement counts; clocks of computers drift by less than a second in that time.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// Times of objects are given in whole seconds.
const RESOLUTION: Duration = Duration::from_secs(1);

/// Whose point of view the time is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The owner of a lease: the latest it can be.
    Owner,
    /// Anybody else: the earliest it can be.
    Other,
}

#[derive(Debug)]
pub(super) enum StoreClock {
    Given(Arc<dyn Clock>),
    Service(Mutex<Option<Measured>>),
}

/// The service's time was between `early` and `late` when `at` was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    at: Instant,
    early: Timestamp,
    late: Timestamp,
}

impl Measured {
    fn new(before: Instant, after: Instant, modified: Timestamp) -> Self {
        // Written between `before` and `after`, at some moment of that second.
        let late = modified.plus(RESOLUTION).plus(after.duration_since(before));
        Self { at: after, early: modified, late }
    }

    fn now(&self, side: Side, now: Instant) -> Timestamp {
        let since = now.saturating_duration_since(self.at);
        match side {
            Side::Owner => self.late.plus(since),
            Side::Other => self.early.plus(since),
        }
    }
}

impl StoreClock {
    pub(super) async fn now(&self, bucket: &Bucket, nonce: [u8; 16], side: Side) -> Result<Timestamp> {
        match self {
            Self::Given(clock) => Ok(clock.now()),
            Self::Service(measured) => {
                let mut measured = measured.lock().await;
                if let Some(known) = measured.filter(|known| known.at.elapsed() < REFRESH) {
                    return Ok(known.now(side, Instant::now()));
                }
                let new = measure(bucket, nonce).await?;
                *measured = Some(new);
                Ok(new.now(side, Instant::now()))
            }
        }
    }
}

async fn measure(bucket: &Bucket, nonce: [u8; 16]) -> Result<Measured> {
    let name = format!("clock/{}", hex(&nonce));
    let before = Instant::now();
    bucket.put(&name, Bytes::from_static(b"what time is it?")).await?;
    let after = Instant::now();
    let stat = bucket.stat(&name).await;
    // What stays behind is tiny and read by nobody.
    let _ = bucket.delete(&name).await;
    let stat = stat?.ok_or_else(|| {
        Error::new(ErrorKind::StoreUnavailable, format!("{} does not show what was written", bucket.shown()))
    })?;
    Ok(Measured::new(before, after, stat.modified))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_sees_its_lease_end_before_others_do() {
        let before = Instant::now();
        let after = before + Duration::from_millis(300);
        let measured = Measured::new(before, after, Timestamp(5_000_000));
        let later = after + Duration::from_secs(10);
        assert_eq!(measured.now(Side::Other, later), Timestamp(15_000_000));
        assert_eq!(measured.now(Side::Owner, later), Timestamp(16_300_000));
    }
}
