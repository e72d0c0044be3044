//! The inbox of a session, as operations read and write it.

use rekindle_core::{BranchId, ErrorKind, Position, Record, Restored, Result, Seq, SessionInfo, SessionKey};

pub(super) use crate::driver::Received;
use crate::driver::read_behind;
use crate::engine::Engine;

/// The records of the inbox behind `seq`, as a run reads them.
pub(super) async fn behind(engine: &Engine, session: &SessionKey, seq: Seq) -> Result<Vec<Received>> {
    read_behind(engine, session, seq.0, usize::MAX).await
}

/// The records of the inbox that were not taken over when the session was opened to be restored.
pub(super) async fn unread(engine: &Engine, restored: &Restored) -> Result<Vec<Received>> {
    let (info, taken) = (&restored.info, restored.state.inbox_taken());
    match info.branch(&BranchId::inbox())?.head.seq > taken {
        true => behind(engine, &info.header.key, taken).await,
        false => Ok(Vec::new()),
    }
}

/// Puts a record into the inbox and wakes the run, if it is in this process.
pub(super) async fn put(engine: &Engine, session: &SessionKey, record: Record) -> Result<Position> {
    let info = engine.journal().open(session).await?;
    let position = match engine.journal().send_behind(&info, std::slice::from_ref(&record)).await {
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
            engine.journal().send(session, &[record]).await?
        }
        sent => sent?,
    };
    wake(engine, &info).await;
    Ok(position)
}

/// The same, if nobody has put anything there since the session was opened; `Conflict` otherwise.
pub(super) async fn put_behind(engine: &Engine, info: &SessionInfo, record: Record) -> Result<Position> {
    let position = engine.journal().send_behind(info, &[record]).await?;
    wake(engine, info).await;
    Ok(position)
}

/// Wakes whoever goes on with what was put into the inbox.
async fn wake(engine: &Engine, info: &SessionInfo) {
    engine.live(&info.header.key).wake_inbox();
    // It is in the inbox; that nobody can be woken is no failure of that.
    let _ = super::jobs::wake_parents(engine, info).await;
}
