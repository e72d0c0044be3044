//! A copy under way: one branch after the other, frames collected to larger appends.

use std::time::Duration;

use super::check::{Arrived, Depth, check_base, check_link};
use super::{CopyProgress, CopyReport, Found, bound_to_its_name, damaged};
use crate::codec::{Frame, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, OwnerId, SessionKey};
use crate::journal::Journal;
use crate::journal::transfer::in_fork_order;
use crate::position::{Hash, Head, Position, Seq};
use crate::record::SessionDescribed;
use crate::session::{BranchInfo, SessionHeader, SessionInfo};
use crate::status::Status;
use crate::store::{Append, Base, Fork, NewSession, ReadFrames, Slot, StoreExt as _};

/// About this many bytes are appended at once.
const APPEND_BYTES: usize = 1 << 20;

/// And this many frames at most.
const APPEND_FRAMES: usize = 256;

/// A copy under way.
pub(super) struct Copying<'a> {
    from: &'a Journal,
    to: &'a Journal,
    source: &'a SessionInfo,
    target: Option<SessionInfo>,
    header: SessionHeader,
    progress: CopyProgress<'a>,
    pub report: CopyReport,
}

impl<'a> Copying<'a> {
    pub fn new(
        from: &'a Journal,
        to: &'a Journal,
        source: &'a SessionInfo,
        found: Found,
        progress: CopyProgress<'a>,
    ) -> Self {
        let Found { header, target, standing } = found;
        let report = CopyReport {
            session: source.header.key.clone(),
            renamed: (header.key != source.header.key).then(|| header.key.clone()),
            outcome: standing.outcome,
            records: standing.records,
            frames: 0,
            bytes: 0,
            unchecked: 0,
            running: source.live_lease().is_some(),
            verified: false,
        };
        Self { from, to, source, target, header, progress, report }
    }

    /// The name of the copy.
    pub fn key(&self) -> &SessionKey {
        &self.header.key
    }

    pub async fn run(&mut self) -> Result<()> {
        for branch in in_fork_order(self.source)? {
            let start = match self.head_there(&branch.branch) {
                Some(head) => head,
                None => self.begin(branch).await?,
            };
            self.frames(branch, start).await?;
        }
        self.restore_current().await?;
        self.compare().await
    }

    fn head_there(&self, branch: &BranchId) -> Option<Head> {
        self.target.as_ref()?.branch(branch).ok().map(|there| there.head)
    }

    /// Makes a branch at the target; where it ends.
    async fn begin(&mut self, branch: &BranchInfo) -> Result<Head> {
        let base = self.base(branch).await?;
        let base_head = base.as_ref().map(|base| base.head);
        let start = match &branch.parent {
            None if branch.branch.is_inbox() => Head { seq: Seq::ZERO, hash: self.header.genesis },
            None => {
                self.create(base).await?;
                Head { seq: Seq::ZERO, hash: self.header.genesis }
            }
            Some(from) => {
                let hash = self.start_hash(branch).await?;
                let (session, genesis) = (self.header.key.clone(), self.header.genesis);
                let fork = Fork { session, genesis, branch: branch.branch.clone(), from: from.clone(), hash, base };
                self.to.store().fork(&fork).await?;
                Head { seq: from.seq, hash }
            }
        };
        Ok(base_head.unwrap_or(start))
    }

    async fn create(&self, base: Option<Base>) -> Result<()> {
        let new = NewSession { header: self.header.clone(), created_at: Some(self.source.created_at), base };
        match self.to.store().create(&new).await {
            // Somebody else copies it too, or an earlier reply was lost.
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                let there = self.to.store().open(&self.header.key).await?;
                if there.header.genesis == self.header.genesis { Ok(()) } else { Err(error) }
            }
            other => other.map(drop),
        }
    }

    /// The hash a fork starts with. One with a base may have outlived the records it was forked from.
    async fn start_hash(&self, branch: &BranchInfo) -> Result<Hash> {
        if let Some(base) = branch.base {
            return Ok(base.hash);
        }
        let known = self.from.start_hash(self.source, branch).await?;
        match (self.from.stored_start(self.source, branch).await?, known) {
            (Some(stored), None) => Ok(stored),
            (Some(stored), Some(known)) if stored == known => Ok(stored),
            _ => Err(Error::corrupt(format!("branch `{}` does not begin where it was forked", branch.branch))),
        }
    }

    /// The base of a branch, whole and checked.
    async fn base(&mut self, branch: &BranchInfo) -> Result<Option<Base>> {
        let Some(head) = branch.base else { return Ok(None) };
        let session = &self.source.header.key;
        let read = ReadFrames::all(session.clone(), branch.branch.clone()).with_base();
        let mut frames = Vec::new();
        for slot in self.from.store().read_all(&read).await? {
            frames.push(self.whole(slot)?);
        }
        let place = Place { session, branch: &branch.branch };
        let depth = check_base(self.from.codec(), place, head, &frames).map_err(|damage| damaged(session, &damage))?;
        let bytes = frames.iter().map(|frame| frame.stored_len() as u64).sum::<u64>();
        self.count(frames.len() as u64, bytes);
        self.report.unchecked += if depth == Depth::Links { frames.len() as u64 } else { 0 };
        // The last frame brings the status, if there is any.
        let status = if branch.head == head { branch.status } else { Status::default() };
        Ok(Some(Base { head, status, frames }))
    }

    /// Appends the frames of a branch behind `start`.
    async fn frames(&mut self, branch: &BranchInfo, start: Head) -> Result<()> {
        let session = self.source.header.key.clone();
        let mut before = start;
        let (mut pending, mut bytes) = (Vec::new(), 0);
        while before.seq < branch.head.seq {
            let read = ReadFrames::all(session.clone(), branch.branch.clone())
                .with_range(before.seq.next(), branch.head.seq)
                .with_limit(APPEND_FRAMES);
            let page = self.from.store().read(&read).await?;
            if page.slots.is_empty() {
                return Err(self.pruned_or_gone(branch, before).await);
            }
            for slot in page.slots {
                let frame = self.whole(slot)?;
                if let Err(error) = self.check(&branch.branch, &frame, before) {
                    let gap = frame.first > before.seq.next();
                    return Err(if gap { self.pruned_or_gone(branch, before).await } else { error });
                }
                before = Head { seq: frame.last, hash: frame.hash };
                bytes += frame.stored_len();
                pending.push(frame);
                if bytes >= APPEND_BYTES || pending.len() >= APPEND_FRAMES {
                    self.append(branch, std::mem::take(&mut pending), std::mem::take(&mut bytes)).await?;
                }
            }
        }
        self.append(branch, pending, bytes).await
    }

    async fn append(&mut self, branch: &BranchInfo, frames: Vec<Frame>, bytes: usize) -> Result<()> {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return Ok(()) };
        let (expected, is_last) =
            (Head { seq: first.first.previous(), hash: first.prev }, last.last == branch.head.seq);
        let number = frames.len() as u64;
        let mut append = Append::new(self.header.key.clone(), branch.branch.clone(), expected, frames);
        if is_last && branch.branch.is_inbox() {
            // Changes of the header are on record in the inbox, so they come with it.
            (append.describe, append.sealed) = (self.described(), self.header.sealed.clone());
        } else if is_last {
            append.status = Some(branch.status);
        }
        self.to.store().append(&append).await.map_err(|error| match error.kind() {
            ErrorKind::Conflict { .. } => {
                error.hint("somebody else writes to the copy; repeat this when they are done")
            }
            _ => error,
        })?;
        self.count(number, bytes as u64);
        Ok(())
    }

    fn count(&mut self, frames: u64, bytes: u64) {
        self.report.frames += frames;
        self.report.bytes += bytes;
        (self.progress)(bytes);
    }

    /// What the header of the copy becomes, if it is another.
    fn described(&self) -> Option<SessionDescribed> {
        let (new, old) = (&self.header, &self.target.as_ref()?.header);
        let same = new.title == old.title
            && new.tags == old.tags
            && new.labels == old.labels
            && new.metadata == old.metadata
            && new.sealed == old.sealed;
        (!same).then(|| SessionDescribed {
            title: new.title.clone(),
            tags: Some(new.tags.clone()),
            labels: Some(new.labels.clone()),
            metadata: Some(new.metadata.clone()),
            ..SessionDescribed::default()
        })
    }

    fn whole(&self, slot: Slot) -> Result<Frame> {
        let session = &self.source.header.key;
        let frame = match slot {
            Slot::Whole(frame) => frame,
            Slot::Damaged(damage) => return Err(damaged(session, &damage)),
        };
        if self.report.renamed.is_some() && frame.is_sealed() {
            return Err(bound_to_its_name());
        }
        let (size, limit) = (frame.stored_len(), self.to.store().capabilities().max_frame_bytes);
        match size > limit {
            true => Err(Error::limit("bytes of a frame at the target", size as u64, limit as u64)),
            false => Ok(frame),
        }
    }

    /// Checks that a frame continues `before` and, as far as there are keys, is what its hash says.
    fn check(&mut self, branch: &BranchId, frame: &Frame, before: Head) -> Result<()> {
        let session = &self.source.header.key;
        let depth = check_link(self.from.codec(), Place { session, branch }, frame, before);
        let depth = depth.map_err(|damage| damaged(session, &damage))?;
        self.report.unchecked += u64::from(depth == Depth::Links);
        Ok(())
    }

    /// Why records are not there: pruned since the copy began, or lost.
    async fn pruned_or_gone(&self, branch: &BranchInfo, before: Head) -> Error {
        let now = self.from.store().open(&self.source.header.key).await;
        let base = now.ok().and_then(|info| info.branch(&branch.branch).ok().and_then(|branch| branch.base));
        let at = Position::new(branch.branch.clone(), before.seq.next());
        if base != branch.base {
            let message = format!("branch `{}` was pruned while it was copied", branch.branch);
            return Error::new(ErrorKind::Stale, message).at(at).hint("repeat the copy");
        }
        let message = format!("record {} of branch `{}` is gone", at.seq, branch.branch);
        Error::corrupt(message)
            .at(at)
            .hint("`rekindle verify SESSION` lists all damage; nothing that is damaged is copied")
    }

    /// The current branch is the one leased last, so it is leased for a moment.
    async fn restore_current(&self) -> Result<()> {
        let current = &self.source.current;
        if current.is_inbox() || self.to.store().open(&self.header.key).await?.current == *current {
            return Ok(());
        }
        let owner = OwnerId::generate(self.to.ids(), self.to.clock().now());
        let acquired = self.to.store().acquire(&self.header.key, current, &owner, Duration::from_millis(1)).await;
        match acquired {
            Ok(lease) => self.to.store().release(&lease).await.map(drop),
            // It is the index of the store that would say so; the seal of the header does already.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyRunning { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Compares what has arrived with what was to be copied.
    async fn compare(&self) -> Result<()> {
        let there = self.to.store().open(&self.header.key).await?;
        for branch in &self.source.branches {
            let arrived = there.branch(&branch.branch)?;
            if arrived.head.seq > branch.head.seq {
                let message = format!("somebody else already writes to branch `{}` of the copy", branch.branch);
                return Err(Error::new(ErrorKind::Stale, message)
                    .hint("nothing was removed; what they wrote is not part of the session that was copied"));
            }
            if arrived.head != branch.head
                || arrived.parent != branch.parent
                || there.header.genesis != self.header.genesis
            {
                let message = format!(
                    "branch `{}` did not arrive as it was: it ends at record {}, not at {}",
                    branch.branch, arrived.head.seq, branch.head.seq
                );
                return Err(
                    Error::corrupt(message).hint("repeat the copy; if that does not help, remove what is there")
                );
            }
        }
        Ok(())
    }

    /// Reads everything at the target and checks that it leads to the same heads.
    pub async fn read_back(&mut self) -> Result<()> {
        let info = self.to.store().open(&self.header.key).await?;
        let arrived = Arrived { codec: self.from.codec(), to: self.to, info: &info };
        for branch in &self.source.branches {
            arrived.check_branch(info.branch(&branch.branch)?, branch.head).await?;
        }
        self.report.verified = true;
        Ok(())
    }
}
