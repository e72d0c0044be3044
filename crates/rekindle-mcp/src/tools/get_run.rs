//! `get_run`.

use rekindle::{Error, Result, RunId, operations};
use schemars::JsonSchema;
use serde::Deserialize;

use super::fields::blank_is_none;
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;
use crate::tasks::{RunView, TaskId};

pub(super) struct GetRun;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The run, or the id of its task.
    #[serde(alias = "runId", alias = "task_id", alias = "taskId")]
    run_id: String,
    /// The session; may be left out with the id of a task.
    #[serde(default, alias = "sessionId", deserialize_with = "blank_is_none")]
    session_id: Option<String>,
}

impl Tool for GetRun {
    const NAME: &'static str = "get_run";
    const TITLE: &'static str = "Look at a run";
    const DESCRIPTION: &'static str = "Tells what a run is doing, what it waits for, and what came of it. Ask again \
        until its status is `succeeded`, `failed` or `cancelled`, or until it waits for you.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = RunView;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<RunView>> {
        let (session, run) = match args.session_id {
            Some(session) => (core.key(&session)?, RunId::new(&args.run_id)?),
            None => {
                let id: TaskId = args.run_id.parse().map_err(|error: Error| {
                    error.hint("give `session_id` too, or the `task_id` instead of the `run_id`")
                })?;
                (core.key(id.session.as_str())?, id.run)
            }
        };
        let progress = operations::run(&core.engine, &session, &run).await?;
        Ok(RunView::from(&progress).into())
    }
}
