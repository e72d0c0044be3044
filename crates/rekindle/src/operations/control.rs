//! Telling a session what to do: pause, cancel, interrupt, send, answer.

use rekindle_core::record::{Command, InboxCommand};
use rekindle_core::{Position, Result, RunId, SessionKey};

use crate::engine::Engine;

/// Pauses one run, and no other.
pub(crate) async fn pause_run(engine: &Engine, session: &SessionKey, run: &RunId, reason: &str) -> Result<Position> {
    let command = InboxCommand {
        only_run: Some(run.clone()),
        reason: reason.to_owned(),
        ..InboxCommand::new(engine.new_message_id(), Command::Pause)
    };
    let position = engine.journal().send(session, &[command.into()]).await?;
    engine.live(session).wake_inbox();
    Ok(position)
}
