//! What was read and checked once need not be read again: the hash a branch ends with says everything that
//! stands on it. For looking at sessions, again and again; whoever runs one reads it all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Journal;
use super::load::{Folded, Restored, Stretch, position_or_end};
use crate::error::Result;
use crate::id::{BranchId, SessionKey};
use crate::position::{Head, Position};
use crate::session::{BranchInfo, SessionInfo};

/// How many branches are kept in mind, and how much may stand on all of them together.
const BRANCHES: usize = 64;
const BYTES: usize = 8 << 20;

impl Journal {
    /// The same as [`Journal::load_opened`], for somebody who looks at a session again and again: what this
    /// journal has read and checked before is read again only if something else stands there now. What was
    /// damaged since may go unnoticed; [`Journal::verify`] and every load notice it.
    pub async fn recall(&self, mut info: SessionInfo, at: Option<&Position>) -> Result<Restored> {
        let position = position_or_end(&info, at)?;
        let branch = info.branch(&position.branch)?;
        if position.seq != branch.head.seq {
            return Box::pin(self.load_opened(info, Some(&position))).await;
        }
        let recalled = match self.memory.take(&info.header.key, branch) {
            Some(known) if known.head == branch.head => Some(known),
            Some(known) => Box::pin(self.fold_on(&info, &position, known)).await,
            None => None,
        };
        let folded = match recalled {
            Some(folded) => folded,
            None => {
                let folded;
                (info, folded) = Box::pin(self.fold_opened(info, &position)).await?;
                folded
            }
        };
        self.memory.keep(&info.header.key, &position.branch, &folded);
        Ok(folded.restored(position, info))
    }

    /// What comes behind what is known; nothing if it does not continue that.
    async fn fold_on(&self, info: &SessionInfo, position: &Position, known: Folded) -> Option<Folded> {
        let (from, through) = (known.head.seq.next(), position.seq);
        let behind = Stretch { branch: position.branch.clone(), base: None, from, through };
        self.fold(info, position, known, &[behind]).await.ok()
    }
}

/// What a journal has in mind: what was looked at last is last.
#[derive(Default)]
pub(super) struct Memory(Mutex<VecDeque<Known>>);

struct Known {
    session: SessionKey,
    branch: BranchId,
    folded: Folded,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("branches", &self.lock().len()).finish()
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a branch, if its end can be reached from there.
    fn take(&self, session: &SessionKey, branch: &BranchInfo) -> Option<Folded> {
        let mut known = self.lock();
        let at = known.iter().position(|known| known.branch == branch.branch && known.session == *session)?;
        let found = known.remove(at)?.folded;
        let is_there = |head: Head| head.seq < branch.head.seq && branch.base.is_none_or(|base| base.seq <= head.seq);
        Some(found).filter(|found| found.head == branch.head || is_there(found.head))
    }

    /// Keeps in mind where a branch ends, and forgets what was not looked at for long.
    fn keep(&self, session: &SessionKey, branch: &BranchId, folded: &Folded) {
        if folded.bytes > BYTES / 2 {
            return;
        }
        let mut known = self.lock();
        known.retain(|known| known.branch != *branch || known.session != *session);
        known.push_back(Known { session: session.clone(), branch: branch.clone(), folded: folded.clone() });
        let mut bytes: usize = known.iter().map(|known| known.folded.bytes).sum();
        while known.len() > BRANCHES || bytes > BYTES {
            let Some(forgotten) = known.pop_front() else { return };
            bytes -= forgotten.folded.bytes;
        }
    }
}
