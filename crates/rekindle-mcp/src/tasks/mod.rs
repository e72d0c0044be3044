//! Runs as tasks: a task is a run, and everything said of it comes from the journal. Nothing is kept
//! here, so a task is the same whichever server is asked, before and after its death.

mod id;
mod input;
mod view;

use rekindle::operations::{self, ControlOptions, Enqueue, RunProgress, WaitView};
use rekindle::{Error, ErrorKind, RunId, SessionKey};
use rmcp::ErrorData;
use rmcp::model::{CancelTaskParams, CreateTaskResult, GetTaskParams, GetTaskResult, InputResponses, UpdateTaskParams};
use serde_json::Value;

pub(crate) use id::TaskId;
pub(crate) use view::RunView;

use crate::error::{described, protocol_error};
use crate::server::Core;

/// What a task is doing.
pub(crate) async fn get(core: &Core, params: GetTaskParams) -> Result<GetTaskResult, ErrorData> {
    let (session, run) = named(core, &params.task_id)?;
    let progress = operations::run(&core.engine, &session, &run).await;
    let progress = progress.map_err(|error| task_error(&params.task_id, &error))?;
    Ok(GetTaskResult::new(view::detailed(&progress)?))
}

/// Answers what a task waits for. Answers to what it does not wait for, or not any more, are passed
/// over, as the protocol says.
pub(crate) async fn update(core: &Core, params: UpdateTaskParams) -> Result<(), ErrorData> {
    check_writable(core)?;
    let (session, run) = named(core, &params.task_id)?;
    let progress = operations::run(&core.engine, &session, &run).await;
    let progress = progress.map_err(|error| task_error(&params.task_id, &error))?;
    answer_all(core, &progress, &params.input_responses).await
}

async fn answer_all(core: &Core, progress: &RunProgress, responses: &InputResponses) -> Result<(), ErrorData> {
    let (mut answered, mut refused) = (false, None);
    for wait in &progress.waits {
        let Some(response) = responses.get(&input::key(wait)) else { continue };
        match answer_one(core, &progress.session, wait, response).await {
            Ok(given) => answered |= given,
            // Those that can be given are: the run goes on with them.
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    if answered {
        go_on(core, &progress.session).await.map_err(|error| protocol_error(&error))?;
    }
    refused.map_or(Ok(()), Err)
}

/// Gives one answer; whether it counts.
async fn answer_one(core: &Core, session: &SessionKey, wait: &WaitView, response: &Value) -> Result<bool, ErrorData> {
    let Some(answer) = input::answer(wait, response, &core.identity)? else { return Ok(false) };
    match operations::answer(&core.engine, session, &answer).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::WaitClosed | ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(protocol_error(&error)),
    }
}

/// Has workers look at a session whose wait was answered: it may be that none had it.
async fn go_on(core: &Core, session: &SessionKey) -> rekindle::Result<()> {
    match operations::enqueue(&core.engine, &Enqueue::existing(session.clone(), &core.author)).await {
        // Somebody was quicker.
        Err(error) if *error.kind() == ErrorKind::NotResumable => Ok(()),
        enqueued => enqueued.map(drop),
    }
}

/// Ends a task for good.
pub(crate) async fn cancel(core: &Core, params: CancelTaskParams) -> Result<(), ErrorData> {
    check_writable(core)?;
    let (session, run) = named(core, &params.task_id)?;
    let options = ControlOptions::new(&core.author, "the task was cancelled");
    let cancelled = operations::cancel_run(&core.engine, &session, &run, &options).await;
    cancelled.map(drop).map_err(|error| task_error(&params.task_id, &error))
}

/// A run as the task that stands for it.
pub(crate) fn created(progress: &RunProgress) -> CreateTaskResult {
    CreateTaskResult::new(view::task(progress))
}

fn check_writable(core: &Core) -> Result<(), ErrorData> {
    match core.read_only {
        true => Err(ErrorData::invalid_request("this server is read-only; it changes and runs nothing", None)),
        false => Ok(()),
    }
}

fn named(core: &Core, task: &str) -> Result<(SessionKey, RunId), ErrorData> {
    let parsed = task.parse::<TaskId>().and_then(|id| Ok((core.key(id.session.as_str())?, id.run)));
    parsed.map_err(|error| task_error(task, &error))
}

/// What the protocol wants said about a task that is not there.
fn task_error(task: &str, error: &Error) -> ErrorData {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Invalid => {
            let shown: String = task.chars().take(100).collect();
            ErrorData::invalid_params(format!("unknown task `{shown}`"), Some(described(error)))
        }
        _ => protocol_error(error),
    }
}
