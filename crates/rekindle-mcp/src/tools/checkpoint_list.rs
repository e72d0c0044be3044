//! `checkpoint_list`.

use rekindle::core::CheckpointInfo;
use rekindle::operations::{self, HistoryOptions};
use rekindle::{CheckpointId, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{blank_is_none, page, time};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct CheckpointList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
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
    checkpoints: Vec<Line>,
    /// How to go on, if there are more.
    next_cursor: Option<String>,
}

/// A checkpoint in short.
#[derive(Serialize, JsonSchema)]
struct Line {
    /// Its id.
    checkpoint_id: String,
    /// Its number.
    step: u64,
    /// Its name for people.
    description: String,
    /// When it was made.
    created_at: String,
}

impl From<&CheckpointInfo> for Line {
    fn from(info: &CheckpointInfo) -> Self {
        Self {
            checkpoint_id: info.checkpoint.id.to_string(),
            step: info.checkpoint.step,
            description: info.checkpoint.description.clone(),
            created_at: time(info.created_at),
        }
    }
}

impl Tool for CheckpointList {
    const NAME: &'static str = "checkpoint_list";
    const TITLE: &'static str = "List checkpoints";
    const DESCRIPTION: &'static str = "Lists the checkpoints of a session, newest first: id, step, \
        description and time. `list_session_checkpoints` says more of each.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let before = args.cursor.map(CheckpointId::new).transpose()?;
        let options = HistoryOptions { before, limit: page(args.limit, 50), ..HistoryOptions::default() };
        let found = operations::history(&core.engine, &session, &options).await?;
        let checkpoints = found.checkpoints.iter().map(Line::from).collect();
        let next_cursor = found.next.map(|id| id.to_string());
        Ok(Output { session_id: args.session_id, checkpoints, next_cursor }.into())
    }
}
