//! `list_session_checkpoints`.

use rekindle::core::CheckpointInfo;
use rekindle::operations::{self, HistoryOptions};
use rekindle::{CheckpointId, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{CheckpointView, blank_is_none, checkpoint_type, page};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct ListSessionCheckpoints;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// Only checkpoints of this type, e.g. `node_complete`.
    #[serde(default, alias = "checkpointType", deserialize_with = "blank_is_none")]
    checkpoint_type: Option<String>,
    /// Only checkpoints before which nothing failed.
    #[serde(default, alias = "cleanOnly")]
    clean_only: bool,
    /// How many at most; 50 if left out, 100 at most.
    #[serde(default)]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default, deserialize_with = "blank_is_none")]
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The checkpoints, newest first.
    checkpoints: Vec<CheckpointView>,
    /// How to go on, if there are more.
    next_cursor: Option<String>,
}

impl Tool for ListSessionCheckpoints {
    const NAME: &'static str = "list_session_checkpoints";
    const TITLE: &'static str = "List the checkpoints of a session";
    const DESCRIPTION: &'static str = "Lists the checkpoints that lead to where a session stands, newest first. \
        `inspect_checkpoint` shows one, `resume_session` and `fork_session` go on from one.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let kind = args.checkpoint_type.as_deref().map(checkpoint_type).transpose()?;
        let before = args.cursor.map(CheckpointId::new).transpose()?;
        let options = HistoryOptions { before, limit: page(args.limit, 50), ..HistoryOptions::default() };
        let keep = |found: &CheckpointInfo| {
            kind.is_none_or(|kind| found.checkpoint.kind == kind) && (!args.clean_only || found.checkpoint.clean)
        };
        let found = operations::history_where(&core.engine, &session, &options, keep).await?;
        let checkpoints = found.checkpoints.iter().map(CheckpointView::from).collect();
        let next_cursor = found.next.map(|id| id.to_string());
        Ok(Output { session_id: args.session_id, checkpoints, next_cursor }.into())
    }
}
