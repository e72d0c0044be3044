//! `cancel_session`.

use std::time::Duration;

use rekindle::operations::{self, ControlOptions, Controlled};
use rekindle::{Result, RunId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::blank_is_none;
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct CancelSession;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// Only if this is its run.
    #[serde(default, alias = "runId", deserialize_with = "blank_is_none")]
    run_id: Option<String>,
    /// Why, for people.
    #[serde(default)]
    reason: Option<String>,
    /// Seconds to wait until it is certain what came of it; at most 60, and without it none.
    #[serde(default, alias = "waitSeconds")]
    wait_seconds: Option<u32>,
}

/// The longest a client may wait for certainty, in seconds.
const MOST_SECONDS: u32 = 60;

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// `cancelled`: that is on record. `already_ended`: the run had ended before, see `status`. `requested`: the run
    /// under way has the request, and may still come to its end by itself; ask again, or with `wait_seconds`.
    result: &'static str,
    /// What the session is now, if that is known yet.
    status: Option<String>,
}

impl Tool for CancelSession {
    const NAME: &'static str = "cancel_session";
    const TITLE: &'static str = "Cancel the run of a session";
    const DESCRIPTION: &'static str = "Ends the unfinished run of a session for good, with what it waits for. The \
        session stays, with its history, open to the next message.";
    const EFFECT: Effect = Effect::Ends;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let mut options = ControlOptions::new(&core.author, args.reason.unwrap_or_default());
        options.only_run = args.run_id.map(RunId::new).transpose()?;
        options.wait = args.wait_seconds.map(|seconds| Duration::from_secs(seconds.min(MOST_SECONDS).into()));
        let (result, status) = match operations::cancel(&core.engine, &session, &options).await? {
            Controlled::Requested { .. } => ("requested", None),
            Controlled::Done { status, .. } => ("cancelled", Some(status)),
            Controlled::Ended { status, .. } | Controlled::Unchanged { status } => ("already_ended", Some(status)),
        };
        let status = status.map(|status| status.to_string());
        Ok(Output { session_id: args.session_id, result, status }.into())
    }
}
