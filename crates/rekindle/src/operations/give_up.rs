//! Giving up a session that no worker gets on with.

use rekindle_core::record::{RunEnded, RunOutcome};
use rekindle_core::{Error, ErrorKind, Position, Record, Restored, Result, SessionKey};
use serde::Serialize;

use super::write::{self, Decided};
use crate::driver::shortened;
use crate::engine::Engine;

/// What giving up did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenUp {
    /// Where the branch ends now.
    pub position: Position,
    /// Whether there was an unfinished run, which is now recorded as failed.
    pub failed: bool,
}

/// Records that the unfinished run of a session failed, unless somebody runs it (`AlreadyRunning`).
/// Nothing else is touched: once the cause is removed, a resume goes on where the run was.
pub async fn give_up(engine: &Engine, session: &SessionKey, reason: &str) -> Result<GivenUp> {
    let decide = |restored: &Restored| Ok(failing(restored, reason));
    let given_up = write::change(engine, session, None, decide).await;
    let (position, failed) = given_up.map_err(|error| error.during("give up").on(session))?;
    Ok(GivenUp { position, failed })
}

fn failing(restored: &Restored, reason: &str) -> Decided<bool> {
    let status = restored.state.status().seen(false);
    let Some(run) = restored.state.run().filter(|_| status.is_unfinished()) else { return Decided::Nothing(false) };
    let code = Some(Error::new(ErrorKind::StepFailed, "").code().to_owned());
    let ended = RunEnded::new(run.started.run.clone(), RunOutcome::Failed);
    let record: Record = RunEnded { reason: shortened(reason.to_owned()), code, ..ended }.into();
    Decided::Append(vec![record], true)
}
