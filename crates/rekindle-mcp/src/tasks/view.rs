//! A run as clients see it: as a task of the protocol, and as the result of a tool.

use rekindle::core::queue::JobState;
use rekindle::core::record::WaitKind;
use rekindle::operations::{RunPhase, RunProgress, WaitView};
use rekindle::{Error, ErrorKind};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{TaskId, input};
use crate::tools::structured;

/// How often clients should ask.
const POLL_MILLIS: u64 = 1_000;

/// A run as the result of a tool.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunView {
    /// The session.
    session_id: String,
    /// The run.
    run_id: String,
    /// The run and its session in one: the id of its task.
    task_id: String,
    /// The last run that went on from it.
    latest_run_id: String,
    /// What it is doing.
    status: RunStatus,
    /// The same in words, with the reason.
    status_message: String,
    /// What it came to: the text of an agent, the results of a plan's steps, the memory of a graph.
    answer: Option<Value>,
    /// What it waits for; answer it with `answer_wait`.
    waits: Vec<RunWait>,
    /// The code of the error, if it failed.
    error_code: Option<String>,
    /// When it began, or was asked for.
    created_at: String,
    /// When it last changed.
    updated_at: String,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RunStatus {
    /// It has not begun.
    Queued,
    /// It works, or a worker is about to go on with it.
    Working,
    /// It waits for an answer.
    Waiting,
    /// Its process died, and nobody has gone on with it yet.
    Interrupted,
    /// It was stopped, and can be resumed.
    Paused,
    /// No worker goes on with it until somebody does something about the reason.
    Held,
    /// It came to its end.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// Something a run waits for.
#[derive(Debug, Serialize, JsonSchema)]
struct RunWait {
    /// The wait.
    wait_id: String,
    /// `approval`, `question`, `signal` or `timer`.
    kind: String,
    /// What is asked.
    prompt: String,
    /// The arguments of the call to approve.
    arguments: Option<Value>,
    /// What an approval must name: the digest of those arguments.
    digest: Option<String>,
    /// The schema of the answer; of an approval, that of the arguments.
    schema: Option<Value>,
}

impl From<RunPhase> for RunStatus {
    fn from(phase: RunPhase) -> Self {
        match phase {
            RunPhase::Queued => Self::Queued,
            RunPhase::Working => Self::Working,
            RunPhase::Waiting => Self::Waiting,
            RunPhase::Interrupted => Self::Interrupted,
            RunPhase::Paused => Self::Paused,
            RunPhase::Held => Self::Held,
            RunPhase::Succeeded => Self::Succeeded,
            RunPhase::Failed => Self::Failed,
            RunPhase::Cancelled => Self::Cancelled,
        }
    }
}

impl From<&RunProgress> for RunView {
    fn from(progress: &RunProgress) -> Self {
        Self {
            session_id: progress.session.id.to_string(),
            run_id: progress.run.to_string(),
            task_id: task_id(progress),
            latest_run_id: progress.latest.to_string(),
            status: progress.phase.into(),
            status_message: message(progress),
            answer: progress.answer.as_ref().and_then(|answer| answer.to_value().ok()),
            waits: progress.waits.iter().map(RunWait::from).collect(),
            error_code: progress.code.clone(),
            created_at: progress.started_at.to_string(),
            updated_at: progress.updated_at.to_string(),
        }
    }
}

impl From<&WaitView> for RunWait {
    fn from(wait: &WaitView) -> Self {
        let value = |json: &Option<rekindle::Json>| json.as_ref().and_then(|json| json.to_value().ok());
        Self {
            wait_id: wait.opened.wait.to_string(),
            kind: kind(wait.opened.kind).to_owned(),
            prompt: wait.opened.prompt.clone(),
            arguments: value(&wait.opened.arguments),
            digest: wait.approve_digest.map(|digest| digest.to_string()),
            schema: value(&wait.opened.schema),
        }
    }
}

fn kind(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Approval => "approval",
        WaitKind::Question => "question",
        WaitKind::Signal => "signal",
        WaitKind::Timer => "timer",
    }
}

fn task_id(progress: &RunProgress) -> String {
    TaskId { run: progress.run.clone(), session: progress.session.id.clone() }.to_string()
}

/// What a run is doing, in words.
fn message(progress: &RunProgress) -> String {
    let what = match progress.phase {
        _ if progress.cancelling && !progress.phase.is_over() => "it was asked to stop, and has not stopped yet",
        RunPhase::Queued => "it waits for a worker to begin with it",
        RunPhase::Working => "it works",
        RunPhase::Waiting => "it waits for an answer",
        RunPhase::Interrupted => "it was cut off; the next worker goes on with it",
        RunPhase::Paused if is_ready(progress) => "it is paused; the next worker goes on with it",
        RunPhase::Paused => "it is paused; `resume_session` goes on with it",
        RunPhase::Held => "no worker goes on with it until the reason is gone",
        RunPhase::Succeeded => "it came to its end",
        RunPhase::Failed => "it failed; `resume_session` tries again from where it was",
        RunPhase::Cancelled => "it was cancelled",
    };
    match progress.reason.as_str() {
        "" => what.to_owned(),
        reason => format!("{what}: {reason}"),
    }
}

/// Whether the next worker takes it, without anybody doing anything.
fn is_ready(progress: &RunProgress) -> bool {
    progress.job.as_ref().is_some_and(|view| view.state == JobState::Ready)
}

/// A run as a task, without what came of it.
pub(super) fn task(progress: &RunProgress) -> Task {
    let (created, updated) = (progress.started_at.to_string(), progress.updated_at.to_string());
    let task = Task::new(task_id(progress), status(progress), created, updated).with_status_message(message(progress));
    if progress.phase.is_over() { task } else { task.with_poll_interval_ms(POLL_MILLIS) }
}

fn status(progress: &RunProgress) -> TaskStatus {
    match progress.phase {
        RunPhase::Failed if is_ours(progress) => TaskStatus::Failed,
        RunPhase::Succeeded | RunPhase::Failed => TaskStatus::Completed,
        RunPhase::Cancelled => TaskStatus::Cancelled,
        RunPhase::Waiting if input::can_be_answered(progress) => TaskStatus::InputRequired,
        _ => TaskStatus::Working,
    }
}

/// Whether a run failed for a reason of this side, not of the work: what is stored cannot be read or
/// written.
fn is_ours(progress: &RunProgress) -> bool {
    let ours = [ErrorKind::Corrupt, ErrorKind::PersistFailed];
    let codes = ours.map(|kind| Error::new(kind, "").code());
    progress.code.as_deref().is_some_and(|code| codes.contains(&code))
}

fn failure(progress: &RunProgress) -> ErrorData {
    ErrorData::internal_error(progress.reason.clone(), Some(json!({ "code": progress.code })))
}

/// A run as a task, with what came of it. A run that failed is a call that failed, not a failure of
/// the protocol.
pub(super) fn detailed(progress: &RunProgress) -> Result<DetailedTask, ErrorData> {
    let payload = match status(progress) {
        TaskStatus::Completed => TaskPayload::Completed { result: object(&result(progress)?)? },
        TaskStatus::Failed => TaskPayload::Failed { error: object(&failure(progress))? },
        TaskStatus::Cancelled => TaskPayload::Cancelled,
        TaskStatus::InputRequired => TaskPayload::InputRequired { input_requests: input::requests(progress) },
        _ => TaskPayload::Working,
    };
    Ok(DetailedTask::new(task(progress), payload))
}

/// What the call came to that began the run.
fn result(progress: &RunProgress) -> Result<CallToolResult, ErrorData> {
    if progress.phase != RunPhase::Failed {
        return structured(&RunView::from(progress));
    }
    Ok(CallToolResult::structured_error(json!({
        "code": progress.code,
        "kind": "RunFailed",
        "message": progress.reason,
        "hint": "`resume_session` goes on from where it was",
        "retryable": false,
        "session_id": progress.session.id.as_str(),
        "run_id": progress.run.as_str(),
    })))
}

fn object(result: &impl Serialize) -> Result<JsonObject, ErrorData> {
    match serde_json::to_value(result) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(ErrorData::internal_error("the result cannot be written as JSON", None)),
    }
}
