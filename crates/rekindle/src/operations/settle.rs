//! Closing a call by hand of which nobody knows whether it happened.

use rekindle_core::record::{Edit, EffectKind, EffectOutcome, Extra, OutcomeStatus, WaitCloseReason, WaitClosed};
use rekindle_core::{EffectId, EffectState, Error, Json, Position, Record, Restored, Result, SessionKey, State};
use serde::{Deserialize, Serialize};

use super::write::{self, Decided};
use crate::engine::Engine;

/// What somebody found out about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// It happened, and this is its result.
    Ok(Json),
    /// It failed, and this is why.
    Failed(String),
}

/// A call that was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// The session.
    pub session: SessionKey,
    /// The effect.
    pub effect: EffectId,
    /// Where the branch ends now.
    pub position: Position,
    /// Calls of the session that are still open.
    pub still_open: Vec<EffectId>,
}

/// Settles an effect in doubt by hand: a resume goes on as if the call had ended so. What settled
/// before stays as it is (`Invalid`); an effect the state does not know is `NotFound`.
pub async fn settle(
    engine: &Engine,
    session: &SessionKey,
    effect: &EffectId,
    settlement: &Settlement,
    author: &str,
    reason: &str,
) -> Result<Settled> {
    let decide = |restored: &Restored| {
        let known = open_effect(&restored.state, effect)?;
        let mut records =
            vec![Edit { author: write::by(author), reason: reason.to_owned(), extra: Extra::new() }.into()];
        records.push(outcome(engine, &restored.state, known, settlement)?.into());
        // Whoever was asked about it need not answer any more.
        let waits = restored.state.waits().filter(|wait| wait.opened.effect.as_ref() == Some(effect));
        let close = |wait: &rekindle_core::WaitState| {
            Record::from(WaitClosed::new(wait.opened.wait.clone(), WaitCloseReason::Answered, None))
        };
        records.extend(waits.map(close));
        let others = restored.state.open_effects().map(|other| other.intent.effect.clone());
        Ok(Decided::Append(records, others.filter(|other| other != effect).collect()))
    };
    let settled = write::change(engine, session, None, decide).await;
    let (position, still_open) = settled.map_err(|error| error.during("settle").on(session))?;
    Ok(Settled { session: session.clone(), effect: effect.clone(), position, still_open })
}

fn open_effect<'a>(state: &'a State, effect: &EffectId) -> Result<&'a EffectState> {
    let open: Vec<_> = state.open_effects().map(|open| format!("`{}`", open.intent.effect)).collect();
    let hint = match open.as_slice() {
        [] => "no call of the session is open".to_owned(),
        open => format!("these are open: {}", open.join(", ")),
    };
    match state.effect(effect) {
        None => Err(Error::not_found(format!("the session has no open effect `{effect}`")).hint(hint)),
        Some(known) if known.is_settled() => {
            Err(Error::invalid(format!("the effect `{effect}` has ended, and what ended stays as it is")).hint(hint))
        }
        Some(known) if known.intent.kind == EffectKind::Model => {
            Err(Error::invalid("the model is asked again at the resume, so there is nothing to settle")
                .hint("resume the session"))
        }
        Some(known) => Ok(known),
    }
}

/// The outcome, in the form its executor expects.
fn outcome(engine: &Engine, state: &State, known: &EffectState, settlement: &Settlement) -> Result<EffectOutcome> {
    let (status, error) = match settlement {
        Settlement::Ok(_) => (OutcomeStatus::Ok, None),
        Settlement::Failed(why) => (OutcomeStatus::ToolError, Some(why.clone())),
    };
    let how = match settlement {
        Settlement::Ok(value) => Ok(value),
        Settlement::Failed(why) => Err(why.as_str()),
    };
    let value = engine.descriptors().of(state).settled(state, engine.journal(), &known.intent.effect, how)?;
    let attempt = known.intent.attempt;
    Ok(EffectOutcome { attempt, error, ..EffectOutcome::new(known.intent.effect.clone(), status, Some(value)) })
}
