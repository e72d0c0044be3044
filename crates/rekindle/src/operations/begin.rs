//! Beginning a session: the step before its first run.

use rekindle_core::{ErrorKind, Result, Seq, SessionHeader, SessionInfo};

use crate::engine::Engine;
use crate::session::Session;

/// Creates a session for its first run. A session of that name that a process created and left without a single record,
/// because it died before its run could begin, is picked up instead, if it is of the same agent and definition: there is
/// nothing in it that could be lost. Any other is `AlreadyExists`.
pub async fn begin(engine: &Engine, header: SessionHeader) -> Result<Session> {
    let error = match engine.create_with(header.clone()).await {
        Err(error) if *error.kind() == ErrorKind::AlreadyExists => error,
        other => return other,
    };
    let found = engine.journal().open(&header.key).await?;
    match is_remainder(&found, &header) {
        true => engine.open_session(header.key.id.as_str()).await,
        false => Err(error),
    }
}

/// Returns whether a session has no record, and was made for what `header` describes.
fn is_remainder(found: &SessionInfo, header: &SessionHeader) -> bool {
    let untouched = found.branches.iter().all(|branch| branch.head.seq == Seq(0) && branch.base.is_none());
    untouched && found.header.agent == header.agent && found.header.metadata == header.metadata
}
