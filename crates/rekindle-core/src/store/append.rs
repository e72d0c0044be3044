//! Appends: what is asked, and the rules of compare-and-append and fencing.

use std::time::Duration;

use super::lease::check_ttl;
use crate::codec::Frame;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Epoch, Hash, Head, Position, Seq};
use crate::record::{Marks, SessionDescribed};
use crate::session::{BranchInfo, LeaseInfo};
use crate::status::Status;
use crate::time::Timestamp;

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
    /// Condition on another branch of the session, judged at the same instant.
    pub condition: Option<Condition>,
}

/// A condition of an append on another branch of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The other branch.
    pub branch: BranchId,
    /// The demand on it.
    pub holds: Holds,
}

/// Demand of a [`Condition`] on its branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It ends exactly here.
    Head(Head),
    /// The last record of a frame of its own that is about a wait ([`BranchInfo::last_wait`]) is this one.
    LastWait(Seq),
}

impl Condition {
    /// The branch ends exactly at `head`.
    pub fn head(branch: BranchId, head: Head) -> Self {
        Self { branch, holds: Holds::Head(head) }
    }

    /// No wait was opened, decided or closed on the branch since `last_wait`.
    pub fn last_wait(branch: BranchId, last_wait: Seq) -> Self {
        Self { branch, holds: Holds::LastWait(last_wait) }
    }

    /// An error unless the condition holds of its branch as it is.
    fn check(&self, other: &BranchInfo) -> Result<()> {
        let (holds, now) = match self.holds {
            Holds::Head(head) => (other.head == head, other.head.seq),
            Holds::LastWait(seq) => (other.last_wait == seq, other.last_wait),
        };
        match holds {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Overtaken { branch: self.branch.clone() },
                format!("branch `{}` has moved to record {now} since it was looked at", self.branch),
            )),
        }
    }
}

impl Append {
    /// An append of `frames` behind `expected`, without lease or other changes.
    pub fn new(session: SessionKey, branch: BranchId, expected: Head, frames: Vec<Frame>) -> Self {
        Self {
            session,
            branch,
            expected,
            fence: None,
            renew: None,
            frames,
            status: None,
            describe: None,
            sealed: None,
            condition: None,
        }
    }

    /// The head after this append.
    pub fn head(&self) -> Head {
        self.frames.last().map_or(self.expected, |frame| Head { seq: frame.last, hash: frame.hash })
    }

    /// The last record of the last frame that is about a wait, if one is.
    pub fn last_wait(&self) -> Option<Seq> {
        self.frames.iter().rev().find(|frame| frame.marks.intersects(Marks::WAIT)).map(|frame| frame.last)
    }

    /// An error unless the frames continue each other from the expected head.
    pub fn check(&self) -> Result<()> {
        let mut head = self.expected;
        for frame in &self.frames {
            if frame.first != head.seq.next() || frame.last < frame.first || frame.prev != head.hash || frame.is_base()
            {
                return Err(
                    self.error(Error::invalid(format!("frame {} does not continue record {}", frame.first, head.seq)))
                );
            }
            head = Head { seq: frame.last, hash: frame.hash };
        }
        if self.frames.is_empty() {
            return Err(self.error(Error::invalid("an append needs at least one frame")));
        }
        if self.branch.is_inbox() && (self.fence.is_some() || self.status.is_some()) {
            return Err(self.error(Error::invalid("the inbox has neither lease nor status")));
        }
        if let Some(ttl) = self.renew {
            check_ttl(ttl).map_err(|error| self.error(error))?;
        }
        if self.condition.as_ref().is_some_and(|condition| condition.branch == self.branch) {
            return Err(self.error(Error::invalid("a condition is about another branch than the one appended to")));
        }
        Ok(())
    }

    /// The branch of its condition, among those of the session.
    pub fn other<'a>(&self, branches: &'a [BranchInfo]) -> Option<&'a BranchInfo> {
        let condition = self.condition.as_ref()?;
        branches.iter().find(|info| info.branch == condition.branch)
    }

    /// Adds what was being done and where to an error of this append.
    pub fn error(&self, error: Error) -> Error {
        error.during("append").on(&self.session).at(Position::new(self.branch.clone(), self.expected.seq))
    }

    /// Decides about this append, given its branch and the branch of its condition as they are.
    /// `stored` fetches the hash of the frame that ends at a record, if there is one.
    pub fn decide(
        &self,
        info: &BranchInfo,
        other: Option<&BranchInfo>,
        now: Timestamp,
        stored: impl FnOnce(Seq) -> Result<Option<Hash>>,
    ) -> Result<Decided> {
        let target = self.head();
        // A repeated append is recognised before the lease is looked at: it is durable, whoever
        // owns the branch by now, even if what it appended was compacted since.
        let moved = info.head != self.expected && info.head.seq >= target.seq;
        if moved && (info.base == Some(target) || stored(target.seq)? == Some(target.hash)) {
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
        if let Some(condition) = &self.condition {
            let Some(other) = other.filter(|other| other.branch == condition.branch) else {
                return Err(self.error(Error::not_found(format!("there is no branch `{}`", condition.branch))));
            };
            condition.check(other).map_err(|error| self.error(error))?;
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
        Some(lease) if lease.epoch > held => {
            format!("the lease was taken over by {} with epoch {}", lease.owner, lease.epoch)
        }
        _ => format!("the lease of epoch {held} is no longer held"),
    };
    Error::new(ErrorKind::Fenced { held, current: info.epoch }, message)
}

/// The error of a request for what another owner holds.
pub fn already_running(branch: &BranchId, lease: &LeaseInfo) -> Error {
    let kind = ErrorKind::AlreadyRunning {
        owner: lease.owner.clone(),
        branch: branch.clone(),
        epoch: lease.epoch,
        until: lease.expires_at,
    };
    Error::new(kind, format!("{} holds the lease of branch `{branch}` until {}", lease.owner, lease.expires_at))
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The end of what was appended.
    pub head: Head,
}
