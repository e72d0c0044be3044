//! Which moment of a session is meant.

use rekindle_core::{BranchId, CheckpointId, Error, Position, Restored, Result, SessionInfo, SessionKey};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// A moment in a session's history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The end of the current branch.
    #[default]
    Latest,
    /// The end of a branch.
    Head(BranchId),
    /// A checkpoint.
    Checkpoint(CheckpointId),
    /// A position.
    Position(Position),
    /// The newest checkpoint after a step, on the current branch.
    Step(u64),
}

impl At {
    /// The session as it is now, and the position this stands for in it.
    pub(super) async fn locate(&self, engine: &Engine, session: &SessionKey) -> Result<(SessionInfo, Position)> {
        let journal = engine.journal();
        let info = journal.open(session).await?;
        let position = match self {
            Self::Latest => head_of(&info, &info.current)?,
            Self::Head(branch) => head_of(&info, branch)?,
            Self::Checkpoint(id) => Box::pin(journal.checkpoint_opened(&info, id)).await?.position,
            Self::Position(position) => position.clone(),
            Self::Step(step) => Box::pin(journal.checkpoint_at_step_opened(&info, None, *step)).await?.position,
        };
        if position.branch.is_inbox() {
            return Err(Error::invalid("the inbox is not a line of history")
                .on(session)
                .at(position)
                .hint("read its records instead, or name another branch"));
        }
        Ok((info, position))
    }

    /// The state there, for somebody who looks.
    pub(super) async fn load(&self, engine: &Engine, session: &SessionKey) -> Result<Restored> {
        let (info, position) = self.locate(engine, session).await?;
        engine.journal().recall(info, Some(&position)).await
    }
}

/// The end of a branch.
pub(super) fn head_of(info: &SessionInfo, branch: &BranchId) -> Result<Position> {
    Ok(Position::new(branch.clone(), info.branch(branch)?.head.seq))
}
