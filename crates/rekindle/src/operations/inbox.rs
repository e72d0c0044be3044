//! The inbox of a session, as operations read and write it.

use rekindle_core::{Position, Record, Result, Seq, SessionKey};

pub(super) use crate::driver::Received;
use crate::driver::read_behind;
use crate::engine::Engine;

/// The records of the inbox behind `seq`, as a run reads them.
pub(super) async fn behind(engine: &Engine, session: &SessionKey, seq: Seq) -> Result<Vec<Received>> {
    read_behind(engine, session, seq.0, usize::MAX).await
}

/// Puts a record into the inbox and wakes the run, if it is in this process.
pub(super) async fn put(engine: &Engine, session: &SessionKey, record: Record) -> Result<Position> {
    let position = engine.journal().send(session, &[record]).await?;
    engine.live(session).wake_inbox();
    // It is in the inbox; that nobody can be woken is no failure of that.
    let _ = super::jobs::wake_parents(engine, session).await;
    Ok(position)
}
