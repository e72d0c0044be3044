//! Pruning: facts for the planner, and carrying out its plans. Every step may be repeated, so
//! a crash in between costs nothing but a new plan.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Journal;
use super::load::{CheckpointMarks, INEXACT, Stretch, lineage};
use crate::codec::{Batch, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, Namespace, SessionKey};
use crate::position::{Epoch, Head, Position, Seq};
use crate::record::{CheckpointRemoved, Record};
use crate::retention::{BranchFacts, CheckpointFacts, Policy, PrunePlan, Reason, Trim, plan};
use crate::session::{BranchInfo, SessionInfo, SessionQuery};
use crate::state::compact;
use crate::status::Status;
use crate::store::{Base, ReadFrames, Removal, Removed, Slot, StoreExt as _};

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
}

impl Journal {
    /// What `policy` would remove from a session. Changes nothing. `fence` is the caller's own
    /// lease, if it holds one.
    pub async fn plan_prune(&self, session: &SessionKey, policy: &Policy, fence: Option<Epoch>) -> Result<PrunePlan> {
        let info = self.open(session).await?;
        let marks = self.checkpoint_marks(session).await?;
        let mut branches = Vec::new();
        for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
            branches.push(self.branch_facts(&info, branch, &marks, fence).await?);
        }
        Ok(plan(policy, &branches, self.clock().now()))
    }

    /// Carries out a plan: the checkpoints go first, then the history nothing needs any more.
    pub async fn apply_prune(
        &self,
        session: &SessionKey,
        plan: PrunePlan,
        fence: Option<Epoch>,
    ) -> Result<PruneResult> {
        let ids: Vec<_> = plan.remove.iter().map(|planned| planned.checkpoint.clone()).collect();
        if !ids.is_empty() {
            self.send(session, &[CheckpointRemoved::new(ids, "retention").into()]).await?;
        }
        let mut removed = Removed::default();
        for trim in &plan.trims {
            let base = self.compacted(session, trim).await?;
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
        query.updated_before = Some(self.clock().now().minus(threshold));
        let mut plan = DeletePlan::default();
        for info in self.store().list_all(&query).await? {
            let key = info.header.key.clone();
            match self.reason_against_deleting(&info).await? {
                Some(reason) => plan.protected.push((key, reason)),
                None => plan.delete.push(key),
            }
        }
        Ok(plan)
    }

    /// Deletes the sessions of a plan; those that came to life since stay.
    pub async fn apply_delete(&self, plan: DeletePlan) -> Result<(DeletePlan, Removed)> {
        let mut done = DeletePlan { delete: Vec::new(), protected: plan.protected };
        let mut total = Removed::default();
        for session in plan.delete {
            match self.clear_session(&session).await {
                Ok(removed) => {
                    total.frames += removed.frames;
                    total.bytes += removed.bytes;
                    done.delete.push(session);
                }
                Err(error) if *error.kind() == ErrorKind::Protected => done.protected.push((session, Reason::Leased)),
                Err(error) => return Err(error),
            }
        }
        Ok((done, total))
    }

    async fn reason_against_deleting(&self, info: &SessionInfo) -> Result<Option<Reason>> {
        if info.live_lease().is_some() {
            return Ok(Some(Reason::Leased));
        }
        let statuses: BTreeSet<Status> =
            info.branches.iter().map(|branch| branch.status_at(info.observed_at)).collect();
        if statuses.contains(&Status::Waiting) {
            return Ok(Some(Reason::Waiting));
        }
        if statuses.into_iter().any(Status::is_unfinished) {
            return Ok(Some(Reason::UnfinishedRun));
        }
        let marks = self.checkpoint_marks(&info.header.key).await?;
        for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
            let found = self.checkpoints_of(&info.header.key, &own_stretch(branch)).await?;
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
        let ends = self.batch_ends(session, &stretch).await?;
        let mut checkpoints = Vec::new();
        for mut found in self.checkpoints_of(session, &stretch).await?.into_iter().rev() {
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
                bytes_since: ends[after..].iter().map(|(_, bytes)| bytes).sum(),
                clean: found.checkpoint.clean,
                pinned: found.checkpoint.pinned,
                tags: found.checkpoint.tags,
                run: found.checkpoint.run,
                id: found.checkpoint.id,
            });
        }
        // A fork inside a batch needs the whole batch, so history before that batch may go.
        let forks = info.forks_of(&branch.branch).filter(|(fork, _)| fork.base.is_none());
        let forks =
            forks.map(|(_, seq)| ends.iter().rev().map(|(end, _)| *end).find(|end| *end <= seq).unwrap_or(Seq::ZERO));
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

    /// The last records of a stretch's batches, with their bytes, oldest first.
    async fn batch_ends(&self, session: &SessionKey, stretch: &Stretch) -> Result<Vec<(Seq, u64)>> {
        let mut ends: Vec<(Seq, u64)> = stretch.base.map(|base| (base.seq, 0)).into_iter().collect();
        let read = ReadFrames::all(session.clone(), stretch.branch.clone()).with_range(stretch.from, stretch.through);
        self.store()
            .read_pages(&read, &mut |slots| {
                ends.extend(slots.iter().filter_map(|slot| match slot {
                    Slot::Whole(frame) => Some((frame.last, frame.stored_len() as u64)),
                    Slot::Damaged(_) => None,
                }));
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(ends)
    }

    /// The base that stands for the history of a branch up to a record. Damaged history is not
    /// compacted: that would hide the damage.
    async fn compacted(&self, session: &SessionKey, trim: &Trim) -> Result<Base> {
        let info = self.open(session).await?;
        let position = Position::new(trim.branch.clone(), trim.through);
        let head = self.load(session, Some(&position)).await?.head;
        let mut records = Vec::new();
        for stretch in lineage(&info, &position)? {
            if let Some(base) = stretch.base {
                let place = Place { session, branch: &stretch.branch };
                for frame in self.read_base(session, &stretch.branch, base).await? {
                    let batch = self.codec().decode(place, &frame).map_err(|damage| damage.to_error(session))?;
                    records.extend(batch.records);
                }
            }
            records.extend(self.records_of(session, &stretch).await?);
        }
        let ends_with_checkpoint = matches!(records.last(), Some(Record::Checkpoint(_)));
        let mut records = compact(records)?;
        if !ends_with_checkpoint {
            records.iter_mut().for_each(mark_as_inexact);
        }
        self.encode_base(session, trim, head, &records)
    }

    async fn records_of(&self, session: &SessionKey, stretch: &Stretch) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let place = Place { session, branch: &stretch.branch };
        let read = ReadFrames::all(session.clone(), stretch.branch.clone()).with_range(stretch.from, stretch.through);
        self.store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    let batch: Batch = match slot {
                        Slot::Whole(frame) => self.codec().decode(place, &frame),
                        Slot::Damaged(damage) => Err(damage),
                    }
                    .map_err(|damage| damage.to_error(session))?;
                    let Batch { first, records: own, .. } = batch;
                    let count = (stretch.through.0 + 1).saturating_sub(first.0);
                    records.extend(own.into_iter().take(usize::try_from(count).unwrap_or(usize::MAX)));
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(records)
    }

    fn encode_base(&self, session: &SessionKey, trim: &Trim, head: Head, records: &[Record]) -> Result<Base> {
        let place = Place { session, branch: &trim.branch };
        let mut parts: Vec<&[Record]> = Vec::new();
        let (mut start, mut size) = (0, 0);
        for (index, record) in records.iter().enumerate() {
            size += serde_json::to_vec(record).map_or(0, |bytes| bytes.len());
            if size >= BASE_PART_BYTES || index + 1 - start >= self.codec().limits().batch_records {
                parts.push(&records[start..=index]);
                (start, size) = (index + 1, 0);
            }
        }
        if start < records.len() {
            parts.push(&records[start..]);
        }
        let frames = self.codec().encode_base(place, head, self.clock().now(), &parts)?;
        Ok(Base { head, frames })
    }
}

/// A checkpoint that stays in a base only to be named as the last one: the base stands for a
/// later position, so it can no longer be gone back to.
fn mark_as_inexact(record: &mut Record) {
    if let Record::Checkpoint(checkpoint) = record {
        checkpoint.extra.insert(INEXACT.into(), true.into());
    }
}

fn own_stretch(branch: &BranchInfo) -> Stretch {
    let from = branch.base.map_or(branch.first_own(), |base| base.seq.next());
    Stretch { branch: branch.branch.clone(), base: branch.base, from, through: branch.head.seq }
}

impl DeletePlan {
    /// How many sessions stay for each reason.
    pub fn protected_counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for (_, reason) in &self.protected {
            *counts.entry(reason.to_string()).or_default() += 1;
        }
        counts
    }
}
