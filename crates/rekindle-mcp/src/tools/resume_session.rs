//! `resume_session`.

use std::collections::BTreeMap;

use rekindle::message::Message;
use rekindle::operations::{self, GoOn, JobInput};
use rekindle::{CheckpointId, Json, Result, RunId};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::fields::blank_is_none;
use super::run_agent::answer;
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;
use crate::tasks::RunView;

pub(super) struct ResumeSession;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// Go on from this checkpoint, on a new branch; nothing of the old one is lost. From where the
    /// session is if left out.
    #[serde(default, alias = "checkpointId", deserialize_with = "blank_is_none")]
    checkpoint_id: Option<String>,
    /// Keys of the session's memory that are set first.
    #[serde(default, alias = "memoryModifications", deserialize_with = "memory")]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    memory_modifications: BTreeMap<String, Json>,
    /// What is said to it. Left out, it goes on with what is unfinished.
    #[serde(default, deserialize_with = "blank_is_none")]
    message: Option<String>,
}

/// An object, or a text that holds one as JSON.
fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Json>, D::Error> {
    let object = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(BTreeMap::new()),
        Value::String(text) if text.trim().is_empty() => return Ok(BTreeMap::new()),
        Value::String(text) => serde_json::from_str::<Map<String, Value>>(&text).map_err(Error::custom)?,
        Value::Object(object) => object,
        other => return Err(Error::custom(format!("expected an object, and this is {other}"))),
    };
    Ok(object.into_iter().map(|(key, value)| (key, Json::from(value))).collect())
}

impl Tool for ResumeSession {
    const NAME: &'static str = "resume_session";
    const TITLE: &'static str = "Resume a session";
    const DESCRIPTION: &'static str = "Goes on with a session where it stopped: after a crash, a pause, a failure, or \
        from an earlier checkpoint with other memory. What was done is not done again. Gives a task or, to clients \
        without tasks, the `run_id` to ask `get_run` about.";
    const EFFECT: Effect = Effect::Runs;
    type Args = Args;
    type Output = RunView;

    async fn call(core: &Core, args: Args, caller: Caller) -> Result<Answer<RunView>> {
        let journal = core.engine.journal();
        let wanted = GoOn {
            checkpoint: args.checkpoint_id.map(CheckpointId::new).transpose()?,
            set: args.memory_modifications,
            input: args.message.map(|text| JobInput::Message(Message::user(text))),
            run: Some(RunId::generate(journal.ids(), journal.clock().now())),
            ..GoOn::new(core.key(&args.session_id)?, &core.author)
        };
        let going_on = operations::go_on(&core.engine, &wanted).await?;
        answer(core, &wanted.session, &going_on.job, caller).await
    }
}
