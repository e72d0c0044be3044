//! Keeps a lease alive, and looks for what other processes sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rekindle_core::{BranchId, ErrorKind, Lease, OwnerId, Result, StoreExt as _};
use tokio::sync::watch;

use super::{Driver, Shared};

/// An owner whose lease was ended so that a run could begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The owner.
    pub owner: OwnerId,
    /// Its process was known to be dead; otherwise it may be alive, and is fenced out.
    pub dead: bool,
}

/// Until when this process may believe that it is the owner, by its own monotonic clock. Always
/// earlier than what the store believes: counted from before the request that renewed it.
#[derive(Debug)]
pub(crate) struct Deadline {
    until: watch::Sender<Instant>,
}

impl Deadline {
    pub(crate) fn new(renewed: Instant, ttl: Duration) -> Self {
        Self { until: watch::Sender::new(end_of(renewed, ttl)) }
    }

    fn renewed(&self, at: Instant, ttl: Duration) {
        let until = end_of(at, ttl);
        self.until.send_if_modified(|known| {
            let later = until > *known;
            *known = until.max(*known);
            later
        });
    }

    /// Returns true once this process can no longer be sure that it is the owner.
    pub(super) fn has_passed(&self) -> bool {
        Instant::now() >= *self.until.borrow()
    }

    /// Follows the deadline as it moves.
    pub(crate) fn follow(&self) -> watch::Receiver<Instant> {
        self.until.subscribe()
    }
}

/// The end of a lease. One beyond what the clock can express ends in a year.
fn end_of(renewed: Instant, ttl: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    renewed.checked_add(ttl).unwrap_or(renewed + YEAR)
}

impl Driver {
    /// An error unless this process is still the owner. A process that was frozen past its lease
    /// finds out here, before it starts anything.
    pub(crate) async fn ensure_owner(&self) -> Result<()> {
        if let Some(error) = self.shared.control.lost() {
            return Err(error);
        }
        if self.shared.deadline.has_passed() { self.shared.renew().await } else { Ok(()) }
    }

    /// Follows the time until which this process is surely the owner.
    pub(crate) fn follow_lease(&self) -> watch::Receiver<Instant> {
        self.shared.deadline.follow()
    }
}

impl Shared {
    async fn renew(&self) -> Result<()> {
        let started = Instant::now();
        let renewed = self.engine.journal().store().renew(&self.lease, self.engine.lease()).await;
        match renewed {
            Ok(lease) => {
                self.engine.observe(&lease);
                self.deadline.renewed(started, self.engine.lease());
                Ok(())
            }
            Err(error) => {
                let passing = error.retry() == rekindle_core::Retry::Later && !self.deadline.has_passed();
                if passing && !matches!(error.kind(), ErrorKind::Fenced { .. }) {
                    return Err(error);
                }
                let error = self.explained(error);
                self.control.lose(error.duplicate());
                Err(error)
            }
        }
    }
}

impl Shared {
    /// A lease that was lost because nobody could renew it has another cause than most think.
    fn explained(&self, error: rekindle_core::Error) -> rekindle_core::Error {
        let late = Duration::from_micros(self.late_micros.load(Ordering::SeqCst));
        if late < self.engine.lease() / 2 {
            return error.hint("somebody else may run the session now; resume it to go on from the journal");
        }
        error.hint(format!(
            "the lease was not renewed because nothing else could run for {late:.1?}: a tool or model blocks the \
             runtime; do such work in `tokio::task::spawn_blocking`, then resume"
        ))
    }
}

/// Renews the lease a few times in its life and wakes the run when something is in its inbox,
/// until the run ends.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let (ttl, poll) = (shared.engine.lease(), shared.engine.poll());
    let mut renewed = Instant::now();
    loop {
        let slept = Instant::now();
        let tick = poll.min(ttl / 3);
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            () = shared.live.inbox_changed() => {}
        }
        let late = slept.elapsed().saturating_sub(tick);
        shared.late_micros.fetch_max(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
        if renewed.elapsed() >= ttl / 3 {
            // A failure that passes is tried again at the next tick; one that does not is noted.
            if shared.renew().await.is_ok() {
                renewed = Instant::now();
            }
        }
        if shared.control.lost().is_some() {
            return;
        }
        shared.look_into_inbox().await;
    }
}

impl Shared {
    /// Notes that there is something in the inbox, and what it means for calls under way.
    async fn look_into_inbox(&self) {
        let Ok(info) = self.engine.journal().open(&self.lease.session).await else { return };
        let Ok(inbox) = info.branch(&BranchId::inbox()) else { return };
        let known = self.inbox_seen.load(Ordering::SeqCst);
        if inbox.head.seq.0 <= known {
            return;
        }
        // If it cannot be read now, the next tick tries again.
        let Ok(entries) = super::inbox::read_behind(&self.engine, &self.lease.session, known, usize::MAX).await else {
            return;
        };
        self.inbox_news.store(true, Ordering::SeqCst);
        // Unless the run itself has taken it over meanwhile, and reacted.
        if self.inbox_seen.fetch_max(inbox.head.seq.0, Ordering::SeqCst) == known {
            self.react(&entries.records, true);
        }
        self.news.notify_waiters();
    }
}

/// Gives the lease back. If that fails it expires by itself.
pub(crate) async fn release(engine: &crate::Engine, lease: &Lease) {
    let _ = engine.journal().store().release(lease).await;
}
