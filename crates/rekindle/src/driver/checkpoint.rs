//! Checkpoints made by a run.

use rekindle_core::record::{Checkpoint, CheckpointSource, CheckpointTrigger, CheckpointType};
use rekindle_core::{CheckpointId, Result};

use super::{Core, Driver};

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

    pub(super) fn stage_checkpoint_in(&self, core: &mut Core, new: NewCheckpoint) -> Result<CheckpointId> {
        core.stage_ledger()?;
        core.count_time();
        let id = CheckpointId::generate(self.engine().journal().ids(), self.now());
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
