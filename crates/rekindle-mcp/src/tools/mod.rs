//! The tools: one file for each, with the types of its arguments and of its result. A tool calls one
//! operation and puts what comes of it into words; it decides nothing.

mod answer_wait;
mod cancel_session;
pub(crate) mod catalogue;
mod checkpoint_list;
mod checkpoint_load;
mod checkpoint_save;
mod delete_checkpoint;
mod diff_checkpoints;
mod fields;
mod fork_session;
mod get_run;
mod inspect_checkpoint;
mod list_resumable_sessions;
mod list_session_checkpoints;
mod resume_session;
mod run_agent;

use std::future::Future;

use rekindle::Result;
use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CreateTaskResult};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use catalogue::Entry;
pub(crate) use catalogue::{Catalogue, structured};

use crate::server::Core;

/// Every tool there is, in the order clients see them.
fn all() -> Vec<Entry> {
    vec![
        Entry::of::<list_resumable_sessions::ListResumableSessions>(),
        Entry::of::<list_session_checkpoints::ListSessionCheckpoints>(),
        Entry::of::<resume_session::ResumeSession>(),
        Entry::of::<run_agent::RunAgent>(),
        Entry::of::<get_run::GetRun>(),
        Entry::of::<inspect_checkpoint::InspectCheckpoint>(),
        Entry::of::<diff_checkpoints::DiffCheckpoints>(),
        Entry::of::<fork_session::ForkSession>(),
        Entry::of::<cancel_session::CancelSession>(),
        Entry::of::<answer_wait::AnswerWait>(),
        Entry::of::<delete_checkpoint::DeleteCheckpoint>(),
        Entry::of::<checkpoint_save::CheckpointSave>(),
        Entry::of::<checkpoint_load::CheckpointLoad>(),
        Entry::of::<checkpoint_list::CheckpointList>(),
    ]
}

/// A tool.
pub(crate) trait Tool: 'static {
    /// Its name in the protocol.
    const NAME: &'static str;
    /// Its name for people.
    const TITLE: &'static str;
    /// What it does, for models.
    const DESCRIPTION: &'static str;
    /// What it does to sessions.
    const EFFECT: Effect;
    /// Whether it is there only where something can be started by name.
    const NEEDS_AGENTS: bool = false;
    /// What it is called with.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// What it gives.
    type Output: Serialize + JsonSchema + Send + 'static;

    /// Carries it out.
    fn call(core: &Core, args: Self::Args, caller: Caller)
    -> impl Future<Output = Result<Answer<Self::Output>>> + Send;
}

/// What a tool does to sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only looks.
    Reads,
    /// It adds something, each time it is called.
    Adds,
    /// It adds something; the same call again changes nothing more.
    AddsOnce,
    /// It has something run, which may reach anywhere.
    Runs,
    /// It ends or removes something; the same call again changes nothing more.
    Ends,
}

/// What is known of who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Whether it understands tasks.
    pub(crate) tasks: bool,
}

/// What a call gives.
pub(crate) enum Answer<T> {
    /// Its result.
    Done(T),
    /// A task that has the result later; only for callers that understand tasks.
    Task(CreateTaskResult),
}

impl<T> From<T> for Answer<T> {
    fn from(output: T) -> Self {
        Self::Done(output)
    }
}

/// Calls a tool by name.
pub(crate) async fn call(
    core: &Core,
    catalogue: &Catalogue,
    request: CallToolRequestParams,
    caller: Caller,
) -> Result<CallToolResponse, ErrorData> {
    let entry = catalogue.find(&request.name)?;
    entry.call(core, request.arguments.unwrap_or_default(), caller).await
}
