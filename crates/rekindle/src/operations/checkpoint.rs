//! Checkpoints by hand: made, pinned, tagged.

use rekindle_core::record::{CheckpointMarked, CheckpointSource, Command, Extra, InboxCommand};
use rekindle_core::{CheckpointId, CheckpointInfo, Error, ErrorKind, OwnerId, Position, Restored, Result, SessionKey};
use serde::Serialize;

use super::write::{self, Decided};
use super::{inbox, show};
use crate::engine::Engine;

/// What came of asking for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Marked {
    /// Somebody runs the session, and will mark where it is at its next step.
    Sent {
        /// Where the request stands.
        position: Position,
        /// Who runs it.
        owner: OwnerId,
    },
    /// Nobody runs it, so its end was marked at once.
    Done {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where it is.
        position: Position,
    },
}

/// Marks where the session is.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, HistoryOptions};
/// use rekindle::Engine;
///
/// let engine = Engine::memory()?;
/// let session = engine.create("trip-42").await?;
/// operations::checkpoint(&engine, session.key(), "before the big change", "maria").await?;
/// let page = operations::history(&engine, session.key(), &HistoryOptions::default()).await?;
/// assert_eq!(page.checkpoints[0].checkpoint.description, "before the big change");
/// # Ok(()) }
/// ```
pub async fn checkpoint(engine: &Engine, session: &SessionKey, description: &str, author: &str) -> Result<Marked> {
    let context = |error: Error| error.during("checkpoint").on(session);
    let info = engine.journal().open(session).await.map_err(context)?;
    if let Some(owner) = show::owner(&info) {
        return ask(engine, session, description, author, owner.owner).await.map_err(context);
    }
    let decide = |restored: &Restored| {
        let mut checkpoint = write::mark(engine, restored, CheckpointSource::Loop, description);
        checkpoint.extra.insert("author".into(), write::by(author).into());
        let id = checkpoint.id.clone();
        Ok(Decided::Append(vec![checkpoint.into()], id))
    };
    match write::change(engine, session, None, decide).await {
        Ok((position, checkpoint)) => Ok(Marked::Done { checkpoint, position }),
        Err(error) => match error.kind().clone() {
            // Somebody began to run it since we looked.
            ErrorKind::AlreadyRunning { owner, .. } => {
                ask(engine, session, description, author, owner).await.map_err(context)
            }
            _ => Err(context(error)),
        },
    }
}

async fn ask(engine: &Engine, session: &SessionKey, description: &str, author: &str, owner: OwnerId) -> Result<Marked> {
    let command = InboxCommand {
        author: Some(write::by(author)),
        reason: description.to_owned(),
        ..InboxCommand::new(engine.new_message_id(), Command::Checkpoint)
    };
    let position = inbox::put(engine, session, command.into()).await?;
    Ok(Marked::Sent { position, owner })
}

/// Pins a checkpoint, so that retention never drops it, or lets it go again.
pub async fn pin(engine: &Engine, session: &SessionKey, id: &CheckpointId, pinned: bool) -> Result<CheckpointInfo> {
    mark(engine, session, CheckpointMarked::pinned(id.clone(), pinned)).await.map_err(|error| error.during("pin"))
}

/// Gives a checkpoint these tags in place of those it has.
pub async fn tag(
    engine: &Engine,
    session: &SessionKey,
    id: &CheckpointId,
    tags: Vec<String>,
) -> Result<CheckpointInfo> {
    if tags.iter().any(String::is_empty) {
        return Err(Error::invalid("a tag is empty").during("tag").on(session));
    }
    let marked = CheckpointMarked { checkpoint: id.clone(), pinned: None, tags: Some(tags), extra: Extra::new() };
    mark(engine, session, marked).await.map_err(|error| error.during("tag"))
}

async fn mark(engine: &Engine, session: &SessionKey, marked: CheckpointMarked) -> Result<CheckpointInfo> {
    let id = marked.checkpoint.clone();
    engine.journal().checkpoint(session, &id).await?;
    engine.journal().send(session, &[marked.into()]).await?;
    engine.journal().checkpoint(session, &id).await
}
