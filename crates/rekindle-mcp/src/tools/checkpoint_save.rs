//! `checkpoint_save`.

use rekindle::operations::Saved;
use rekindle::{Json, Result, operations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct CheckpointSave;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session; it is made if it is not there.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The state to save, any JSON object. Whole numbers keep up to 64 bits; longer ones belong into texts.
    state: Map<String, Value>,
    /// A name for people.
    #[serde(default)]
    description: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The checkpoint; `checkpoint_load` gives its state back.
    checkpoint_id: String,
    /// Its number: one more than the checkpoint before it has.
    step: u64,
    /// The keys whose values were left out: secrets are never stored. Keep them elsewhere.
    left_out: Vec<String>,
}

impl Tool for CheckpointSave {
    const NAME: &'static str = "checkpoint_save";
    const TITLE: &'static str = "Save a checkpoint";
    const DESCRIPTION: &'static str = "Saves your own state durably, as the next checkpoint of a session. \
        `checkpoint_load` gives it back unchanged, after any crash; values of keys such as `api_key` are left out and named.";
    const EFFECT: Effect = Effect::Adds;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let description = args.description.unwrap_or_default();
        let state = Json::of(&args.state)?;
        let saved = operations::save_state(&core.engine, &session, &state, &description, &core.author).await?;
        let checkpoint_id = saved.checkpoint.to_string();
        let Saved { step, left_out, .. } = saved;
        Ok(Output { session_id: args.session_id, checkpoint_id, step, left_out }.into())
    }
}
