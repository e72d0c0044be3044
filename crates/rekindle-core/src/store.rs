//! The contract between Rekindle and whatever keeps its journals.
//!
//! A backend implements [`Store`]: nine methods over opaque [`Frame`]s. It never looks into a
//! frame, so compression, encryption and record formats are none of its business. Callers use
//! [`StoreExt`] for what follows from the contract, and [`Journal`](crate::Journal) for typed
//! records.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::codec::Frame;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, OwnerId, SessionKey};
use crate::position::{Epoch, Head, Position, Seq};
use crate::record::{Marks, SessionDescribed};
use crate::session::{
    BranchInfo, Damage, LeaseInfo, SessionHeader, SessionInfo, SessionPage, SessionQuery,
};
use crate::status::Status;
use crate::time::Timestamp;

/// The most frames one page of [`Store::read`] may hold.
pub const MAX_FRAMES: usize = 1_000;

/// A page of frames ends once it holds this many bytes.
pub const PAGE_BYTES: usize = 4 << 20;

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
/// * **Fenced.** An append with a fence succeeds only while that epoch's lease is live by the
///   *store's* clock, else `Fenced`. An append without one is refused with `AlreadyRunning`
///   while somebody's lease is live. The inbox is never leased (`stale_owner_is_fenced`,
///   `expired_lease_is_taken_over`, `unleased_append_respects_a_lease`).
/// * **Safe to repeat.** Repeating an append whose frames already stand there succeeds and
///   changes nothing, even after the lease was lost: frames are compared by hash
///   (`repeated_append_is_not_duplicated`). The same holds for `fork`, `remove` and a release.
/// * **Ordered.** Frames are read in the order of their `seq`, without gaps (`order_is_kept`).
/// * **Isolated.** Namespaces, sessions and branches do not see each other
///   (`namespaces_and_sessions_are_isolated`).
/// * **Stable pages.** Pages of `list` follow creation order; concurrent writes neither repeat
///   nor skip a session that existed when paging began (`paging_is_stable_under_writes`).
/// * **Cancellation.** Dropping a future may or may not carry out the call, but never half of
///   it; repeating it is safe.
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
}

impl Capabilities {
    /// A store that can do nothing special.
    pub fn new(name: &'static str) -> Self {
        Self { name, durable: false, multi_process: false, frees_space: true, max_frame_bytes: 256 << 20 }
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

    /// Several processes may use it at once.
    #[must_use]
    pub fn with_multi_process(mut self) -> Self {
        self.multi_process = true;
        self
    }
}

/// The compacted past of a branch: the head it stands for and the frames that fold to the
/// state there.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The position it stands for.
    pub head: Head,
    /// Its parts, numbered from 1.
    pub frames: Vec<Frame>,
}

/// A session to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its description. The genesis is the hash both branches begin with.
    pub header: SessionHeader,
    /// When it was created, if not now: for imports.
    pub created_at: Option<Timestamp>,
    /// The compacted past of `main`: for imports.
    pub base: Option<Base>,
}

impl NewSession {
    /// A session described by `header`.
    pub fn new(header: SessionHeader) -> Self {
        Self { header, created_at: None, base: None }
    }
}

/// An append to a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// Where the branch must end now.
    pub expected: Head,
    /// The lease behind this write.
    pub fence: Option<Epoch>,
    /// Renews that lease by this long from now.
    pub renew: Option<Duration>,
    /// At least one frame; each continues the one before it.
    pub frames: Vec<Frame>,
    /// The branch's status from now on, if it changes.
    pub status: Option<Status>,
    /// A change of the header.
    pub describe: Option<SessionDescribed>,
    /// The sealed part of the header from now on, if it changes.
    pub sealed: Option<String>,
}

impl Append {
    /// An append of `frames` behind `expected`, without lease or other changes.
    pub fn new(session: SessionKey, branch: BranchId, expected: Head, frames: Vec<Frame>) -> Self {
        Self { session, branch, expected, fence: None, renew: None, frames, status: None, describe: None, sealed: None }
    }

    /// The head after this append.
    pub fn head(&self) -> Head {
        self.frames.last().map_or(self.expected, |frame| Head { seq: frame.last, hash: frame.hash })
    }

    /// An error unless the frames continue each other from the expected head.
    pub fn check(&self) -> Result<()> {
        let mut head = self.expected;
        for frame in &self.frames {
            if frame.first != head.seq.next() || frame.last < frame.first || frame.prev != head.hash || frame.is_base() {
                return Err(self.error(Error::invalid(format!("frame {} does not continue record {}", frame.first, head.seq))));
            }
            head = Head { seq: frame.last, hash: frame.hash };
        }
        if self.frames.is_empty() {
            return Err(self.error(Error::invalid("an append needs at least one frame")));
        }
        if self.branch.is_inbox() && (self.fence.is_some() || self.status.is_some()) {
            return Err(self.error(Error::invalid("the inbox has neither lease nor status")));
        }
        Ok(())
    }

    /// Adds what was being done and where to an error of this append.
    pub fn error(&self, error: Error) -> Error {
        error.during("append").on(&self.session).at(Position::new(self.branch.clone(), self.expected.seq))
    }

    /// Decides about this append, given the branch as it is. `stored` fetches the hash of the
    /// frame that ends at a record, if there is one.
    pub fn decide(
        &self,
        info: &BranchInfo,
        now: Timestamp,
        stored: impl FnOnce(Seq) -> Result<Option<crate::Hash>>,
    ) -> Result<Decided> {
        let target = self.head();
        // A repeated append is recognised before the lease is looked at: it is durable, whoever
        // owns the branch by now.
        if info.head != self.expected && info.head.seq >= target.seq && stored(target.seq)? == Some(target.hash) {
            return Ok(Decided::Repeated(Appended { head: target }));
        }
        let live = info.live_lease(now);
        if let Some(held) = self.fence {
            if live.is_none_or(|lease| lease.epoch != held) {
                return Err(self.error(fenced(held, info)));
            }
        } else if let Some(lease) = live {
            return Err(self.error(already_running(&info.branch, lease)));
        }
        if info.head != self.expected {
            return Err(self.error(conflict(self.expected, info.head)));
        }
        Ok(Decided::Fresh)
    }
}

/// Whether an append is new or the repetition of one that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It is to be carried out.
    Fresh,
    /// It was carried out before.
    Repeated(Appended),
}

fn conflict(expected: Head, actual: Head) -> Error {
    let message = if expected.seq == actual.seq {
        format!("record {} is not the one the caller knows", actual.seq)
    } else {
        format!("the branch ends at record {}, not {}", actual.seq, expected.seq)
    };
    Error::new(ErrorKind::Conflict { expected: expected.seq, actual: actual.seq }, message)
}

/// The error of a write or renewal under a lease that is not the live one.
pub fn fenced(held: Epoch, info: &BranchInfo) -> Error {
    let message = match &info.lease {
        Some(lease) if lease.epoch == held => format!("the lease of epoch {held} expired at {}", lease.expires_at),
        Some(lease) if lease.epoch > held => format!("the lease was taken over by {} with epoch {}", lease.owner, lease.epoch),
        _ => format!("the lease of epoch {held} is no longer held"),
    };
    Error::new(ErrorKind::Fenced { held, current: info.epoch }, message)
}

/// The error of a request for what another owner holds.
pub fn already_running(branch: &BranchId, lease: &LeaseInfo) -> Error {
    let kind = ErrorKind::AlreadyRunning { owner: lease.owner.clone(), branch: branch.clone(), until: lease.expires_at };
    Error::new(kind, format!("{} holds the lease of branch `{branch}` until {}", lease.owner, lease.expires_at))
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The end of what was appended.
    pub head: Head,
}

/// Which part of a branch to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Section {
    /// The frames themselves.
    #[default]
    History,
    /// The parts of its base, numbered from 1.
    Base,
}

/// A page of frames to read from one branch's own history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFrames {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// Which part.
    pub section: Section,
    /// Frames that end here or later.
    pub from: Seq,
    /// Frames that begin here or earlier.
    pub through: Seq,
    /// Only frames with one of these marks; none means all.
    pub marks: Marks,
    /// Newest first.
    pub newest_first: bool,
    /// How many at most, up to [`MAX_FRAMES`].
    pub limit: usize,
}

impl ReadFrames {
    /// All frames of `branch`, oldest first.
    pub fn all(session: SessionKey, branch: BranchId) -> Self {
        Self {
            session,
            branch,
            section: Section::History,
            from: Seq(1),
            through: Seq::MAX,
            marks: Marks::NONE,
            newest_first: false,
            limit: MAX_FRAMES,
        }
    }

    /// Only frames that touch the records `from` to `through`.
    #[must_use]
    pub fn with_range(mut self, from: Seq, through: Seq) -> Self {
        (self.from, self.through) = (from, through);
        self
    }

    /// The parts of the base instead.
    #[must_use]
    pub fn with_base(mut self) -> Self {
        self.section = Section::Base;
        self
    }

    /// Only frames with one of `marks`.
    #[must_use]
    pub fn with_marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    /// Newest first.
    #[must_use]
    pub fn with_newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// At most `limit` frames.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// An error if the page is larger than allowed.
    pub fn check(&self) -> Result<()> {
        if self.limit == 0 || self.limit > MAX_FRAMES {
            return Err(Error::limit("frames per page", self.limit as u64, MAX_FRAMES as u64).during("read").on(&self.session));
        }
        Ok(())
    }

    /// Whether a frame of records `first` to `last` with `marks` is asked for.
    pub fn wants(&self, first: Seq, last: Seq, marks: Marks) -> bool {
        last >= self.from && first <= self.through && (self.marks == Marks::NONE || self.marks.intersects(marks))
    }

    /// The request for the page after one that ended with a slot of records `first` to `last`.
    fn after(&self, first: Seq, last: Seq) -> Self {
        let mut next = self.clone();
        match self.newest_first {
            true => next.through = first.previous(),
            false => next.from = last.next(),
        }
        next
    }
}

/// One place of a branch: a frame, or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// A frame whose checksum is right.
    Whole(Frame),
    /// Bytes that are not a frame any more.
    Damaged(Damage),
}

impl Slot {
    /// The records it holds or held.
    pub fn span(&self) -> (Seq, Seq) {
        match self {
            Self::Whole(frame) => (frame.first, frame.last),
            Self::Damaged(damage) => (damage.first, damage.last),
        }
    }
}

/// A page of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct FramePage {
    /// The frames, in the order asked for.
    pub slots: Vec<Slot>,
    /// Whether there are more.
    pub more: bool,
}

/// A branch to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The session.
    pub session: SessionKey,
    /// The new branch.
    pub branch: BranchId,
    /// Where it starts.
    pub from: Position,
    /// The chain hash it starts with.
    pub hash: crate::Hash,
    /// Its own compacted past: for imports.
    pub base: Option<Base>,
}

impl Fork {
    /// Decides about this fork, given the session as it is: the branch to return if the fork
    /// was carried out before, nothing if it is to be carried out now.
    pub fn decide(&self, info: &SessionInfo) -> Result<Option<BranchInfo>> {
        let error = |error: Error| error.during("fork").on(&self.session).at(self.from.clone());
        if self.branch.is_inbox() || self.from.branch.is_inbox() {
            return Err(error(Error::invalid("the inbox is not a line of history")));
        }
        let source = info.branch(&self.from.branch).map_err(error)?;
        if let Some(existing) = info.branches.iter().find(|branch| branch.branch == self.branch) {
            return if existing.parent.as_ref() == Some(&self.from) {
                Ok(Some(existing.clone()))
            } else {
                let message = format!("branch `{}` exists already", self.branch);
                Err(error(Error::new(ErrorKind::AlreadyExists, message)))
            };
        }
        if self.from.seq > source.head.seq {
            return Err(error(Error::not_found(format!("branch `{}` ends at record {}", source.branch, source.head.seq))));
        }
        if let Some(base) = source.base
            && self.from.seq < base.seq
            && self.base.is_none()
        {
            let message = format!("records up to {} of branch `{}` were pruned", base.seq, source.branch);
            return Err(error(Error::not_found(message).hint(format!("fork at record {} or later", base.seq))));
        }
        if self.from.seq < source.first_own().previous() {
            let message = format!("record {} does not belong to branch `{}`", self.from.seq, source.branch);
            return Err(error(Error::invalid(message).hint("name the branch the record was written on")));
        }
        Ok(None)
    }

    /// The new branch.
    pub fn branch_info(&self, now: Timestamp) -> BranchInfo {
        BranchInfo {
            branch: self.branch.clone(),
            parent: Some(self.from.clone()),
            head: self.base.as_ref().map_or(Head { seq: self.from.seq, hash: self.hash }, |base| base.head),
            base: self.base.as_ref().map(|base| base.head),
            status: Status::Idle,
            created_at: now,
            updated_at: now,
            epoch: Epoch(0),
            lease: None,
        }
    }
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Become the owner.
    Acquire {
        /// Must be unique to the process: the same owner is let in again, with a new epoch.
        owner: OwnerId,
        /// For how long.
        ttl: Duration,
        /// Refuse while *any* branch of the session has a live lease, not only this one.
        whole_session: bool,
    },
    /// Stay the owner.
    Renew {
        /// The epoch held.
        epoch: Epoch,
        /// For how long from now.
        ttl: Duration,
    },
    /// Cease to be the owner. May be repeated.
    Release {
        /// Who held it.
        owner: OwnerId,
        /// The epoch held.
        epoch: Epoch,
    },
}

/// A request about the lease of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// What to do.
    pub action: LeaseAction,
}

/// A lease as it is after a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// The owner, the epoch and when it expires; a released lease has expired.
    pub info: LeaseInfo,
    /// The branch's head at that moment: nobody else can move it while the lease is live.
    pub head: Head,
}

impl LeaseRequest {
    /// Carries out the request on the session as it is at `now`: the lease to return, with the
    /// branch changed to match. The caller makes the change durable.
    pub fn decide(&self, info: &mut SessionInfo, now: Timestamp) -> Result<Lease> {
        let error = |error: Error| error.during("lease").on(&self.session);
        if self.branch.is_inbox() {
            return Err(error(Error::invalid("the inbox has no lease")));
        }
        if let LeaseAction::Acquire { owner, whole_session, .. } = &self.action {
            let holder = info.branches.iter().find_map(|branch| {
                let counts = *whole_session || branch.branch == self.branch;
                branch.live_lease(now).filter(|lease| counts && lease.owner != *owner).map(|lease| (branch, lease))
            });
            if let Some((branch, lease)) = holder {
                return Err(error(already_running(&branch.branch, lease)));
            }
        }
        let Some(branch) = info.branches.iter_mut().find(|branch| branch.branch == self.branch) else {
            return Err(error(Error::not_found(format!("there is no branch `{}`", self.branch))));
        };
        let lease = match &self.action {
            LeaseAction::Acquire { owner, ttl, .. } => {
                branch.epoch = Epoch(branch.epoch.0 + 1);
                LeaseInfo { owner: owner.clone(), epoch: branch.epoch, expires_at: now.plus(*ttl) }
            }
            LeaseAction::Renew { epoch, ttl } => match branch.live_lease(now).filter(|lease| lease.epoch == *epoch) {
                Some(lease) => LeaseInfo { expires_at: now.plus(*ttl), ..lease.clone() },
                None => return Err(error(fenced(*epoch, branch))),
            },
            LeaseAction::Release { owner, epoch } => match &branch.lease {
                Some(lease) if lease.epoch == *epoch => {
                    LeaseInfo { expires_at: now.min(lease.expires_at), ..lease.clone() }
                }
                // Released before, and nobody was owner since: the reply was lost.
                None if branch.epoch == *epoch => LeaseInfo { owner: owner.clone(), epoch: *epoch, expires_at: now },
                _ => return Err(error(fenced(*epoch, branch))),
            },
        };
        let released = matches!(self.action, LeaseAction::Release { .. });
        branch.lease = (!released).then(|| lease.clone());
        let head = branch.head;
        if matches!(self.action, LeaseAction::Acquire { .. }) {
            info.current = self.branch.clone();
        }
        Ok(Lease { session: self.session.clone(), branch: self.branch.clone(), info: lease, head })
    }
}

/// What to remove.
#[derive(Clone, Debug, PartialEq)]
pub enum Removal {
    /// The whole session. Removing what is not there succeeds.
    Session {
        /// Which.
        session: SessionKey,
    },
    /// A branch without forks. Removing what is not there succeeds.
    Branch {
        /// Of which session.
        session: SessionKey,
        /// Which.
        branch: BranchId,
    },
    /// The records of a branch up to and including `base.head`, replaced by `base`.
    History {
        /// Of which session.
        session: SessionKey,
        /// Which branch.
        branch: BranchId,
        /// What stands in their place.
        base: Base,
        /// The lease behind this write, if the caller holds it.
        fence: Option<Epoch>,
    },
}

impl Removal {
    /// The session it is about.
    pub fn session(&self) -> &SessionKey {
        match self {
            Self::Session { session } | Self::Branch { session, .. } | Self::History { session, .. } => session,
        }
    }

    /// An error if what should go is protected, given the session as it is; whether there is
    /// anything to do otherwise.
    pub fn decide(&self, info: &SessionInfo, now: Timestamp) -> Result<bool> {
        let error = |error: Error| error.during("remove").on(self.session());
        let protected = |message: String| error(Error::new(ErrorKind::Protected, message));
        match self {
            Self::Session { .. } => {
                let held = info.branches.iter().find_map(|branch| Some((branch, branch.live_lease(now)?)));
                match held {
                    Some((branch, lease)) => {
                        Err(protected(format!("{} runs it on branch `{}`", lease.owner, branch.branch)))
                    }
                    None => Ok(true),
                }
            }
            Self::Branch { branch, .. } => {
                let Some(found) = info.branches.iter().find(|info| info.branch == *branch) else { return Ok(false) };
                if found.parent.is_none() || info.current == *branch {
                    return Err(protected(format!("branch `{branch}` is the first, the current one or the inbox")));
                }
                if let Some((fork, seq)) = info.forks_of(branch).next() {
                    return Err(protected(format!("branch `{}` was forked from it at record {seq}", fork.branch)));
                }
                match found.live_lease(now) {
                    Some(lease) => Err(protected(format!("{} runs it", lease.owner))),
                    None => Ok(true),
                }
            }
            Self::History { branch, base, fence, .. } => {
                let found = info.branch(branch).map_err(error)?;
                if found.base.is_some_and(|existing| existing == base.head) {
                    return Ok(false);
                }
                let lowest = found.base.map_or(found.first_own(), |existing| existing.seq);
                if branch.is_inbox() || base.head.seq < lowest || base.head.seq > found.head.seq {
                    return Err(error(Error::invalid(format!("branch `{branch}` has no record {} to trim at", base.head.seq))));
                }
                if let Some((fork, seq)) = info.forks_of(branch).find(|(fork, seq)| *seq < base.head.seq && fork.base.is_none()) {
                    return Err(protected(format!("branch `{}` was forked from it at record {seq}", fork.branch)));
                }
                match found.live_lease(now).filter(|lease| Some(lease.epoch) != *fence) {
                    Some(lease) => Err(protected(format!("{} runs it", lease.owner))),
                    None => Ok(true),
                }
            }
        }
    }
}

/// What a removal freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Frames removed, less frames written in their place.
    pub frames: u64,
    /// Bytes of frames removed, less bytes written in their place.
    pub bytes: u64,
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
            request = request.after(first, last);
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
}
