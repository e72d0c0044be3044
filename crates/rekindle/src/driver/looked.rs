//! What somebody who decided that a session is to be run has read of it: the run need not read it
//! again, if the branch still ends there once the lease is held.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join;
use rekindle_core::{BranchId, Lease, Restored, Result, Seq, SessionInfo, SessionKey};

use super::inbox::{Unread, read_behind};
use crate::engine::Engine;

/// How many of the newest records of an inbox are read while nobody knows yet which were taken over.
const NEWEST: u64 = 64;

/// The state at the end of a session's current branch, and what its run has not taken over.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    pub(crate) restored: Restored,
    pub(crate) unread: Unread,
}

impl Looked {
    /// Reads a session that was just opened, and its inbox.
    pub(crate) async fn at(engine: &Engine, info: SessionInfo) -> Result<Self> {
        let key = info.header.key.clone();
        let head = info.branch(&BranchId::inbox())?.head.seq;
        let guessed = head.0.saturating_sub(NEWEST);
        let newest = async {
            if head == Seq::ZERO { Ok(Unread::default()) } else { read_behind(engine, &key, guessed, usize::MAX).await }
        };
        let (restored, newest) = try_join(engine.journal().load_opened(info, None), newest).await?;
        let taken = restored.state.inbox_taken();
        let unread = match taken.0 >= guessed {
            true => newest.behind(taken),
            false => read_behind(engine, &key, taken.0, usize::MAX).await?,
        };
        let unread = unread.up_to(taken, &restored.info)?;
        Ok(Self { restored, unread })
    }

    /// Whether the branch of a lease ends where this was read.
    pub(crate) fn is_current(&self, lease: &Lease) -> bool {
        self.restored.position.branch == lease.branch && self.restored.head == lease.head
    }
}

/// Hands it to the run; the first to ask gets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handover(Arc<Mutex<Option<Looked>>>);

impl Handover {
    pub(crate) fn of(looked: Option<Looked>) -> Self {
        Self(Arc::new(Mutex::new(looked)))
    }

    /// What was read of `session`.
    pub(crate) fn take(&self, session: &SessionKey) -> Option<Looked> {
        let looked = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        looked.filter(|looked| looked.restored.info.header.key == *session)
    }
}
