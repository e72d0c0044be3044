//! `diff_checkpoints`.

use rekindle::Result;
use rekindle::operations::{self, DiffSide};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{MAX_VALUES, Omitted, PositionView, blank_is_none, moment};
use super::{Answer, Caller, Effect, Tool};
use crate::server::Core;

pub(super) struct DiffCheckpoints;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The session.
    #[serde(alias = "sessionId")]
    session_id: String,
    /// The first checkpoint.
    #[serde(alias = "fromCheckpointId")]
    from_checkpoint_id: String,
    /// The second checkpoint; where the session stands if left out.
    #[serde(default, alias = "toCheckpointId", deserialize_with = "blank_is_none")]
    to_checkpoint_id: Option<String>,
    /// The session of the second checkpoint, if it is another one.
    #[serde(default, alias = "toSessionId", deserialize_with = "blank_is_none")]
    to_session_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Output {
    /// The first state.
    from: Side,
    /// The second state.
    to: Side,
    /// Whether both are the same.
    same: bool,
    /// What makes the second of the first, as JSON Patch (RFC 6902); nothing if it is too large.
    patch: Option<Vec<Value>>,
    /// The same for people; nothing if it is too large.
    text: Option<String>,
    /// What is too large to be shown.
    omitted: Vec<Omitted>,
}

/// A state.
#[derive(Serialize, JsonSchema)]
struct Side {
    /// The session.
    session_id: String,
    /// The moment.
    position: PositionView,
}

impl From<&DiffSide> for Side {
    fn from(side: &DiffSide) -> Self {
        Self { session_id: side.session.id.to_string(), position: (&side.position).into() }
    }
}

impl Tool for DiffCheckpoints {
    const NAME: &'static str = "diff_checkpoints";
    const TITLE: &'static str = "Compare two checkpoints";
    const DESCRIPTION: &'static str = "Shows what changed in the state of a session between two checkpoints.";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Output;

    async fn call(core: &Core, args: Args, _caller: Caller) -> Result<Answer<Output>> {
        let first = core.key(&args.session_id)?;
        let second = args.to_session_id.map_or_else(|| Ok(first.clone()), |id| core.key(&id))?;
        let (from, to) = (moment(Some(args.from_checkpoint_id))?, moment(args.to_checkpoint_id)?);
        let diff = operations::diff(&core.engine, (&first, &from), (&second, &to)).await?;
        let mut omitted = Vec::new();
        let mut fits = |name: &str, bytes: usize| {
            let fits = bytes <= MAX_VALUES;
            if !fits {
                omitted.push(Omitted { name: name.to_owned(), bytes });
            }
            fits
        };
        let text = fits("text", diff.text.len()).then_some(diff.text);
        let patch = fits("patch", diff.patch.to_string().len()).then_some(diff.patch);
        let patch = patch.map(|patch| if let Value::Array(steps) = patch { steps } else { Vec::new() });
        Ok(Output { from: (&diff.a).into(), to: (&diff.b).into(), same: diff.same, patch, text, omitted }.into())
    }
}
