//! `fork_session`.

use rekindle::operations::{self, ForkOptions};
use rekindle::{BranchId, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{PositionView, blank_is_none, memory_changes, moment, object_or_text};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct ForkSession;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// Where the new branch begins; where the session stands if left out.
    #[serde(default, alias = "checkpointId", deserialize_with = "blank_is_none")]
    checkpoint_id: Option<String>,
    /// The name of the new branch; generated if left out. The same name again gives the same branch.
    #[serde(default, deserialize_with = "blank_is_none")]
    branch: Option<String>,
    /// Keys of the memory to set on the new branch, with their values.
    #[serde(default, alias = "memoryModifications", deserialize_with = "object_or_text")]
    memory_modifications: Map<String, Value>,
    /// Why, for people.
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The new branch.
    branch: String,
    /// Where it begins.
    forked_from: PositionView,
    /// Where it ends.
    position: PositionView,
    /// The checkpoint that marks what was changed on it.
    checkpoint_id: Option<String>,
}

impl Tool for ForkSession {
    const NAME: &'static str = "fork_session";
    const TITLE: &'static str = "Fork a session";
    const DESCRIPTION: &'static str = "Starts another branch of a session at a checkpoint, with another memory if you \
        say so. Nothing is copied and nothing of the old branch is lost; who runs it is not disturbed.";
    const EFFECT: Effect = Effect::Adds;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let options = ForkOptions {
            branch: args.branch.map(BranchId::new).transpose()?,
            edits: memory_changes(args.memory_modifications),
            author: core.author.clone(),
            reason: args.reason.unwrap_or_default(),
        };
        let forked = operations::fork(&core.engine, &session, &moment(args.checkpoint_id)?, options).await?;
        Ok(Output {
            session_id: args.session_id,
            branch: forked.branch.to_string(),
            forked_from: (&forked.from).into(),
            position: (&forked.position).into(),
            checkpoint_id: forked.checkpoint.map(|id| id.to_string()),
        }
        .into())
    }
}
