//! Pruning: facts for the planner, and carrying out its plans. Every step may be repeated, so
//! a crash in between costs nothing but a new plan.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Journal;
use super::checkpoints::{CheckpointMarks, INEXACT, OnDamage};
use super::load::{CheckpointInfo, Stretch, lineage};
use crate::codec::{Batch, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, CheckpointId, Namespace, SessionKey};
use crate::position::{Epoch, Head, Position, Seq};
use crate::record::{CheckpointRemoved, CheckpointType, Marks, Record};
use crate::retention::{BranchFacts, CheckpointFacts, ForkFacts, Policy, PrunePlan, Reason, Rule, Trim, plan};
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo, SessionQuery};
use crate::state::compact;
use crate::status::Status;
use crate::store::{Base, Lease, ReadFrames, Removal, Removed, Slot, StoreExt as _};
use crate::time::Timestamp;

/// The parts of a base are about this large.
const BASE_PART_BYTES: usize = 1 << 20;

/// What pruning did.
#[derive(Clone, Debug, PartialEq)]
pub struct PruneResult {
    /// The plan that was carried out.
    pub plan: PrunePlan,
    /// What it freed.
    pub removed: Removed,
}

/// Which sessions would be deleted, and which are protected and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeletePlan {
    /// Sessions that go.
    pub delete: Vec<SessionKey>,
    /// Sessions that stay although they are old.
    pub protected: Vec<(SessionKey, Reason)>,
    /// What changed at this time or later is not old.
    pub inactive_since: Timestamp,
}

impl Journal {
    /// What `policy` would remove from a session. Changes nothing. `own` is the caller's lease, if
    /// it holds one: what others run is left alone.
    pub async fn plan_prune(&self, session: &SessionKey, policy: &Policy, own: Option<&Lease>) -> Result<PrunePlan> {
        let info = self.open(session).await?;
        let marks = self.checkpoint_marks(&info, OnDamage::Fail).await?;
        let mut branches = Vec::new();
        for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
            branches.push(self.branch_facts(&info, branch, &marks, fence_of(own, &branch.branch)).await?);
        }
        Ok(plan(policy, &branches, self.clock().now()))
    }

    /// Carries out a plan: the checkpoints go first, then the history nothing needs any more.
    pub async fn apply_prune(&self, session: &SessionKey, plan: PrunePlan, own: Option<&Lease>) -> Result<PruneResult> {
        let ids: Vec<_> = plan.remove.iter().map(|planned| planned.checkpoint.clone()).collect();
        let marks = self.checkpoint_marks(&self.open(session).await?, OnDamage::Fail).await?;
        if let Some(pinned) = ids.iter().find(|id| marks.is_pinned(id)) {
            let message = format!("checkpoint `{pinned}` was pinned since the plan was made");
            return Err(Error::new(ErrorKind::Stale, message).during("prune").on(session).hint("plan again"));
        }
        if !ids.is_empty() {
            self.send(session, &[CheckpointRemoved::new(ids, "retention").into()]).await?;
        }
        let mut removed = Removed::default();
        for trim in &plan.trims {
            let base = self.compacted(session, trim).await?;
            let fence = fence_of(own, &trim.branch);
            let removal = Removal::History { session: session.clone(), branch: trim.branch.clone(), base, fence };
            let freed = self.store().remove(&removal).await?;
            removed.frames += freed.frames;
            removed.bytes += freed.bytes;
        }
        Ok(PruneResult { plan, removed })
    }

    /// Plans and carries out in one go.
    pub async fn prune(&self, session: &SessionKey, policy: &Policy) -> Result<PruneResult> {
        let plan = self.plan_prune(session, policy, None).await?;
        self.apply_prune(session, plan, None).await
    }

    /// Removes checkpoints made before `cutoff`, except what is protected, and the history nothing
    /// needs any more. For a dry run, plan with [`Rule::MaxAge`] instead.
    pub async fn delete_older_than(&self, session: &SessionKey, cutoff: Timestamp) -> Result<PruneResult> {
        let age = self.clock().now().since(cutoff);
        self.prune(session, &Policy::new([Rule::MaxAge(age)])).await
    }

    /// Unmarks checkpoints. Refuses the newest of a branch, pinned ones and fork sources. The
    /// bytes go with the next [`Journal::prune`].
    pub async fn delete_checkpoints(&self, session: &SessionKey, ids: &[CheckpointId]) -> Result<()> {
        let plan = self.plan_prune(session, &Policy::default(), None).await?;
        let protected = plan.keep.iter().find(|planned| ids.contains(&planned.checkpoint));
        if let Some(planned) = protected {
            let reasons: Vec<_> = planned.reasons.iter().map(Reason::to_string).collect();
            let message = format!("checkpoint `{}` is protected: {}", planned.checkpoint, reasons.join(", "));
            return Err(Error::new(ErrorKind::Protected, message).during("delete checkpoints").on(session));
        }
        let known: HashSet<_> = plan.remove.iter().map(|planned| &planned.checkpoint).collect();
        if let Some(unknown) = ids.iter().find(|id| !known.contains(id)) {
            return Err(Error::not_found(format!("there is no checkpoint `{unknown}`"))
                .during("delete checkpoints")
                .on(session));
        }
        self.send(session, &[CheckpointRemoved::new(ids.to_vec(), "deleted").into()]).await.map(drop)
    }

    /// Which sessions of a namespace were inactive for `threshold` or longer. Changes nothing.
    pub async fn plan_delete_inactive(&self, namespace: &Namespace, threshold: Duration) -> Result<DeletePlan> {
        let mut query = SessionQuery::new(namespace.clone()).with_limit(500);
        let inactive_since = self.clock().now().minus(threshold);
        query.updated_before = Some(inactive_since);
        let mut plan = DeletePlan { inactive_since, ..DeletePlan::default() };
        for info in self.store().list_all(&query).await? {
            // A local clock that is ahead must not make a session look older than it is.
            if info.observed_at.since(info.updated_at()) < threshold {
                continue;
            }
            let key = info.header.key.clone();
            match self.reason_against_deleting(&info, inactive_since).await? {
                Some(reason) => plan.protected.push((key, reason)),
                None => plan.delete.push(key),
            }
        }
        Ok(plan)
    }

    /// Deletes the sessions of a plan; those that came to life since stay.
    pub async fn apply_delete(&self, plan: DeletePlan) -> Result<(DeletePlan, Removed)> {
        let mut done =
            DeletePlan { delete: Vec::new(), protected: plan.protected, inactive_since: plan.inactive_since };
        let mut total = Removed::default();
        for session in plan.delete {
            // What happened since the plan was made counts too.
            let info = match self.open(&session).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            if let Some(reason) = self.reason_against_deleting(&info, plan.inactive_since).await? {
                done.protected.push((session, reason));
                continue;
            }
            match self.clear_session_at(&session, info.heads()).await {
                Ok(removed) => {
                    total.frames += removed.frames;
                    total.bytes += removed.bytes;
                    done.delete.push(session);
                }
                Err(error) if *error.kind() == ErrorKind::Protected => done.protected.push((session, Reason::Leased)),
                Err(error) if *error.kind() == ErrorKind::Stale => done.protected.push((session, Reason::Active)),
                Err(error) => return Err(error),
            }
        }
        Ok((done, total))
    }

    async fn reason_against_deleting(&self, info: &SessionInfo, since: Timestamp) -> Result<Option<Reason>> {
        if info.updated_at() >= since {
            return Ok(Some(Reason::Active));
        }
        if info.live_lease().is_some() {
            return Ok(Some(Reason::Leased));
        }
        let info = &self.with_recorded_statuses(info.clone()).await?;
        let statuses: BTreeSet<Status> =
            info.branches.iter().map(|branch| branch.status_at(info.observed_at)).collect();
        if statuses.contains(&Status::Waiting) {
            return Ok(Some(Reason::Waiting));
        }
        if statuses.into_iter().any(Status::is_unfinished) {
            return Ok(Some(Reason::UnfinishedRun));
        }
        let marks = self.checkpoint_marks(info, OnDamage::Fail).await?;
        for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
            let found = self.checkpoints_of(&info.header.key, &own_stretch(branch), OnDamage::Fail).await?;
            for mut candidate in found {
                marks.apply(&mut candidate.checkpoint);
                if candidate.checkpoint.pinned && !marks.removed.contains(&candidate.checkpoint.id) {
                    return Ok(Some(Reason::Pinned));
                }
            }
        }
        Ok(None)
    }

    async fn branch_facts(
        &self,
        info: &SessionInfo,
        branch: &BranchInfo,
        marks: &CheckpointMarks,
        fence: Option<Epoch>,
    ) -> Result<BranchFacts> {
        let session = &info.header.key;
        let stretch = own_stretch(branch);
        let (ends, marked) = self.batch_ends(session, &stretch).await?;
        let total = ends.last().map_or(0, |(_, bytes)| *bytes);
        let found = self.checkpoints_of(session, &stretch, OnDamage::Fail).await?;
        self.check_nothing_is_hidden(session, &stretch, &found, marked).await?;
        let mut checkpoints = Vec::new();
        for mut found in found.into_iter().rev() {
            if marks.removed.contains(&found.checkpoint.id) {
                continue;
            }
            marks.apply(&mut found.checkpoint);
            let seq = found.position.seq;
            let after = ends.partition_point(|(end, _)| *end <= seq);
            checkpoints.push(CheckpointFacts {
                seq,
                trim_to: after.checked_sub(1).map_or(Seq::ZERO, |index| ends[index].0),
                at: found.created_at,
                bytes_since: after.checked_sub(1).map_or(total, |index| total - ends[index].1),
                clean: found.checkpoint.clean,
                pinned: found.checkpoint.pinned,
                tags: found.checkpoint.tags,
                run: found.checkpoint.run,
                turn: found.checkpoint.kind == CheckpointType::Turn,
                id: found.checkpoint.id,
            });
        }
        let trim_to = |seq: Seq| match ends.partition_point(|(end, _)| *end <= seq) {
            0 => Seq::ZERO,
            after => ends[after - 1].0,
        };
        let forks = info.forks_of(&branch.branch).filter(|(fork, _)| fork.base.is_none());
        // A fork inside a batch needs the whole batch, so history before that batch may go.
        let forks = forks.map(|(_, seq)| ForkFacts { seq, trim_to: trim_to(seq) });
        let unfinished = branch.status_at(info.observed_at).is_unfinished();
        let position = Position::new(branch.branch.clone(), branch.head.seq);
        let unfinished_run = match unfinished {
            true => self.load(session, Some(&position)).await?.state.run().map(|run| run.started.run.clone()),
            false => None,
        };
        Ok(BranchFacts {
            branch: branch.branch.clone(),
            floor: branch.base.map_or(branch.first_own().previous(), |base| base.seq),
            head: branch.head.seq,
            forks: forks.collect(),
            unfinished_run,
            leased: branch.live_lease(info.observed_at).is_some_and(|lease| Some(lease.epoch) != fence),
            checkpoints,
        })
    }

    /// An error if a checkpoint of a stretch is not among those found: an index that hides it must not
    /// have its history removed. `marked` are the frames that say themselves that they hold some.
    async fn check_nothing_is_hidden(
        &self,
        session: &SessionKey,
        stretch: &Stretch,
        found: &[CheckpointInfo],
        marked: Vec<(Seq, Seq)>,
    ) -> Result<()> {
        let found: BTreeSet<Seq> = found.iter().map(|found| found.position.seq).collect();
        let place = Place { session, branch: &stretch.branch };
        let is_missed = |(first, last): &(Seq, Seq)| found.range(*first..).next().is_none_or(|seq| seq > last);
        for (first, last) in marked.into_iter().filter(is_missed) {
            let read = ReadFrames::all(session.clone(), stretch.branch.clone()).with_range(first, last).with_limit(1);
            for slot in self.store().read(&read).await?.slots {
                let batch = self.batch(place, slot, OnDamage::Fail)?;
                let hides = |batch: &Batch| {
                    let mut asked = batch.numbered().filter(|(seq, _)| (stretch.from..=stretch.through).contains(seq));
                    asked.any(|(_, record)| matches!(record, Record::Checkpoint(_)))
                };
                if batch.as_ref().is_some_and(hides) {
                    let (kind, branch) = (DamageKind::Index, stretch.branch.clone());
                    let detail = "the index does not fit the frame: it is not found by its marks".to_owned();
                    return Err(Damage::new(kind, branch, first, last, detail).to_error(session));
                }
            }
        }
        Ok(())
    }

    /// The last records of a stretch's batches, each with the bytes up to it, oldest first; and the first
    /// and last records of those that say that they hold checkpoints.
    async fn batch_ends(&self, session: &SessionKey, stretch: &Stretch) -> Result<(Vec<(Seq, u64)>, Vec<(Seq, Seq)>)> {
        let mut marked = Vec::new();
        let mut ends: Vec<(Seq, u64)> = stretch.base.map(|base| (base.seq, 0)).into_iter().collect();
        let read = ReadFrames::all(session.clone(), stretch.branch.clone()).with_range(stretch.from, stretch.through);
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    if let Slot::Whole(frame) = slot {
                        let before = ends.last().map_or(0, |(_, bytes)| *bytes);
                        ends.push((frame.last, before + frame.stored_len() as u64));
                        if frame.marks.intersects(Marks::CHECKPOINT) {
                            marked.push((frame.first, frame.last));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok((ends, marked))
    }

    /// The base that stands for the history of a branch up to a record. Damaged history is not
    /// compacted: that would hide the damage.
    async fn compacted(&self, session: &SessionKey, trim: &Trim) -> Result<Base> {
        let info = self.open(session).await?;
        let position = Position::new(trim.branch.clone(), trim.through);
        let restored = self.load(session, Some(&position)).await?;
        // The base is as old as what it stands for, so that a checkpoint in it keeps its age.
        let mut past = Past { records: Vec::new(), at: info.created_at, end: Seq::ZERO };
        for stretch in lineage(&info, &position)? {
            if let Some(base) = stretch.base {
                let place = Place { session, branch: &stretch.branch };
                for frame in self.read_base(session, &stretch.branch, base).await? {
                    let batch = self.codec().decode(place, &frame).map_err(|damage| damage.to_error(session))?;
                    past.records.extend(batch.records);
                    (past.at, past.end) = (batch.at, base.seq);
                }
            }
            self.collect(session, &stretch, &mut past).await?;
        }
        if past.end != trim.through {
            let message = format!("history can be cut only between batches, and {position} is inside one");
            return Err(Error::invalid(message).during("prune").on(session).at(position));
        }
        let ends_with_checkpoint = matches!(past.records.last(), Some(Record::Checkpoint(_)));
        let mut records = compact(past.records)?;
        if !ends_with_checkpoint {
            records.iter_mut().for_each(mark_as_inexact);
        }
        self.encode_base(session, trim, (restored.head, restored.state.status()), past.at, &records)
    }

    /// Adds the records of a stretch, checking every hash: what is compacted cannot be checked
    /// any more.
    async fn collect(&self, session: &SessionKey, stretch: &Stretch, past: &mut Past) -> Result<()> {
        let place = Place { session, branch: &stretch.branch };
        let read = ReadFrames::all(session.clone(), stretch.branch.clone()).with_range(stretch.from, stretch.through);
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    let frame = match slot {
                        Slot::Whole(frame) => frame,
                        Slot::Damaged(damage) => return Err(damage.to_error(session)),
                    };
                    let before = Head { seq: frame.first.previous(), hash: frame.prev };
                    let checked = self.codec().check_link(place, &frame, before, true);
                    let batch = checked.and_then(|()| self.codec().decode(place, &frame));
                    let Batch { first, last, at, records, .. } = batch.map_err(|damage| damage.to_error(session))?;
                    let wanted = (stretch.through.0 + 1).saturating_sub(first.0);
                    past.records.extend(records.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX)));
                    (past.at, past.end) = (at, last);
                }
                Ok(ControlFlow::Continue(()))
            })
            .await
    }

    fn encode_base(
        &self,
        session: &SessionKey,
        trim: &Trim,
        (head, status): (Head, Status),
        at: Timestamp,
        records: &[Record],
    ) -> Result<Base> {
        let place = Place { session, branch: &trim.branch };
        let mut parts: Vec<&[Record]> = Vec::new();
        let part_bytes = BASE_PART_BYTES.min(self.codec().limits().batch_bytes / 4);
        let (mut start, mut size) = (0, 0);
        for (index, record) in records.iter().enumerate() {
            size += serde_json::to_vec(record).map_or(0, |bytes| bytes.len());
            if size >= part_bytes || index + 1 - start >= self.codec().limits().batch_records {
                parts.push(&records[start..=index]);
                (start, size) = (index + 1, 0);
            }
        }
        // Even if nothing is left of the past, one part says so.
        if start < records.len() || parts.is_empty() {
            parts.push(&records[start..]);
        }
        let frames = self.codec().encode_base(place, head, at, &parts)?;
        Ok(Base { head, status, frames })
    }
}

/// The past of a position, collected to be compacted.
struct Past {
    records: Vec<Record>,
    /// When its last batch was committed.
    at: Timestamp,
    /// Where its last batch ends.
    end: Seq,
}

/// A checkpoint that stays in a base only to be named as the last one: the base stands for a
/// later position, so it can no longer be gone back to.
fn mark_as_inexact(record: &mut Record) {
    if let Record::Checkpoint(checkpoint) = record {
        checkpoint.extra.insert(INEXACT.into(), true.into());
    }
}

/// The epoch of the caller's lease, if it is the lease of that branch.
fn fence_of(own: Option<&Lease>, branch: &BranchId) -> Option<Epoch> {
    own.filter(|lease| lease.branch == *branch).map(|lease| lease.info.epoch)
}

pub(super) fn own_stretch(branch: &BranchInfo) -> Stretch {
    let from = branch.base.map_or(branch.first_own(), |base| base.seq.next());
    let enters = branch.base.is_none() && branch.parent.is_some();
    Stretch { branch: branch.branch.clone(), base: branch.base, from, through: branch.head.seq, enters }
}
