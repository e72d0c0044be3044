//! Checkpoints made by a run.

use std::collections::{HashSet, VecDeque};

use rekindle_core::record::{Checkpoint, CheckpointRemoved, CheckpointSource, CheckpointTrigger, CheckpointType};
use rekindle_core::{CheckpointId, Position, Record, Result};

use super::{Core, Driver};
use crate::event::LiveKind;

/// What a new checkpoint says; the rest the driver knows.
#[derive(Clone, Debug, Default)]
pub struct NewCheckpoint {
    /// What kind of moment it marks.
    pub kind: CheckpointType,
    /// What brought it about.
    pub source: CheckpointSource,
    /// Who asked for it.
    pub trigger: CheckpointTrigger,
    /// The number of the step it follows.
    pub step: u64,
    /// For people.
    pub description: String,
    /// Whether a run may be resumed from here; it may unless this says otherwise.
    pub not_resumable: bool,
    /// The node of a graph it is about.
    pub node: Option<String>,
    /// What comes after that node.
    pub next: Vec<String>,
    /// For filters and retention.
    pub tags: Vec<String>,
    /// Whether it may go when the run has made more than it wants to keep.
    pub passing: bool,
}

impl NewCheckpoint {
    /// A checkpoint somebody asked for.
    pub fn manual(description: impl Into<String>) -> Self {
        Self {
            kind: CheckpointType::UserCheckpoint,
            trigger: CheckpointTrigger::Manual,
            description: description.into(),
            ..Self::default()
        }
    }

    /// An automatic one.
    pub fn auto(kind: CheckpointType, step: u64, description: impl Into<String>) -> Self {
        Self { kind, step, description: description.into(), ..Self::default() }
    }
}

impl Driver {
    /// Marks the current position, on disk when it returns if the run is `sync`.
    pub async fn checkpoint(&self, new: NewCheckpoint) -> Result<CheckpointId> {
        let mut core = self.shared.core.lock().await;
        let id = self.stage_checkpoint_in(&mut core, new)?;
        self.write(&mut core).await?;
        Ok(id)
    }

    /// Marks the position of the next commit.
    pub async fn stage_checkpoint(&self, new: NewCheckpoint) -> Result<CheckpointId> {
        let mut core = self.shared.core.lock().await;
        self.stage_checkpoint_in(&mut core, new)
    }

    /// Commits records with marks behind them, as one atomic batch.
    pub(crate) async fn commit_marked(&self, records: Vec<Record>, checkpoints: Vec<NewCheckpoint>) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.make_room(&mut core, &records).await?;
        core.stage(records)?;
        for checkpoint in checkpoints {
            self.stage_checkpoint_in(&mut core, checkpoint)?;
        }
        self.write(&mut core).await
    }

    /// Lets go of the oldest passing marks of this run but the newest `keep`. Their positions stay
    /// until retention trims them.
    pub(crate) async fn drop_surplus(&self, keep: usize) {
        let surplus: Vec<(CheckpointId, bool)> = {
            let mut core = self.shared.core.lock().await;
            let surplus = core.passing.len().saturating_sub(keep);
            core.passing.drain(..surplus).collect()
        };
        self.unmark(surplus).await;
    }

    /// Lets go of the passing marks after something failed.
    pub(crate) async fn drop_unclean(&self) {
        let unclean: Vec<(CheckpointId, bool)> = {
            let mut core = self.shared.core.lock().await;
            let (clean, unclean): (VecDeque<_>, VecDeque<_>) = core.passing.drain(..).partition(|(_, clean)| *clean);
            core.passing = clean;
            unclean.into()
        };
        self.unmark(unclean).await;
    }

    /// That marks cannot be taken away is no reason for a run to end: it is tried again later.
    async fn unmark(&self, marks: Vec<(CheckpointId, bool)>) {
        if marks.is_empty() {
            return;
        }
        let ids = marks.iter().map(|(id, _)| id.clone()).collect();
        let removed = CheckpointRemoved::new(ids, CheckpointRemoved::SURPLUS);
        if let Err(error) = self.engine().journal().send(self.session(), &[removed.into()]).await {
            let mut core = self.shared.core.lock().await;
            marks.into_iter().rev().for_each(|mark| core.passing.push_front(mark));
            self.say(|| LiveKind::Notice(format!("checkpoints could not be taken away: {error}")));
        }
    }

    /// Takes note of the passing marks that runs before this one left, about `most` of them. The
    /// newest of each run stays.
    pub(crate) async fn know_marks(&self, most: usize) {
        if let Err(error) = self.look_at_marks(most).await {
            self.say(|| LiveKind::Notice(format!("earlier checkpoints could not be looked at: {error}")));
        }
    }

    async fn look_at_marks(&self, most: usize) -> Result<()> {
        if most == 0 || self.shared.continues.is_none() && self.read(|state| state.checkpoint().is_none()).await {
            return Ok(());
        }
        let wanted = most.saturating_mul(2).saturating_add(64);
        let position = Position::new(self.branch().clone(), self.shared.lease.head.seq);
        let known = self.engine().journal().checkpoints(self.session(), Some(&position), None, wanted).await?;
        let mut runs = HashSet::new();
        let mut passing = VecDeque::new();
        for info in known {
            let newest = runs.insert(info.checkpoint.run.clone());
            if !newest && is_passing(&info.checkpoint) && info.position.branch == *self.branch() {
                passing.push_front((info.checkpoint.id, info.checkpoint.clean));
            }
        }
        self.shared.core.lock().await.passing = passing;
        Ok(())
    }

    pub(super) fn stage_checkpoint_in(&self, core: &mut Core, new: NewCheckpoint) -> Result<CheckpointId> {
        core.stage_ledger()?;
        core.count_time();
        let id = CheckpointId::generate(self.engine().journal().ids(), self.now());
        core.clean &= new.trigger != CheckpointTrigger::Error;
        let fingerprint = core.state.run().and_then(|run| run.started.fingerprint);
        let checkpoint = Checkpoint {
            parent: core.last_checkpoint.replace(id.clone()),
            source: new.source,
            trigger: new.trigger,
            kind: new.kind,
            step: new.step,
            description: new.description,
            run: Some(self.run().clone()),
            active_micros: core.ledger.session.active_micros,
            usage: core.ledger.session.usage(),
            clean: core.clean,
            resumable: !new.not_resumable,
            fingerprint,
            node: new.node,
            next: new.next,
            tags: new.tags,
            ..Checkpoint::new(id.clone())
        };
        core.stage(vec![checkpoint.into()])?;
        if new.passing {
            let clean = core.clean;
            core.passing.push_back((id.clone(), clean));
        }
        Ok(id)
    }

    /// Something failed: later checkpoints of this run are not clean.
    pub async fn mark_unclean(&self) {
        self.shared.core.lock().await.clean = false;
    }

    /// How much the state has grown since this was last asked.
    pub(crate) async fn take_growth(&self) -> usize {
        std::mem::take(&mut self.shared.core.lock().await.bytes_since_step)
    }
}

/// Whether a mark may go when there are too many.
fn is_passing(checkpoint: &Checkpoint) -> bool {
    let kind = matches!(
        checkpoint.kind,
        CheckpointType::NodeStart
            | CheckpointType::NodeComplete
            | CheckpointType::EdgeTransition
            | CheckpointType::LoopIteration
    );
    kind && checkpoint.trigger == CheckpointTrigger::Auto && !checkpoint.pinned && checkpoint.tags.is_empty()
}
