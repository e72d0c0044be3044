//! `list_resumable_sessions`.

use rekindle::core::Cursor;
use rekindle::operations::{self, Shown};
use rekindle::{ErrorKind, Result, SessionQuery, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{OpenWait, blank_is_none, page, time};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct ListResumableSessions;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Only sessions of this status: `failed`, `paused`, `interrupted` or `waiting`, which are shown if it is left
    /// out; or `running`, `succeeded`, `cancelled`, or `idle` for those that only hold what `checkpoint_save` saved.
    #[serde(default, deserialize_with = "blank_is_none")]
    status: Option<String>,
    /// How many at most; 20 if left out, 100 at most.
    #[serde(default)]
    limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default, deserialize_with = "blank_is_none")]
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The sessions, newest first.
    sessions: Vec<Resumable>,
    /// How many there are on all pages.
    total: u64,
    /// How to go on, if there are more.
    next_cursor: Option<String>,
}

/// A session whose work was not finished.
#[derive(Serialize, JsonSchema)]
struct Resumable {
    /// The session.
    session_id: String,
    /// What it is doing.
    status: String,
    /// Whether a resume would go on with something.
    resumable: bool,
    /// Why, or why not.
    why: String,
    /// What went wrong in its last run.
    error: Option<String>,
    /// The code of that error.
    error_code: Option<String>,
    /// The node of a graph it failed at.
    failed_at_node: Option<String>,
    /// Its last checkpoint.
    last_checkpoint: Option<String>,
    /// What it waits for, the first 10; `answer_wait` answers them.
    open_waits: Vec<OpenWait>,
    /// What runs it.
    agent: Option<String>,
    /// For people.
    title: Option<String>,
    /// When it was made.
    created_at: String,
    /// When anything in it last changed.
    updated_at: String,
}

impl Tool for ListResumableSessions {
    const NAME: &'static str = "list_resumable_sessions";
    const TITLE: &'static str = "List resumable sessions";
    const DESCRIPTION: &'static str = "Lists sessions whose work was not finished: failed, paused, interrupted (their \
        process died; seen some seconds after it did) or waiting for an answer. `resume_session` goes on with one.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let mut query =
            SessionQuery::new(core.engine.namespace().clone()).with_limit(page(args.limit, 20)).with_total();
        query.statuses = match &args.status {
            Some(status) => vec![status.parse()?],
            None => vec![Status::Failed, Status::Paused, Status::Interrupted, Status::Waiting],
        };
        query.after = args.cursor.map(Cursor::try_from).transpose()?;
        let found = operations::list(&core.engine, &query).await?;
        let mut sessions = Vec::with_capacity(found.sessions.len());
        for info in &found.sessions {
            match operations::show(&core.engine, &info.header.key).await {
                Ok(shown) => sessions.push(Resumable::from(shown)),
                // It was deleted since it was listed.
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let next_cursor = found.next.map(String::from);
        Ok(Output { sessions, total: found.total.unwrap_or_default(), next_cursor }.into())
    }
}

impl From<Shown> for Resumable {
    fn from(shown: Shown) -> Self {
        let failed = shown.status == Status::Failed;
        let run = shown.run.as_ref().filter(|_| failed);
        let node = shown.checkpoint.as_ref().and_then(|last| last.checkpoint.node.clone());
        Self {
            session_id: shown.header.key.id.to_string(),
            status: shown.status.to_string(),
            resumable: shown.resumable.resumable,
            why: shown.unreadable.unwrap_or(shown.resumable.why),
            error: run.map(|run| run.reason.clone()),
            error_code: run.and_then(|run| run.code.clone()),
            failed_at_node: node.filter(|_| failed),
            last_checkpoint: shown.checkpoint.map(|last| last.checkpoint.id.to_string()),
            open_waits: shown.waits.iter().take(10).map(OpenWait::from).collect(),
            agent: shown.header.agent,
            title: shown.header.title,
            created_at: time(shown.created_at),
            updated_at: time(shown.updated_at),
        }
    }
}
