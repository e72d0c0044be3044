//! Sessions and branches: creating, forking, removing, and what is protected.

use std::collections::BTreeMap;

use crate::codec::Frame;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Epoch, Hash, Head, Position, Seq};
use crate::session::{BranchInfo, SessionHeader, SessionInfo};
use crate::status::Status;
use crate::time::Timestamp;

/// The compacted past of a branch: the head it stands for and the frames that fold to the
/// state there.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The position it stands for.
    pub head: Head,
    /// The status there. It counts for a branch that begins with this base; one that gets it
    /// later has a status of its own.
    pub status: Status,
    /// Its parts, numbered from 1; at least one.
    pub frames: Vec<Frame>,
}

impl Base {
    fn check(&self) -> Result<()> {
        match self.frames.is_empty() {
            true => Err(Error::invalid("a base needs at least one part")),
            false => Ok(()),
        }
    }
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

    /// The session as it is once it was created at `now`: with `main` and `inbox`.
    pub fn session_info(&self, now: Timestamp) -> SessionInfo {
        let created_at = self.created_at.unwrap_or(now);
        let genesis = Head { seq: Seq::ZERO, hash: self.header.genesis };
        let base = self.base.as_ref().map(|base| base.head);
        let status = self.base.as_ref().map(|base| base.status).unwrap_or_default();
        let branch = |branch, head, base, status| BranchInfo {
            branch,
            parent: None,
            head,
            last_wait: Seq::ZERO,
            base,
            status,
            created_at,
            updated_at: created_at,
            epoch: first_epoch(now),
            lease: None,
        };
        SessionInfo {
            header: self.header.clone(),
            created_at,
            branches: vec![
                branch(BranchId::main(), base.unwrap_or(genesis), base, status),
                branch(BranchId::inbox(), genesis, None, Status::Idle),
            ],
            current: BranchId::main(),
            observed_at: now,
            damage: Vec::new(),
        }
    }
}

/// A branch to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The session.
    pub session: SessionKey,
    /// The hash its chain begins with, which tells it from another session of the same name: the hash the branch
    /// starts with was taken from that one.
    pub genesis: Hash,
    /// The new branch.
    pub branch: BranchId,
    /// Where it starts.
    pub from: Position,
    /// The chain hash it starts with.
    pub hash: Hash,
    /// Its own compacted past: for imports.
    pub base: Option<Base>,
}

impl Fork {
    /// Decides about this fork, given the session as it is: the branch to return if the fork
    /// was carried out before, nothing if it is to be carried out now.
    pub fn decide(&self, info: &SessionInfo) -> Result<Option<BranchInfo>> {
        let error = |error: Error| error.during("fork").on(&self.session).at(self.from.clone());
        if let Some(base) = &self.base {
            base.check().map_err(error)?;
        }
        if self.branch.is_inbox() || self.from.branch.is_inbox() {
            return Err(error(Error::invalid("the inbox is not a line of history")));
        }
        if self.genesis != info.header.genesis {
            let message = "the session was removed, and another one of that name is there now";
            return Err(error(
                Error::new(ErrorKind::Stale, message).hint("look at the session as it is, and fork that"),
            ));
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
            return Err(error(Error::not_found(format!(
                "branch `{}` ends at record {}",
                source.branch, source.head.seq
            ))));
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
            last_wait: Seq::ZERO,
            base: self.base.as_ref().map(|base| base.head),
            status: self.base.as_ref().map(|base| base.status).unwrap_or_default(),
            created_at: now,
            updated_at: now,
            epoch: first_epoch(now),
            lease: None,
        }
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
    /// The whole session, if its branches are these and end there; else it stays, and that is
    /// `Stale`. Removing what is not there succeeds.
    SessionAt {
        /// Which.
        session: SessionKey,
        /// Where each branch ends.
        heads: BTreeMap<BranchId, Head>,
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
            Self::Session { session }
            | Self::SessionAt { session, .. }
            | Self::Branch { session, .. }
            | Self::History { session, .. } => session,
        }
    }

    /// An error if what should go is protected, given the session as it is; whether there is
    /// anything to do otherwise.
    pub fn decide(&self, info: &SessionInfo, now: Timestamp) -> Result<bool> {
        let error = |error: Error| error.during("remove").on(self.session());
        let protected = |message: String| error(Error::new(ErrorKind::Protected, message));
        match self {
            Self::SessionAt { heads, .. } if *heads != info.heads() => {
                Err(error(Error::new(ErrorKind::Stale, "something has happened in the session since it was looked at")))
            }
            Self::Session { .. } | Self::SessionAt { .. } => {
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
                base.check().map_err(error)?;
                let found = info.branch(branch).map_err(error)?;
                if found.base.is_some_and(|existing| existing == base.head) {
                    return Ok(false);
                }
                let lowest = found.base.map_or(found.first_own(), |existing| existing.seq);
                if branch.is_inbox() || base.head.seq < lowest || base.head.seq > found.head.seq {
                    return Err(error(Error::invalid(format!(
                        "branch `{branch}` has no record {} to trim at",
                        base.head.seq
                    ))));
                }
                if let Some((fork, seq)) =
                    info.forks_of(branch).find(|(fork, seq)| *seq < base.head.seq && fork.base.is_none())
                {
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

/// Epochs begin with the time, so that an owner of something that was removed and made again
/// under the same name never holds the epoch of a later owner.
fn first_epoch(now: Timestamp) -> Epoch {
    Epoch(now.0)
}
