//! Leases: one owner, fenced by epoch, judged by the store's clock.

use std::time::Duration;

use super::append::{already_running, fenced};
use crate::error::{Error, Result};
use crate::id::{BranchId, OwnerId, SessionKey};
use crate::position::{Epoch, Head};
use crate::session::{LeaseInfo, SessionInfo};
use crate::time::Timestamp;

/// The longest time of a lease. One that ends later than this from now was not given by these rules:
/// it counts as expired, so that an altered row cannot lock a session for ever.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// An error if a lease is asked for longer than [`MAX_LEASE`].
pub(super) fn check_ttl(ttl: Duration) -> Result<()> {
    match ttl > MAX_LEASE {
        true => Err(Error::limit("seconds of a lease", ttl.as_secs(), MAX_LEASE.as_secs())
            .hint("ask for a shorter lease and renew it while the work goes on")),
        false => Ok(()),
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
    /// End the lease of exactly this owner and epoch. May be repeated. An owner gives its own lease
    /// back so; a process that has seen an owner dead ends that owner's lease so before it acquires
    /// its own. A holder that came later is not affected: the request is `Fenced`.
    Release {
        /// The holder.
        owner: OwnerId,
        /// The epoch it holds.
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
    /// The store's time at that moment; never ahead of it, where the store knows it only more or less.
    pub observed_at: Timestamp,
}

impl LeaseRequest {
    /// An error if the request asks for a lease that is longer than allowed.
    pub fn check(&self) -> Result<()> {
        match &self.action {
            LeaseAction::Acquire { ttl, .. } | LeaseAction::Renew { ttl, .. } => {
                check_ttl(*ttl).map_err(|error| error.during("lease").on(&self.session))
            }
            LeaseAction::Release { .. } => Ok(()),
        }
    }

    /// Carries out the request on the session as it is at `now`: the lease to return, with the
    /// branch changed to match. The caller makes the change durable.
    pub fn decide(&self, info: &mut SessionInfo, now: Timestamp) -> Result<Lease> {
        let error = |error: Error| error.during("lease").on(&self.session);
        self.check()?;
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
        info.branch(&self.branch).map_err(error)?;
        let Some(branch) = info.branches.iter_mut().find(|branch| branch.branch == self.branch) else {
            return Err(error(Error::not_found(format!("there is no branch `{}`", self.branch))));
        };
        let lease = match &self.action {
            LeaseAction::Acquire { owner, ttl, .. } => {
                branch.epoch = Epoch(branch.epoch.0 + 1);
                LeaseInfo { owner: owner.clone(), epoch: branch.epoch, expires_at: now.plus(*ttl), boot: None }
            }
            LeaseAction::Renew { epoch, ttl } => match branch.live_lease(now).filter(|lease| lease.epoch == *epoch) {
                Some(lease) => LeaseInfo { expires_at: now.plus(*ttl), ..lease.clone() },
                None => return Err(error(fenced(*epoch, branch))),
            },
            LeaseAction::Release { owner, epoch } => match &branch.lease {
                Some(lease) if lease.epoch == *epoch && lease.owner == *owner => {
                    LeaseInfo { expires_at: now.min(lease.expires_at), ..lease.clone() }
                }
                // Released before, and nobody was owner since: the reply was lost.
                None if branch.epoch == *epoch => {
                    LeaseInfo { owner: owner.clone(), epoch: *epoch, expires_at: now, boot: None }
                }
                _ => return Err(error(fenced(*epoch, branch))),
            },
        };
        let released = matches!(self.action, LeaseAction::Release { .. });
        branch.lease = (!released).then(|| lease.clone());
        let head = branch.head;
        if matches!(self.action, LeaseAction::Acquire { .. }) {
            info.current = self.branch.clone();
        }
        Ok(Lease { session: self.session.clone(), branch: self.branch.clone(), info: lease, head, observed_at: now })
    }
}
