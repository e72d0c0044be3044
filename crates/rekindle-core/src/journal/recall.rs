//! What was read and checked once need not be read again: the hash a branch ends with says everything that
//! stands on it. For looking at sessions, again and again; whoever runs one reads it all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Journal;
use super::load::{Folded, Restored, Stretch, lineage, position_or_end};
use crate::error::{ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Head, Position};
use crate::session::SessionInfo;

/// How many branches are kept in mind, and how much may stand on all of them together.
const BRANCHES: usize = 64;
const BYTES: usize = 32 << 20;
/// What is larger is not kept: it would drive out everything else.
const LARGEST: usize = BYTES / 2;

impl Journal {
    /// The same as [`Journal::load_opened`], for somebody who looks at the end of a branch again and again: what
    /// this journal has read and checked before is read again only if something else stands there now. What was
    /// damaged since may go unnoticed; [`Journal::verify`] and every load notice it.
    pub async fn recall(&self, info: SessionInfo, at: Option<&Position>) -> Result<Restored> {
        let position = position_or_end(&info, at)?;
        let head = info.branch(&position.branch)?.head;
        if position.seq != head.seq {
            return Box::pin(self.load_opened(info, at)).await;
        }
        let known = self.memory.find(&info.header.key, &position.branch, &roots(&info, &position)?);
        let recalled = match known {
            Some(known) if known.head == head => return Ok(Folded::clone(&known).restored(position, info)),
            Some(known) if known.head.seq < head.seq => Box::pin(self.fold_on(&info, &position, &known)).await?,
            _ => None,
        };
        let (info, position, folded) = match recalled {
            Some(folded) => (info, position, folded),
            None => Box::pin(self.fold_opened(info, at)).await?,
        };
        if folded.bytes <= LARGEST {
            self.memory.keep(Known {
                session: info.header.key.clone(),
                branch: position.branch.clone(),
                roots: roots(&info, &position)?,
                folded: Arc::new(folded.clone()),
            });
        }
        Ok(folded.restored(position, info))
    }

    /// What comes behind what is known; nothing if it does not continue that.
    async fn fold_on(&self, info: &SessionInfo, position: &Position, known: &Folded) -> Result<Option<Folded>> {
        let (from, through) = (known.head.seq.next(), position.seq);
        let behind = Stretch { branch: position.branch.clone(), base: None, from, through, enters: false };
        match self.fold(info, position, known.clone(), &[behind]).await {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => Ok(None),
            folded => folded.map(Some),
        }
    }
}

/// The branches that lead to a position and where each was compacted: that changes no hash, but which
/// checkpoints there are.
type Roots = Vec<(BranchId, Option<Head>)>;

fn roots(info: &SessionInfo, position: &Position) -> Result<Roots> {
    let line = lineage(info, position).map_err(|error| error.during("load"))?;
    Ok(line.into_iter().map(|stretch| (stretch.branch, stretch.base)).collect())
}

/// What a journal has in mind: what was looked at last is last.
#[derive(Default)]
pub(super) struct Memory(Mutex<VecDeque<Known>>);

struct Known {
    session: SessionKey,
    branch: BranchId,
    roots: Roots,
    folded: Arc<Folded>,
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

    fn find(&self, session: &SessionKey, branch: &BranchId, roots: &Roots) -> Option<Arc<Folded>> {
        let mut all = self.lock();
        let is_it = |known: &Known| known.branch == *branch && known.session == *session && known.roots == *roots;
        let found = all.iter().position(is_it).and_then(|at| all.remove(at))?;
        let folded = Arc::clone(&found.folded);
        all.push_back(found);
        Some(folded)
    }

    /// Keeps it in mind, and forgets what was not looked at for long.
    fn keep(&self, new: Known) {
        let mut all = self.lock();
        all.retain(|known| known.branch != new.branch || known.session != new.session);
        all.push_back(new);
        let mut bytes: usize = all.iter().map(|known| known.folded.bytes).sum();
        while all.len() > BRANCHES || bytes > BYTES {
            let Some(forgotten) = all.pop_front() else { return };
            bytes -= forgotten.folded.bytes;
        }
    }
}
