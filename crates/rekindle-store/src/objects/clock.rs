//! The time leases go by: the object service's, so that machines need not agree.
//!
//! A service tells its time as the date of each answer, in whole seconds; where answers have none, as the time it
//! wrote something. So the time is
//! known up to an interval: an owner's own writes are judged by its late end, everybody else's by
//! its early end. A lease is thus over for its owner before anybody else may take it. Between two measurements the
//! time goes on by the clock that started with the machine, which also counts while the machine sleeps.
//!
//! A directory goes by the clocks of its machine: leases by the one that started with it, dates by the wall clock.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rekindle_core::{
    BootTime, BranchInfo, Clock, Error, ErrorKind, LeaseInfo, MAX_LEASE, Moment, Result, SessionInfo, Timestamp,
};
use tokio::sync::Mutex;

use super::bucket::Bucket;
use super::dates::Dated;
use super::layout::{CLOCK, hex};
use crate::system::{SystemClock, system_ids};

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

/// The store's time as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) early: Timestamp,
    pub(super) late: Timestamp,
    /// Since the machine was started, where that is the clock leases go by.
    boot: Option<BootTime>,
}

impl Now {
    pub(super) fn on(&self, side: Side) -> Timestamp {
        match side {
            Side::Owner => self.late,
            Side::Other => self.early,
        }
    }

    /// The end of a lease that is granted or renewed now: it lasts for its time whatever the time really is,
    /// and not longer than others accept.
    pub(super) fn end_of(&self, ttl: Duration) -> Timestamp {
        self.late.plus(ttl).min(self.early.plus(MAX_LEASE))
    }

    /// Binds a lease to the clock of the machine, if that is the one leases go by.
    pub(super) fn bind(&self, lease: &mut LeaseInfo) {
        lease.bind(self.moment());
    }

    /// A session as it is seen now.
    pub(super) fn seen(&self, info: &SessionInfo) -> SessionInfo {
        let mut info = SessionInfo { observed_at: self.early, ..info.clone() };
        let leases = info.branches.iter_mut().filter_map(|branch| branch.lease.as_mut());
        leases.for_each(|lease| lease.seen_at(self.moment()));
        info
    }

    /// A lease as it is seen now.
    pub(super) fn seen_lease(&self, lease: &LeaseInfo) -> LeaseInfo {
        let mut lease = lease.clone();
        lease.seen_at(self.moment());
        lease
    }

    /// The same to decide by: copied only if a lease goes by the clock of the machine.
    pub(super) fn judged<'a>(&self, info: &'a SessionInfo) -> Cow<'a, SessionInfo> {
        let bound = |branch: &BranchInfo| branch.lease.as_ref().is_some_and(|lease| lease.boot.is_some());
        match self.boot.is_some() && info.branches.iter().any(bound) {
            true => Cow::Owned(self.seen(info)),
            false => Cow::Borrowed(info),
        }
    }

    fn moment(&self) -> Moment {
        Moment { wall: self.early, boot: self.boot }
    }
}

/// A moment in this process, by a clock that also counts while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    at: Instant,
    boot: Option<BootTime>,
}

impl Started {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), boot: SystemClock.since_boot() }
    }

    /// The time since then.
    pub(super) fn age(&self) -> Duration {
        self.until(&Self::now())
    }

    /// A moment that long ago.
    #[cfg(test)]
    pub(super) fn ago(age: Duration) -> Self {
        let now = Self::now();
        let at = now.at.checked_sub(age).unwrap_or(now.at);
        let boot = now.boot.map(|boot| BootTime { micros: boot.micros - age.as_micros() as u64, ..boot });
        Self { at, boot }
    }

    fn until(&self, later: &Self) -> Duration {
        match (self.boot, later.boot) {
            (Some(then), Some(now)) if then.boot == now.boot => {
                Duration::from_micros(now.micros.saturating_sub(then.micros))
            }
            _ => later.at.saturating_duration_since(self.at),
        }
    }
}

#[derive(Debug)]
pub(super) enum StoreClock {
    Given(Arc<dyn Clock>),
    Service(Mutex<Option<Measured>>),
}

/// The service's time was between `early` and `late` when `at` was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    at: Started,
    early: Timestamp,
    late: Timestamp,
}

impl Measured {
    fn new(before: Started, after: Started, modified: Timestamp) -> Self {
        // Written between `before` and `after`, at some moment of that second.
        let late = modified.plus(RESOLUTION).plus(before.until(&after));
        Self { at: after, early: modified, late }
    }

    /// What the date of an answer says: it was written in that second, between request and answer.
    fn of(Dated { before, after, date }: Dated) -> Self {
        Self::new(before, after, date)
    }

    fn after(&self, since: Duration) -> Now {
        Now { early: self.early.plus(since), late: self.late.plus(since), boot: None }
    }
}

impl StoreClock {
    pub(super) async fn now(&self, bucket: &Bucket, nonce: [u8; 16]) -> Result<Now> {
        match self {
            Self::Given(clock) => {
                let now = Moment::of(&**clock);
                Ok(Now { early: now.wall, late: now.wall, boot: now.boot })
            }
            Self::Service(measured) => {
                let mut measured = measured.lock().await;
                let since = |known: &Measured| known.at.age();
                if let Some(known) = measured.filter(|known| since(known) < REFRESH) {
                    return Ok(known.after(since(&known)));
                }
                let told = bucket.dates.last().map(Measured::of).filter(|told| since(told) < REFRESH);
                let new = match told {
                    Some(told) => told,
                    None => measure(bucket, nonce).await?,
                };
                *measured = Some(new);
                Ok(new.after(since(&new)))
            }
        }
    }
}

impl Bucket {
    /// The time of the place, never ahead of it: what the age of objects is judged by.
    pub async fn now(&self) -> Result<Timestamp> {
        match self.is_local() {
            true => Ok(SystemClock.now()),
            false => Ok(measure(self, system_ids()?.nonce()).await?.early),
        }
    }
}

async fn measure(bucket: &Bucket, nonce: [u8; 16]) -> Result<Measured> {
    let name = format!("{CLOCK}/{}", hex(&nonce));
    let before = Started::now();
    bucket.put(&name, Bytes::from_static(b"what time is it?")).await?;
    let after = Started::now();
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

    fn moment(at: Instant, micros: u64, boot: u64) -> Started {
        Started { at, boot: Some(BootTime { boot, micros }) }
    }

    #[test]
    fn an_owner_sees_its_lease_end_before_others_do() {
        let at = Instant::now();
        let measured = Measured::new(moment(at, 7, 1), moment(at, 300_007, 1), Timestamp(5_000_000));
        let later = measured.after(Duration::from_secs(10));
        assert_eq!(later.on(Side::Other), Timestamp(15_000_000));
        assert_eq!(later.on(Side::Owner), Timestamp(16_300_000));
        // It lasts for its time, and no longer than others accept.
        assert_eq!(later.end_of(Duration::from_secs(5)), Timestamp(21_300_000));
        assert_eq!(later.end_of(MAX_LEASE), later.early.plus(MAX_LEASE));
    }

    #[test]
    fn a_machine_that_slept_knows_how_long() {
        let at = Instant::now();
        let since = |later: Started| moment(at, 7, 1).until(&later);
        let second = at + Duration::from_secs(1);
        assert_eq!(since(moment(second, 7_200_000_007, 1)), Duration::from_secs(7_200));
        assert_eq!(since(moment(second, 7_200_000_007, 2)), Duration::from_secs(1), "another clock says nothing");
        assert_eq!(since(Started { at: second, boot: None }), Duration::from_secs(1));
    }
}
