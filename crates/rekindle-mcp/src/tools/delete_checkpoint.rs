//! `delete_checkpoint`.

use rekindle::{CheckpointId, Result, operations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct DeleteCheckpoint;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The checkpoint.
    #[serde(alias = "checkpointId")]
    checkpoint_id: String,
    /// Only says whether it could be deleted.
    #[serde(default, alias = "dryRun")]
    dry_run: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The checkpoint.
    checkpoint_id: String,
    /// Whether it was deleted; not in a dry run.
    deleted: bool,
}

impl Tool for DeleteCheckpoint {
    const NAME: &'static str = "delete_checkpoint";
    const TITLE: &'static str = "Delete a checkpoint";
    const DESCRIPTION: &'static str = "Deletes a checkpoint of a session. Those that something depends on are refused: \
        the newest, pinned ones, ones that were forked from.";
    const EFFECT: Effect = Effect::Ends;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let id = CheckpointId::new(&*args.checkpoint_id)?;
        operations::delete_checkpoints(&core.engine, &session, &[id], args.dry_run).await?;
        let Args { session_id, checkpoint_id, dry_run } = args;
        Ok(Output { session_id, checkpoint_id, deleted: !dry_run }.into())
    }
}
