//! `checkpoint_load`.

use rekindle::{CheckpointId, Json, Result, operations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{blank_is_none, time};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct CheckpointLoad;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The checkpoint; the latest if left out.
    #[serde(default, alias = "checkpointId", deserialize_with = "blank_is_none")]
    checkpoint_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The checkpoint.
    checkpoint_id: String,
    /// Its number.
    step: u64,
    /// When it was made.
    created_at: String,
    /// Its name for people.
    description: String,
    /// The state, as it was saved.
    #[schemars(with = "Map<String, Value>")]
    state: Json,
}

impl Tool for CheckpointLoad {
    const NAME: &'static str = "checkpoint_load";
    const TITLE: &'static str = "Load a checkpoint";
    const DESCRIPTION: &'static str =
        "Gives back the state that `checkpoint_save` saved: the latest of a session, or that of one checkpoint.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let id = args.checkpoint_id.map(CheckpointId::new).transpose()?;
        let found = operations::saved_state(&core.engine, &session, id.as_ref()).await?;
        let checkpoint = &found.checkpoint.checkpoint;
        Ok(Output {
            session_id: args.session_id,
            checkpoint_id: checkpoint.id.to_string(),
            step: checkpoint.step,
            created_at: time(found.checkpoint.created_at),
            description: checkpoint.description.clone(),
            state: found.state,
        }
        .into())
    }
}
