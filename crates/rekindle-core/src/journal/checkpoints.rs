//! Checkpoints: which there are, and what was said about them after they were made.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::Journal;
use super::load::{CheckpointInfo, Restored, Stretch, lineage, position_or_end};
use super::prune::own_stretch;
use crate::codec::Place;
use crate::error::{Error, Result};
use crate::id::{BranchId, CheckpointId, SessionKey};
use crate::position::{Position, Seq};
use crate::record::{Checkpoint, CheckpointRemoved, Marks, Record};
use crate::session::SessionInfo;
use crate::store::{MAX_FRAMES, ReadFrames, Slot, StoreExt as _};
use crate::time::Timestamp;

/// So many frames with checkpoints are read at a time at least.
const PAGE: usize = 64;

impl Journal {
    /// The checkpoints on the line of history that leads to a position, newest first: at most
    /// `limit`, and only those before `before`. Without a position, those of the current branch.
    pub async fn checkpoints(
        &self,
        session: &SessionKey,
        at: Option<&Position>,
        before: Option<&CheckpointId>,
        limit: usize,
    ) -> Result<Vec<CheckpointInfo>> {
        self.checkpoints_opened(&self.open(session).await?, at, before, limit).await
    }

    /// The same, of a session that was just opened.
    pub async fn checkpoints_opened(
        &self,
        info: &SessionInfo,
        at: Option<&Position>,
        before: Option<&CheckpointId>,
        limit: usize,
    ) -> Result<Vec<CheckpointInfo>> {
        let session = &info.header.key;
        let position = position_or_end(info, at)?;
        if limit == 0 {
            return Ok(Vec::new());
        }
        let marks = self.checkpoint_marks(info, OnDamage::PassOver).await?;
        let mut found = Vec::new();
        let mut skipping = before.is_some();
        for stretch in lineage(info, &position)?.iter().rev() {
            // Reading stops once there are enough, so that the newest few cost the same in any history.
            let missing = limit - found.len();
            let enough = |here: &[CheckpointInfo]| {
                let is_before = |found: &CheckpointInfo| before == Some(&found.checkpoint.id);
                let start = if skipping { here.iter().position(is_before).map(|at| at + 1) } else { Some(0) };
                let seen = start.map_or(&[][..], |start| &here[start..]).iter();
                seen.filter(|found| !marks.removed.contains(&found.checkpoint.id)).take(missing).count() == missing
            };
            for mut candidate in
                self.some_checkpoints_of(session, stretch, OnDamage::PassOver, missing, &enough).await?
            {
                let id = &candidate.checkpoint.id;
                if skipping {
                    skipping = before != Some(id);
                    continue;
                }
                if !marks.removed.contains(id) && found.len() < limit {
                    marks.apply(&mut candidate.checkpoint);
                    found.push(candidate);
                }
            }
            if found.len() == limit {
                break;
            }
        }
        if skipping {
            let message = format!("there is no checkpoint `{}` before {position}", before.map_or("", |id| id.as_str()));
            return Err(Error::not_found(message).during("list checkpoints").on(session));
        }
        Ok(found)
    }

    /// The newest checkpoints of each branch's own history, newest first, at most `limit` of each: one
    /// list for each branch of `info`, in its order. The inbox has none.
    pub async fn own_checkpoints(&self, info: &SessionInfo, limit: usize) -> Result<Vec<Vec<CheckpointInfo>>> {
        let session = &info.header.key;
        let marks = self.checkpoint_marks(info, OnDamage::PassOver).await?;
        let kept = |found: &&CheckpointInfo| !marks.removed.contains(&found.checkpoint.id);
        let enough = |here: &[CheckpointInfo]| here.iter().filter(kept).take(limit).count() == limit;
        let mut all = Vec::with_capacity(info.branches.len());
        for branch in &info.branches {
            let mut own = Vec::new();
            if limit > 0 && !branch.branch.is_inbox() {
                let stretch = own_stretch(branch);
                own = self.some_checkpoints_of(session, &stretch, OnDamage::PassOver, limit, &enough).await?;
                own.retain(|found| kept(&found));
                own.truncate(limit);
                own.iter_mut().for_each(|found| marks.apply(&mut found.checkpoint));
            }
            all.push(own);
        }
        Ok(all)
    }

    /// The last checkpoint at or before what was restored, with what was said about it since.
    pub async fn last_checkpoint(&self, restored: &Restored) -> Result<Option<CheckpointInfo>> {
        let Some(mut last) = restored.checkpoint.clone() else { return Ok(None) };
        let marks = Box::pin(self.checkpoint_marks(&restored.info, OnDamage::PassOver)).await?;
        if marks.removed.contains(&last.checkpoint.id) {
            let earlier = Box::pin(self.checkpoints_opened(&restored.info, Some(&restored.position), None, 1)).await?;
            return Ok(earlier.into_iter().next());
        }
        marks.apply(&mut last.checkpoint);
        Ok(Some(last))
    }

    /// A checkpoint by id, on whatever branch it is.
    pub async fn checkpoint(&self, session: &SessionKey, id: &CheckpointId) -> Result<CheckpointInfo> {
        self.checkpoint_opened(&self.open(session).await?, id).await
    }

    /// The same, of a session that was just opened.
    pub async fn checkpoint_opened(&self, info: &SessionInfo, id: &CheckpointId) -> Result<CheckpointInfo> {
        let session = &info.header.key;
        let marks = self.checkpoint_marks(info, OnDamage::PassOver).await?;
        let is_it = |found: &CheckpointInfo| found.checkpoint.id == *id;
        if !marks.removed.contains(id) {
            for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
                let stretch = own_stretch(branch);
                let there = |here: &[CheckpointInfo]| here.iter().any(is_it);
                let found = self.some_checkpoints_of(session, &stretch, OnDamage::PassOver, MAX_FRAMES, &there).await?;
                if let Some(mut found) = found.into_iter().find(is_it) {
                    marks.apply(&mut found.checkpoint);
                    return Ok(found);
                }
            }
        }
        Err(Error::not_found(format!("there is no checkpoint `{id}`")).during("find checkpoint").on(session))
    }

    /// The newest checkpoint after a step, on the line of history that leads to a position; of
    /// the current branch without one.
    pub async fn checkpoint_at_step(
        &self,
        session: &SessionKey,
        at: Option<&Position>,
        step: u64,
    ) -> Result<CheckpointInfo> {
        self.checkpoint_at_step_opened(&self.open(session).await?, at, step).await
    }

    /// The same, of a session that was just opened.
    pub async fn checkpoint_at_step_opened(
        &self,
        info: &SessionInfo,
        at: Option<&Position>,
        step: u64,
    ) -> Result<CheckpointInfo> {
        let found = self.checkpoints_opened(info, at, None, usize::MAX).await?;
        found.into_iter().find(|found| found.checkpoint.step == step).ok_or_else(|| {
            let message = format!("there is no checkpoint after step {step}");
            Error::not_found(message).during("find checkpoint").on(&info.header.key)
        })
    }

    /// The checkpoints of one stretch, newest first, removed ones included.
    pub(super) async fn checkpoints_of(
        &self,
        session: &SessionKey,
        stretch: &Stretch,
        on_damage: OnDamage,
    ) -> Result<Vec<CheckpointInfo>> {
        self.some_checkpoints_of(session, stretch, on_damage, usize::MAX, &|_| false).await
    }

    /// The same, but only until there are enough; about so many are wanted.
    async fn some_checkpoints_of(
        &self,
        session: &SessionKey,
        stretch: &Stretch,
        on_damage: OnDamage,
        wanted: usize,
        enough: &(dyn Fn(&[CheckpointInfo]) -> bool + Sync),
    ) -> Result<Vec<CheckpointInfo>> {
        let mut found = Vec::new();
        let all = ReadFrames::all(session.clone(), stretch.branch.clone()).with_marks(Marks::CHECKPOINT);
        let read = all.clone().with_range(stretch.from, stretch.through).with_newest_first();
        let read = read.with_limit(wanted.clamp(PAGE, MAX_FRAMES));
        let place = Place { session, branch: &stretch.branch };
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    if let Some(batch) = self.batch(place, slot, on_damage)? {
                        let wanted = |seq: Seq| seq >= stretch.from && seq <= stretch.through;
                        let here = batch.numbered().filter(|(seq, _)| wanted(*seq));
                        found.extend(
                            here.filter_map(|(seq, record)| checkpoint_at(&stretch.branch, seq, batch.at, record))
                                .rev_collect(),
                        );
                    }
                }
                Ok(if enough(&found) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })
            .await?;
        if let Some(base) = stretch.base.filter(|_| !enough(&found)) {
            for slot in self.store().read_all(&all.with_base()).await?.into_iter().rev() {
                if let Some(batch) = self.batch(place, slot, on_damage)? {
                    let here = batch.records.iter().filter(|record| !is_inexact(record));
                    found.extend(
                        here.filter_map(|record| checkpoint_at(&stretch.branch, base.seq, batch.at, record))
                            .rev_collect(),
                    );
                }
            }
        }
        Ok(found)
    }

    /// What was said about checkpoints after they were made.
    pub(super) async fn checkpoint_marks(&self, info: &SessionInfo, on_damage: OnDamage) -> Result<CheckpointMarks> {
        let (session, inbox) = (&info.header.key, BranchId::inbox());
        let mut marks = CheckpointMarks::default();
        // What is damaged may stand behind the head.
        let is_empty = info.branch(&inbox).is_ok_and(|inbox| inbox.head.seq == Seq::ZERO);
        if is_empty && on_damage == OnDamage::PassOver {
            return Ok(marks);
        }
        let mut read = ReadFrames::all(session.clone(), inbox.clone());
        if on_damage == OnDamage::PassOver {
            read = read.with_marks(Marks::CHECKPOINT);
        }
        // Before something is removed everything is read, and the marks of the frames themselves count:
        // an index that hides a frame must not take a pin away.
        let place = Place { session, branch: &inbox };
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    if matches!(&slot, Slot::Whole(frame) if !frame.marks.intersects(Marks::CHECKPOINT)) {
                        continue;
                    }
                    if let Some(batch) = self.batch(place, slot, on_damage)? {
                        batch.records.into_iter().for_each(|record| marks.take(record));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(marks)
    }
}

/// The field of a checkpoint in a base that stands for a later position.
pub(super) const INEXACT: &str = "inexact";

pub(super) fn is_inexact(record: &Record) -> bool {
    matches!(record, Record::Checkpoint(checkpoint) if checkpoint.extra.contains_key(INEXACT))
}

/// What to do about batches that cannot be read while looking for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDamage {
    /// Pass over them: somebody wants to see what is left. `verify` lists them.
    PassOver,
    /// Fail: something is to be removed, and what cannot be read may protect it.
    Fail,
}

/// What was said about checkpoints after they were made.
#[derive(Debug, Default)]
pub(super) struct CheckpointMarks {
    pub(super) removed: HashSet<CheckpointId>,
    marked: HashMap<CheckpointId, (Option<bool>, Option<Vec<String>>)>,
}

impl CheckpointMarks {
    fn take(&mut self, record: Record) {
        match record {
            Record::CheckpointRemoved(removed) => {
                // A run that has more than it wants to keep does not see every pin in time.
                let surplus = removed.reason == CheckpointRemoved::SURPLUS;
                let gone = removed.checkpoints.into_iter().filter(|id| !surplus || !self.is_pinned(id));
                let gone: Vec<_> = gone.collect();
                self.removed.extend(gone);
            }
            Record::CheckpointMarked(marked) => {
                let mark = self.marked.entry(marked.checkpoint).or_default();
                mark.0 = marked.pinned.or(mark.0);
                if marked.tags.is_some() {
                    mark.1 = marked.tags;
                }
            }
            _ => {}
        }
    }

    /// Whether somebody pinned it after it was made.
    pub(super) fn is_pinned(&self, id: &CheckpointId) -> bool {
        self.marked.get(id).is_some_and(|(pinned, _)| *pinned == Some(true))
    }

    pub(super) fn apply(&self, checkpoint: &mut Checkpoint) {
        if let Some((pinned, tags)) = self.marked.get(&checkpoint.id) {
            checkpoint.pinned = pinned.unwrap_or(checkpoint.pinned);
            if let Some(tags) = tags {
                checkpoint.tags.clone_from(tags);
            }
        }
    }
}

fn checkpoint_at(branch: &BranchId, seq: Seq, at: Timestamp, record: &Record) -> Option<CheckpointInfo> {
    match record {
        Record::Checkpoint(checkpoint) => Some(CheckpointInfo {
            checkpoint: checkpoint.clone(),
            position: Position::new(branch.clone(), seq),
            created_at: at,
        }),
        _ => None,
    }
}

/// Collects in reverse: batches are read newest first, the records in them oldest first.
trait RevCollect: Iterator + Sized {
    fn rev_collect(self) -> std::iter::Rev<std::vec::IntoIter<Self::Item>> {
        self.collect::<Vec<_>>().into_iter().rev()
    }
}

impl<I: Iterator> RevCollect for I {}
