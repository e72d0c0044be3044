//! Keeps a lease alive, and looks for what other processes sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rekindle_core::{BranchId, Error, ErrorKind, Lease, OwnerId, Result, Retries, StoreExt as _};
use tokio::sync::watch;

use super::{Driver, Shared};
use crate::event::LiveKind;

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
        let renewal = self.engine.journal().store().renew(&self.lease, self.engine.lease());
        // Another attempt has time before the lease ends, perhaps over a connection that is not hung.
        let renewed = tokio::time::timeout(self.engine.lease() / 3, renewal).await;
        let unanswered = |_| Err(Error::new(ErrorKind::StoreUnavailable, "the renewal of the lease was not answered"));
        match renewed.unwrap_or_else(unanswered) {
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
    fn explained(&self, error: Error) -> Error {
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
    let (ttl, mut pace) = (shared.engine.lease(), shared.engine.pace());
    let (mut renewed, mut looked) = (Instant::now(), Instant::now());
    let mut retries = SeenRetries::before(&shared);
    loop {
        let slept = Instant::now();
        let until_renewal = match (ttl / 3).saturating_sub(renewed.elapsed()) {
            // The last one failed.
            Duration::ZERO => shared.engine.poll().min(ttl / 3),
            left => left,
        };
        let tick = pace.next().saturating_sub(looked.elapsed()).min(until_renewal);
        let told = tokio::select! {
            () = tokio::time::sleep(tick) => false,
            () = shared.live.inbox_changed() => true,
        };
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
        if told || looked.elapsed() >= pace.next() {
            // A look that hangs must not keep the lease from being renewed.
            let room = (ttl / 3).saturating_sub(renewed.elapsed()).max(ttl / 10);
            match tokio::time::timeout(room, shared.look_into_inbox()).await {
                Ok(true) => pace.quicken(),
                Ok(false) | Err(_) => pace.slow_down(),
            }
            looked = Instant::now();
        }
        retries.tell(&shared);
    }
}

/// The requests the store made again during a run, as far as they were announced.
struct SeenRetries {
    before: u64,
    announced: u64,
}

impl SeenRetries {
    fn before(shared: &Shared) -> Self {
        Self { before: shared.engine.journal().store().retries().requests, announced: 0 }
    }

    /// Announces the first, and then each time there are twice as many.
    fn tell(&mut self, shared: &Arc<Shared>) {
        let Retries { requests, last } = shared.engine.journal().store().retries();
        let new = requests.saturating_sub(self.before);
        if new > 0 && new >= self.announced * 2 {
            self.announced = new;
            let text = format!("the store made {new} requests again: {}", last.unwrap_or_default());
            Driver { shared: Arc::clone(shared) }.say(|| LiveKind::Notice(text));
        }
    }
}

impl Shared {
    /// Notes that there is something in the inbox, and what it means for calls under way. Returns true if there
    /// is something new.
    async fn look_into_inbox(&self) -> bool {
        let Ok(info) = self.engine.journal().open(&self.lease.session).await else { return false };
        let Ok(inbox) = info.branch(&BranchId::inbox()) else { return false };
        let known = self.inbox_seen.load(Ordering::SeqCst);
        if inbox.head.seq.0 <= known {
            return false;
        }
        // If it cannot be read now, the next tick tries again.
        let Ok(entries) = super::inbox::read_behind(&self.engine, &self.lease.session, known, usize::MAX).await else {
            return true;
        };
        self.inbox_news.store(true, Ordering::SeqCst);
        // Unless the run itself has taken it over meanwhile, and reacted.
        if self.inbox_seen.fetch_max(inbox.head.seq.0, Ordering::SeqCst) == known {
            self.react(&entries.records, true);
        }
        self.news.notify_waiters();
        true
    }
}

/// Gives the lease back. If that fails it expires by itself.
pub(crate) async fn release(engine: &crate::Engine, lease: &Lease) {
    let _ = engine.journal().store().release(lease).await;
}
