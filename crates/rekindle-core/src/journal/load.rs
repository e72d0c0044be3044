//! Reading: batches of a branch, and the state at a position.

use std::ops::ControlFlow;

use serde::Serialize;

use super::Journal;
use super::checkpoints::{OnDamage, is_inexact};
use crate::codec::{Batch, Codec, Frame, Place, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Checkpoint, Record};
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo};
use crate::state::State;
use crate::store::{ReadFrames, Slot, StoreExt as _};
use crate::time::Timestamp;

/// One place of a branch: a batch, or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A batch that was read and checked.
    Batch(Batch),
    /// Bytes that cannot be read.
    Damaged(Damage),
}

/// A session's state at a position.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The state.
    pub state: State,
    /// The position it belongs to.
    pub position: Position,
    /// The chain hash there; together with the position it says what was seen.
    pub head: Head,
    /// The last checkpoint at or before it.
    pub checkpoint: Option<CheckpointInfo>,
    /// The session as it was when loading began.
    pub info: SessionInfo,
}

/// A checkpoint with where and when it was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// What it says.
    #[serde(flatten)]
    pub checkpoint: Checkpoint,
    /// Where it is.
    pub position: Position,
    /// When it was made, by the writer's clock.
    pub created_at: Timestamp,
}

/// The position; the end of the current branch if there is none.
pub(super) fn position_or_end(info: &SessionInfo, at: Option<&Position>) -> Result<Position> {
    match at {
        Some(position) => Ok(position.clone()),
        None => Ok(Position::new(info.current.clone(), info.current_branch()?.head.seq)),
    }
}

/// A part of a line of history that stands on one branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) branch: BranchId,
    /// Starts from the branch's base, which stands for everything up to here.
    pub(super) base: Option<Head>,
    pub(super) from: Seq,
    pub(super) through: Seq,
    /// Begins where the branch was forked.
    pub(super) enters: bool,
}

/// The stretches that lead to a position, oldest first.
pub(super) fn lineage(info: &SessionInfo, position: &Position) -> Result<Vec<Stretch>> {
    let error = |error: Error| error.on(&info.header.key).at(position.clone());
    let leaf = info.branch(&position.branch)?;
    if position.seq > leaf.head.seq {
        return Err(error(Error::not_found(format!("branch `{}` ends at record {}", leaf.branch, leaf.head.seq))));
    }
    let (mut branch, mut through) = (leaf, position.seq);
    let mut stretches = Vec::new();
    // Every step leads to another branch, so more steps than branches mean a circle.
    for _ in 0..=info.branches.len() {
        match branch.base {
            Some(base) if base.seq <= through => {
                let from = base.seq.next();
                stretches.push(Stretch {
                    branch: branch.branch.clone(),
                    base: Some(base),
                    from,
                    through,
                    enters: false,
                });
                stretches.reverse();
                return Ok(stretches);
            }
            // Below the base nothing of this branch is left, but a fork point may still be.
            Some(base) if through >= branch.first_own() => {
                let message = format!("records before {} of branch `{}` were pruned", base.seq, branch.branch);
                return Err(error(Error::not_found(message).hint(format!("go to record {} or later", base.seq))));
            }
            _ => {}
        }
        let from = branch.first_own();
        if through >= from {
            let enters = branch.parent.is_some();
            stretches.push(Stretch { branch: branch.branch.clone(), base: None, from, through, enters });
        }
        let Some(parent) = &branch.parent else {
            stretches.reverse();
            return Ok(stretches);
        };
        through = through.min(parent.seq);
        branch = info.branch(&parent.branch)?;
    }
    Err(error(Error::corrupt("the branches are forked from each other in a circle")))
}

/// The position as a position of the branch that owns the record.
pub(super) fn owner_of(info: &SessionInfo, position: &Position) -> Result<Position> {
    let mut branch = info.branch(&position.branch)?;
    for _ in 0..=info.branches.len() {
        match &branch.parent {
            Some(parent) if position.seq < branch.first_own() && position.seq < parent.seq => {
                branch = info.branch(&parent.branch)?;
            }
            Some(parent) if position.seq < branch.first_own() => return Ok(parent.clone()),
            _ => return Ok(Position::new(branch.branch.clone(), position.seq)),
        }
    }
    Err(Error::corrupt("the branches are forked from each other in a circle").on(&info.header.key))
}

/// What frames came to.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    state: State,
    pub(super) head: Head,
    checkpoint: Option<CheckpointInfo>,
    keyed: bool,
    /// How large all of them were, as JSON.
    pub(super) bytes: usize,
}

impl Folded {
    fn nothing(genesis: Hash) -> Self {
        let head = Head { seq: Seq::ZERO, hash: genesis };
        Self { state: State::default(), head, checkpoint: None, keyed: false, bytes: 0 }
    }

    pub(super) fn restored(self, position: Position, info: SessionInfo) -> Restored {
        let Self { state, head, checkpoint, .. } = self;
        Restored { state, position, head, checkpoint, info }
    }
}

/// Folds frames to a state, checking that each continues the one before.
struct Folding<'a> {
    journal: &'a Journal,
    session: &'a SessionKey,
    folded: Folded,
    /// The next frame begins a fork, and without a key nobody knows with which hash.
    unlinked: bool,
}

impl Folding<'_> {
    /// Goes over to a branch where it was forked.
    fn enter(&mut self, root: &Root, branch: &BranchInfo) {
        let Some(from) = &branch.parent else { return };
        match root.fork_start(&branch.branch, from, self.folded.head.hash) {
            Some(start) => self.folded.head.hash = start,
            None => self.unlinked = true,
        }
    }

    fn frame(&mut self, branch: &BranchId, frame: &Frame, through: Seq) -> Result<()> {
        let place = Place { session: self.session, branch };
        let codec = self.journal.codec();
        if std::mem::take(&mut self.unlinked) {
            self.folded.head.hash = frame.prev;
        }
        codec.check_link(place, frame, self.folded.head, false).map_err(|damage| self.damaged(&damage))?;
        self.check_protection(branch, frame)?;
        let (batch, bytes) = codec.decode_measured(place, frame).map_err(|damage| self.damaged(&damage))?;
        self.folded.bytes += bytes;
        self.batch(branch, &batch, through)
    }

    fn batch(&mut self, branch: &BranchId, batch: &Batch, through: Seq) -> Result<()> {
        for (seq, record) in batch.numbered().take_while(|(seq, _)| *seq <= through) {
            self.record(branch, seq, batch.at, record)?;
        }
        let last = batch.last.min(through);
        self.folded.head = Head { seq: last, hash: Codec::fork_hash(batch.hash, batch.last, last) };
        Ok(())
    }

    fn record(&mut self, branch: &BranchId, seq: Seq, at: Timestamp, record: &Record) -> Result<()> {
        let position = || Position::new(branch.clone(), seq);
        self.folded.state.apply(record).map_err(|error| error.on(self.session).at(position()))?;
        if let Record::Checkpoint(checkpoint) = record
            && !is_inexact(record)
        {
            self.folded.checkpoint =
                Some(CheckpointInfo { checkpoint: checkpoint.clone(), position: position(), created_at: at });
        }
        Ok(())
    }

    /// Once a chain is keyed it stays so: a plain frame behind a keyed one is a forgery.
    fn check_protection(&mut self, branch: &BranchId, frame: &Frame) -> Result<()> {
        if self.folded.keyed && !frame.is_protected() {
            return Err(self.damaged(&downgraded(branch, frame)));
        }
        self.folded.keyed |= frame.is_protected();
        Ok(())
    }

    fn damaged(&self, damage: &Damage) -> Error {
        let error = damage.to_error(self.session).during("load");
        match &self.folded.checkpoint {
            Some(found) if *error.kind() == ErrorKind::Corrupt => error.hint(format!(
                "run verify to list all damage; the nearest earlier valid checkpoint is {} at {}",
                found.checkpoint.id, found.position
            )),
            _ => error,
        }
    }
}

pub(super) fn downgraded(branch: &BranchId, frame: &Frame) -> Damage {
    let detail = "is not protected although the records before it are";
    Damage::new(DamageKind::Unprotected, branch.clone(), frame.first, frame.last, detail)
}

impl Journal {
    /// The state at a position; at the head of the current branch if none is given. Runs no
    /// user code.
    pub async fn load(&self, session: &SessionKey, at: Option<&Position>) -> Result<Restored> {
        self.load_opened(self.open(session).await?, at).await
    }

    /// The same, of a session that was just opened.
    pub async fn load_opened(&self, info: SessionInfo, at: Option<&Position>) -> Result<Restored> {
        let (info, position, folded) = self.fold_opened(info, at).await?;
        Ok(folded.restored(position, info))
    }

    /// What leads to a position, which that is, and the session as it was when that was read.
    pub(super) async fn fold_opened(
        &self,
        mut info: SessionInfo,
        at: Option<&Position>,
    ) -> Result<(SessionInfo, Position, Folded)> {
        loop {
            let position = position_or_end(&info, at)?;
            let error = match self.fold_all(&info, &position).await {
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => error,
                folded => return folded.map(|folded| (info, position, folded)),
            };
            // If somebody pruned meanwhile, what is missing was not lost but compacted.
            let bases = |info: &SessionInfo| info.branches.iter().map(|branch| branch.base).collect::<Vec<_>>();
            let now = self.open(&info.header.key).await?;
            if bases(&now) == bases(&info) {
                return Err(error);
            }
            info = now;
        }
    }

    async fn fold_all(&self, info: &SessionInfo, position: &Position) -> Result<Folded> {
        let stretches = lineage(info, position).map_err(|error| error.during("load"))?;
        self.fold(info, position, Folded::nothing(info.header.genesis), &stretches).await
    }

    /// Folds the stretches that lead from what is known to a position.
    pub(super) async fn fold(
        &self,
        info: &SessionInfo,
        position: &Position,
        known: Folded,
        stretches: &[Stretch],
    ) -> Result<Folded> {
        let mut folding = Folding { journal: self, session: &info.header.key, folded: known, unlinked: false };
        let forked = stretches.iter().any(|stretch| stretch.enters);
        let leaf = info.branch(&position.branch)?;
        let at_fork = leaf.base.is_none() && leaf.parent.as_ref().is_some_and(|from| from.seq == position.seq);
        let root = if forked || at_fork { self.codec().root(&info.header) } else { Root::Open };
        for stretch in stretches {
            if stretch.enters {
                folding.enter(&root, info.branch(&stretch.branch)?);
            }
            self.fold_stretch(&mut folding, stretch).await?;
        }
        if at_fork && folding.folded.head.seq == position.seq && !stretches.iter().any(|s| s.branch == leaf.branch) {
            folding.enter(&root, leaf);
            if folding.unlinked && leaf.head.seq == position.seq {
                folding.folded.head.hash = leaf.head.hash;
            }
        }
        let (head, branch) = (folding.folded.head, &position.branch);
        if head.seq != position.seq {
            let (first, last) = (head.seq.next(), position.seq);
            let gone = Damage::new(DamageKind::Missing, branch.clone(), first, last, "the records are gone");
            return Err(folding.damaged(&gone));
        }
        let recorded = info.branch(branch)?.head;
        if head.seq == recorded.seq && head != recorded {
            let (seq, detail) = (recorded.seq, "is not the one the branch ends with");
            let forged = Damage::new(DamageKind::Head, branch.clone(), seq, seq, detail);
            return Err(folding.damaged(&forged));
        }
        Ok(folding.folded)
    }

    /// The state at a position or, if records before it are damaged, at the nearest earlier
    /// checkpoint that can still be reached, with the error that made this necessary.
    pub async fn load_or_fall_back(
        &self,
        session: &SessionKey,
        at: Option<&Position>,
    ) -> Result<(Restored, Option<Error>)> {
        let error = match self.load(session, at).await {
            Ok(restored) => return Ok((restored, None)),
            Err(error) if *error.kind() == ErrorKind::Corrupt => error,
            Err(error) => return Err(error),
        };
        // Everything before the damage was folded without an error, so the newest checkpoint there can be
        // reached: one more fold, whatever stands behind the damage.
        let Some(damaged) = error.position() else { return Err(error) };
        let before = Position::new(damaged.branch.clone(), damaged.seq.previous());
        let info = self.open(session).await?;
        let Ok(newest) = self.checkpoints_opened(&info, Some(&before), None, 1).await else { return Err(error) };
        let Some(used) = newest.into_iter().next() else { return Err(error) };
        match self.load_opened(info, Some(&used.position)).await {
            Ok(restored) => Ok((restored, Some(error))),
            Err(_) => Err(error),
        }
    }

    async fn fold_stretch(&self, folding: &mut Folding<'_>, stretch: &Stretch) -> Result<()> {
        if let Some(base) = stretch.base {
            let frames = self.read_base(folding.session, &stretch.branch, base).await?;
            folding.folded.state = State::default();
            for frame in &frames {
                let place = Place { session: folding.session, branch: &stretch.branch };
                let decoded = self.codec().decode_measured(place, frame);
                let (batch, bytes) = decoded.map_err(|damage| folding.damaged(&damage))?;
                for record in &batch.records {
                    folding.record(&stretch.branch, base.seq, batch.at, record)?;
                }
                folding.check_protection(&stretch.branch, frame)?;
                folding.folded.bytes += bytes;
            }
            folding.folded.head = base;
        }
        let read =
            ReadFrames::all(folding.session.clone(), stretch.branch.clone()).with_range(stretch.from, stretch.through);
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    match slot {
                        Slot::Whole(frame) => folding.frame(&stretch.branch, &frame, stretch.through)?,
                        Slot::Damaged(damage) => return Err(folding.damaged(&damage)),
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
            .await
    }

    /// The parts of a branch's base, checked.
    pub(super) async fn read_base(&self, session: &SessionKey, branch: &BranchId, base: Head) -> Result<Vec<Frame>> {
        let place = Place { session, branch };
        let slots = self.store().read_all(&ReadFrames::all(session.clone(), branch.clone()).with_base()).await?;
        let frames = slots.into_iter().map(|slot| match slot {
            Slot::Whole(frame) => Ok(frame),
            Slot::Damaged(damage) => Err(damage.to_error(session)),
        });
        let frames: Vec<Frame> = frames.collect::<Result<_>>()?;
        self.codec().check_base(place, base, &frames, false).map_err(|damage| damage.to_error(session))?;
        Ok(frames)
    }

    /// A page of one branch's own batches, oldest first, from record `from` on. Damage is part
    /// of the answer, so that everything else stays readable.
    pub async fn read(&self, session: &SessionKey, branch: &BranchId, from: Seq, limit: usize) -> Result<Vec<Entry>> {
        if !self.codec().has_learned(session) {
            self.open_stored(session).await?;
        }
        let read = ReadFrames::all(session.clone(), branch.clone()).with_range(from, Seq::MAX).with_limit(limit);
        let page = self.store().read(&read).await?;
        let place = Place { session, branch };
        let mut before: Option<Head> = None;
        let mut entries = Vec::with_capacity(page.slots.len());
        for slot in page.slots {
            let link = match (&slot, before.take()) {
                (Slot::Whole(frame), Some(before)) => self.codec().check_link(place, frame, before, false),
                _ => Ok(()),
            };
            if let Slot::Whole(frame) = &slot {
                before = Some(Head { seq: frame.last, hash: frame.hash });
            }
            match link {
                Ok(()) => entries.push(self.entry(place, slot)),
                // What is missing stands before the frame, which is as good as its content.
                Err(gap) if gap.kind == DamageKind::Missing => {
                    entries.extend([Entry::Damaged(gap), self.entry(place, slot)]);
                }
                Err(damage) => entries.push(Entry::Damaged(damage)),
            }
        }
        Ok(entries)
    }

    /// The batch in a frame that was written through this journal, without the store.
    pub fn decode(&self, session: &SessionKey, branch: &BranchId, frame: &Frame) -> Result<Batch> {
        let place = Place { session, branch };
        self.codec().decode(place, frame).map_err(|damage| damage.to_error(session))
    }

    pub(super) fn batch(&self, place: Place<'_>, slot: Slot, on_damage: OnDamage) -> Result<Option<Batch>> {
        match (self.entry(place, slot), on_damage) {
            (Entry::Batch(batch), _) => Ok(Some(batch)),
            (Entry::Damaged(_), OnDamage::PassOver) => Ok(None),
            (Entry::Damaged(damage), OnDamage::Fail) => Err(damage.to_error(place.session)),
        }
    }

    pub(super) fn entry(&self, place: Place<'_>, slot: Slot) -> Entry {
        match slot {
            Slot::Damaged(damage) => Entry::Damaged(damage),
            Slot::Whole(frame) => match self.codec().decode(place, &frame) {
                Ok(batch) => Entry::Batch(batch),
                Err(damage) => Entry::Damaged(damage),
            },
        }
    }

    /// The hash a branch starts with, if it can be known: behind its fork point, or the genesis.
    pub(super) async fn start_hash(&self, info: &SessionInfo, branch: &BranchInfo) -> Result<Option<Hash>> {
        let Some(from) = &branch.parent else { return Ok(Some(info.header.genesis)) };
        let hash = self.hash_at(info, from).await?;
        Ok(self.codec().root(&info.header).fork_start(&branch.branch, from, hash))
    }

    /// The hash a branch starts with, as its own first frame says, or its head if it has none.
    pub(super) async fn stored_start(&self, info: &SessionInfo, branch: &BranchInfo) -> Result<Option<Hash>> {
        let first = branch.first_own();
        if branch.head.seq < first {
            return Ok(Some(branch.head.hash));
        }
        let read =
            ReadFrames::all(info.header.key.clone(), branch.branch.clone()).with_range(first, first).with_limit(1);
        match self.store().read(&read).await?.slots.into_iter().next() {
            Some(Slot::Whole(frame)) if frame.first == first => Ok(Some(frame.prev)),
            Some(Slot::Damaged(damage)) => Err(damage.to_error(&info.header.key)),
            _ => Ok(None),
        }
    }

    /// The chain hash at a position of the branch that owns it.
    pub(super) async fn hash_at(&self, info: &SessionInfo, position: &Position) -> Result<Hash> {
        let session = &info.header.key;
        let branch = info.branch(&position.branch)?;
        let error = |error: Error| error.on(session).at(position.clone());
        for known in [Some(branch.head), branch.base].into_iter().flatten() {
            if known.seq == position.seq {
                return Ok(known.hash);
            }
        }
        if position.seq == Seq::ZERO {
            return Ok(info.header.genesis);
        }
        if position.seq > branch.head.seq {
            return Err(error(Error::not_found(format!(
                "branch `{}` ends at record {}",
                branch.branch, branch.head.seq
            ))));
        }
        let read = ReadFrames::all(session.clone(), branch.branch.clone())
            .with_range(position.seq, position.seq)
            .with_limit(1);
        match self.store().read(&read).await?.slots.into_iter().next() {
            Some(Slot::Whole(frame)) => Ok(Codec::fork_hash(frame.hash, frame.last, position.seq)),
            Some(Slot::Damaged(damage)) => Err(damage.to_error(session)),
            None => Err(error(Error::not_found(format!("record {} was pruned or lost", position.seq)))),
        }
    }
}
