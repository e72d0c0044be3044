//! The contract between Rekindle and whatever keeps its journals.
//!
//! A backend implements [`Store`]: nine methods over opaque [`Frame`](crate::codec::Frame)s. It never looks into a
//! frame, so compression, encryption and record formats are none of its business. Callers use
//! [`StoreExt`] for what follows from the contract, and [`Journal`](crate::Journal) for typed
//! records.

mod append;
mod branches;
mod check;
mod lease;
mod read;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use append::{Append, Appended, Condition, Decided, Holds, already_running, fenced};
pub use branches::{Base, Fork, NewSession, Removal, Removed};
pub use check::Defect;
pub use lease::{Lease, LeaseAction, LeaseRequest, MAX_LEASE};
pub use read::{FramePage, Indexed, MAX_FRAMES, PAGE_BYTES, ReadFrames, Section, Slot};

use crate::codec::DEFAULT_COMPRESSION_THRESHOLD;
use crate::error::Result;
use crate::high_water::HighWater;
use crate::id::{BranchId, Namespace, OwnerId, SessionKey};
use crate::orphans::Orphans;
use crate::position::Seq;
use crate::queue::Queue;
use crate::session::{BranchInfo, SessionInfo, SessionPage, SessionQuery};
use crate::values::Values;

/// A backend that keeps journals.
///
/// # Contract
///
/// Each clause names the conformance test of `rekindle-testkit` that checks it.
///
/// * **Durable when it returns.** What `create`, `append`, `fork`, `lease` and `remove`
///   acknowledge survives the death of the process, and of the machine if
///   [`Capabilities::durable`] says so (`acknowledged_survives_reopening`).
/// * **Atomic.** An append happens whole or not at all, with its status and its change of the
///   header (`append_is_atomic`). An error leaves no trace unless the reply was lost.
/// * **Compare-and-append.** An append succeeds only if the branch's head is exactly the
///   expected one, else `Conflict` (`two_writers_one_winner`).
/// * **Conditional.** An append with a condition succeeds only if that holds of the other branch at
///   the same instant, else `Overtaken`; of two appends that exclude each other one succeeds
///   (`a_condition_on_another_branch_is_atomic`).
/// * **Fenced.** An append with a fence succeeds only while that epoch's lease is live by the
///   *store's* clock, else `Fenced`. An append without one is refused with `AlreadyRunning`
///   while somebody's lease is live. The inbox is never leased (`stale_owner_is_fenced`,
///   `expired_lease_is_taken_over`, `unleased_append_respects_a_lease`). A lease lasts [`MAX_LEASE`] at
///   most; one that ends later counts as expired (`a_lease_has_a_longest_time`).
/// * **Safe to repeat.** Repeating an append whose frames already stand there succeeds and
///   changes nothing, even after the lease was lost: frames are compared by hash
///   (`repeated_append_is_not_duplicated`). The same holds for `fork`, `remove` and a release.
/// * **One at a time.** Each change is decided on the session as it is, with nobody changing any
///   branch of it in between: a lease may exclude the whole session.
/// * **Of the session that was seen.** A fork is made only in the session whose genesis it names, else `Stale`
///   (`a_fork_is_of_the_session_that_was_seen`).
/// * **Nothing goes unseen.** A session that is removed as it was seen ([`Removal::SessionAt`]) takes
///   nothing along that was appended since (`a_session_goes_only_as_it_was_seen`).
/// * **Ordered.** Frames are read in the order of their `seq`, without gaps (`order_is_kept`).
/// * **Isolated.** Namespaces, sessions and branches do not see each other
///   (`namespaces_and_sessions_are_isolated`).
/// * **Stable pages.** Pages of `list` follow creation order; concurrent writes neither repeat
///   nor skip a session that existed when paging began (`paging_is_stable_under_writes`).
/// * **Cancellation.** Dropping a future at any of its awaits may or may not carry out the call, but never half of
///   it; repeating it is safe, and other calls are answered as before (`a_dropped_append_can_be_repeated` and the
///   other tests of dropped calls, `readers_that_give_up_stop_nobody`).
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What this store can and cannot do.
    fn capabilities(&self) -> Capabilities;

    /// Creates a session with its branches `main` and `inbox`; `AlreadyExists` if it is there.
    async fn create(&self, new: &NewSession) -> Result<SessionInfo>;

    /// Everything known of a session but its frames; `NotFound` if there is none.
    async fn open(&self, session: &SessionKey) -> Result<SessionInfo>;

    /// Appends frames to a branch.
    async fn append(&self, append: &Append) -> Result<Appended>;

    /// Reads a page of frames.
    async fn read(&self, read: &ReadFrames) -> Result<FramePage>;

    /// Lists sessions.
    async fn list(&self, query: &SessionQuery) -> Result<SessionPage>;

    /// Starts a branch at a position of another one. Copies nothing.
    async fn fork(&self, fork: &Fork) -> Result<BranchInfo>;

    /// Acquires, renews or releases a lease.
    async fn lease(&self, request: &LeaseRequest) -> Result<Lease>;

    /// Removes a session, a branch, or the older part of a branch, and frees the space.
    async fn remove(&self, removal: &Removal) -> Result<Removed>;

    /// Checks what surrounds the frames, e.g. the indexes they are found by, and returns what is wrong, up to
    /// a bounded number of defects. May read everything. A store that has nothing of that kind finds nothing.
    async fn check(&self) -> Result<Vec<Defect>> {
        Ok(Vec::new())
    }

    /// Returns the sessions of a namespace whose records are there and that [`Store::list`] leaves out, because what lists
    /// go by is damaged, up to a bounded number of them. A session made or removed meanwhile is none. Costs no more than
    /// listing all sessions.
    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        let _ = namespace;
        Ok(Vec::new())
    }

    /// The requests it made again since it was opened, because the service behind it did not answer.
    fn retries(&self) -> Retries {
        Retries::default()
    }

    /// The queue of jobs it keeps for workers, if it keeps one.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// The small values it keeps beside its sessions, if it keeps any.
    fn values(&self) -> Option<&dyn Values> {
        None
    }

    /// The marks of the highest heads it keeps apart from its data, if it keeps any.
    fn high_water(&self) -> Option<&dyn HighWater> {
        None
    }

    /// The means to find and clear what dead processes left over, if anything can be.
    fn orphans(&self) -> Option<&dyn Orphans> {
        None
    }
}

/// Requests of a store that were made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// The number of requests that were repetitions.
    pub requests: u64,
    /// The cause of the last one, for people.
    pub last: Option<String>,
}

impl Retries {
    /// These and those of another store together; the other's cause wins.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, last: other.last.or(self.last) }
    }
}

/// What a store can do. Declared, never discovered by failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The technology, e.g. `sqlite`.
    pub name: &'static str,
    /// Whether what is acknowledged survives the machine.
    pub durable: bool,
    /// Whether several processes may use it at once.
    pub multi_process: bool,
    /// Whether removed bytes go back to the system.
    pub frees_space: bool,
    /// The largest frame it takes, in bytes.
    pub max_frame_bytes: usize,
    /// From how many bytes on it pays to compress a frame: early where rows share pages, late where
    /// people read the frames.
    pub compress_from: usize,
    /// How seldom a session that is idle should be looked at, where each look is a request that costs time
    /// and money. Nothing if looks are cheap.
    pub idle_poll: Option<Duration>,
}

impl Capabilities {
    /// A store that can do nothing special.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            durable: false,
            multi_process: false,
            frees_space: true,
            max_frame_bytes: 256 << 20,
            compress_from: DEFAULT_COMPRESSION_THRESHOLD,
            idle_poll: None,
        }
    }

    /// What is acknowledged survives the machine.
    #[must_use]
    pub fn with_durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The largest frame it takes, in bytes.
    #[must_use]
    pub fn with_max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }

    /// From how many bytes on it pays to compress a frame.
    #[must_use]
    pub fn with_compress_from(mut self, bytes: usize) -> Self {
        self.compress_from = bytes;
        self
    }

    /// How seldom a session that is idle should be looked at.
    #[must_use]
    pub fn with_idle_poll(mut self, interval: Duration) -> Self {
        self.idle_poll = Some(interval);
        self
    }

    /// Several processes may use it at once.
    #[must_use]
    pub fn with_multi_process(mut self) -> Self {
        self.multi_process = true;
        self
    }
}

/// What follows from the contract, for callers.
#[async_trait]
pub trait StoreExt: Store {
    /// Acquires the lease of a branch for `owner`; refused while any branch of the session runs.
    async fn acquire(&self, session: &SessionKey, branch: &BranchId, owner: &OwnerId, ttl: Duration) -> Result<Lease> {
        let action = LeaseAction::Acquire { owner: owner.clone(), ttl, whole_session: true };
        self.lease(&LeaseRequest { session: session.clone(), branch: branch.clone(), action }).await
    }

    /// Renews a lease.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease> {
        let action = LeaseAction::Renew { epoch: lease.info.epoch, ttl };
        self.lease(&LeaseRequest { session: lease.session.clone(), branch: lease.branch.clone(), action }).await
    }

    /// Releases a lease.
    async fn release(&self, lease: &Lease) -> Result<Lease> {
        let action = LeaseAction::Release { owner: lease.info.owner.clone(), epoch: lease.info.epoch };
        self.lease(&LeaseRequest { session: lease.session.clone(), branch: lease.branch.clone(), action }).await
    }

    /// Reads every page of `read` and gives each to `visit`, until it says to stop.
    async fn read_pages(
        &self,
        read: &ReadFrames,
        visit: &mut (dyn FnMut(Vec<Slot>) -> Result<std::ops::ControlFlow<()>> + Send),
    ) -> Result<()> {
        let mut request = read.clone();
        loop {
            let page = self.read(&request).await?;
            let Some((first, last)) = page.slots.last().map(Slot::span) else { return Ok(()) };
            let more = page.more;
            if visit(page.slots)?.is_break() || !more || (read.newest_first && first <= Seq(1)) {
                return Ok(());
            }
            let next = request.after(first, last);
            // Whatever a store answers, every page leads further.
            if next.from <= request.from && next.through >= request.through {
                return Ok(());
            }
            request = next;
        }
    }

    /// Everything `read` asks for.
    async fn read_all(&self, read: &ReadFrames) -> Result<Vec<Slot>> {
        let mut all = Vec::new();
        self.read_pages(read, &mut |slots| {
            all.extend(slots);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .await?;
        Ok(all)
    }

    /// Every session `query` asks for, page by page.
    async fn list_all(&self, query: &SessionQuery) -> Result<Vec<SessionInfo>> {
        let mut query = query.clone();
        let mut all = Vec::new();
        loop {
            let page = self.list(&query).await?;
            all.extend(page.sessions);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(all),
            }
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        (**self).create(new).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        (**self).open(session).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        (**self).append(append).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        (**self).read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        (**self).list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        (**self).fork(fork).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        (**self).lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        (**self).remove(removal).await
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        (**self).check().await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        (**self).unlisted(namespace).await
    }

    fn retries(&self) -> Retries {
        (**self).retries()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        (**self).queue()
    }

    fn values(&self) -> Option<&dyn Values> {
        (**self).values()
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        (**self).high_water()
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        (**self).orphans()
    }
}
