//! `answer_wait`.

use rekindle::core::Hash;
use rekindle::core::record::Decision;
use rekindle::operations::{self, Answer as GivenAnswer};
use rekindle::{BranchId, Json, Result, WaitId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::blank_is_none;
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct AnswerWait;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The wait, as `get_run`, `inspect_checkpoint` and `list_resumable_sessions` show it.
    #[serde(alias = "waitId")]
    wait_id: String,
    /// Yes, no, or an answer.
    decision: GivenDecision,
    /// The answer, in the shape its schema asks for.
    #[serde(default)]
    value: Option<Value>,
    /// Other arguments for the call that is approved.
    #[serde(default)]
    arguments: Option<Value>,
    /// The digest that was shown with the wait; an approval of a call must name it.
    #[serde(default, deserialize_with = "blank_is_none")]
    digest: Option<String>,
    /// Why.
    #[serde(default)]
    reason: Option<String>,
    /// The branch the wait stands on; without it, it is looked for on all of them, the current one first.
    #[serde(default, deserialize_with = "blank_is_none")]
    branch: Option<String>,
}

/// What was decided.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GivenDecision {
    /// Yes.
    Approve,
    /// No.
    Reject,
    /// Here is the answer.
    Answer,
}

impl From<GivenDecision> for Decision {
    fn from(given: GivenDecision) -> Self {
        match given {
            GivenDecision::Approve => Self::Approve,
            GivenDecision::Reject => Self::Reject,
            GivenDecision::Answer => Self::Answer,
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The session.
    session_id: String,
    /// The wait.
    wait_id: String,
    /// The branch it stands on, if it is open.
    branch: Option<String>,
    /// Whether the wait is decided now; if not, more must approve.
    decided: bool,
    /// Whether the same answer was given before; it counts once.
    repeated: bool,
    /// Whether somebody must resume the session for it to go on.
    resume_needed: bool,
}

impl Tool for AnswerWait {
    const NAME: &'static str = "answer_wait";
    const TITLE: &'static str = "Answer what a session waits for";
    const DESCRIPTION: &'static str = "Answers an open wait of a session: approves or rejects a call, or answers a \
        question. The person you work for decides: ask before you approve. The run goes on by itself unless \
        `resume_needed` says otherwise. The same answer again counts once.";
    const EFFECT: Effect = Effect::AddsOnce;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let session = core.key(&args.session_id)?;
        let answer = GivenAnswer {
            value: args.value.map(Json::from),
            arguments: args.arguments.map(Json::from),
            digest: args.digest.as_deref().map(str::parse::<Hash>).transpose()?,
            reason: args.reason.unwrap_or_default(),
            branch: args.branch.map(BranchId::new).transpose()?,
            ..GivenAnswer::new(WaitId::new(args.wait_id)?, args.decision.into(), core.identity.clone())
        };
        let given = operations::answer(&core.engine, &session, &answer).await?;
        Ok(Output {
            session_id: args.session_id,
            wait_id: given.wait.to_string(),
            branch: given.branch.map(|branch| branch.to_string()),
            decided: given.decided,
            repeated: given.repeated,
            resume_needed: given.resume_needed,
        }
        .into())
    }
}
