//! The statuses of branches by their records. A store's index has them too, to list by; what is deleted, archived or
//! answered must not go by it.

use super::{Entry, Journal};
use crate::codec::Place;
use crate::error::Result;
use crate::record::Marks;
use crate::session::{BranchInfo, SessionInfo};
use crate::status::Status;
use crate::store::{ReadFrames, Slot};

/// Number of frames about runs that are read at once. The last one mostly says the status.
const AT_ONCE: usize = 8;

impl Journal {
    /// Returns a session with the statuses that the records of its branches come to. A record that cannot be read is an
    /// error. The status of a branch whose run records were all pruned stays as the index says.
    pub async fn with_recorded_statuses(&self, mut info: SessionInfo) -> Result<SessionInfo> {
        for at in 0..info.branches.len() {
            let branch = &info.branches[at];
            if branch.branch.is_inbox() {
                continue;
            }
            if let Some(status) = self.recorded_status(&info, branch).await? {
                info.branches[at].status = status;
            }
        }
        Ok(info)
    }

    /// The status of a branch by its newest record about a run; nothing if it has none of its own.
    pub async fn recorded_status(&self, info: &SessionInfo, branch: &BranchInfo) -> Result<Option<Status>> {
        self.learn(&info.header).await?;
        let session = &info.header.key;
        let place = Place { session, branch: &branch.branch };
        let mut through = branch.head.seq;
        loop {
            let read = ReadFrames::all(session.clone(), branch.branch.clone())
                .with_range(branch.first_own(), through)
                .with_marks(Marks::RUN)
                .with_newest_first()
                .with_limit(AT_ONCE);
            let page = self.store().read(&read).await?;
            let Some((first, _)) = page.slots.last().map(Slot::span) else { return Ok(None) };
            for slot in page.slots {
                match self.entry(place, slot) {
                    Entry::Damaged(damage) => return Err(damage.to_error(session)),
                    Entry::Batch(batch) => {
                        if let Some(status) = Status::after(&batch.records) {
                            return Ok(Some(status));
                        }
                    }
                }
            }
            match first > branch.first_own() {
                true => through = first.previous(),
                false => return Ok(None),
            }
        }
    }
}
