//! Telling a session what to do: pause, cancel, interrupt, send, answer.

use rekindle_core::record::{Command, InboxCommand};
use rekindle_core::{Position, Result, RunId, SessionKey};

use crate::engine::Engine;

/// Tells one run, and no other, that its parent was stopped.
pub(crate) async fn tell_run(engine: &Engine, session: &SessionKey, run: &RunId, command: Command) -> Result<Position> {
    let command = InboxCommand {
        only_run: Some(run.clone()),
        reason: "the parent was stopped".to_owned(),
        ..InboxCommand::new(engine.new_message_id(), command)
    };
    let position = engine.journal().send(session, &[command.into()]).await?;
    engine.live(session).wake_inbox();
    Ok(position)
}
