//! The inbox of a session, as operations read and write it.

use std::ops::ControlFlow;

use rekindle_core::codec::Place;
use rekindle_core::{
    BranchId, Condition, Position, ReadFrames, Record, Restored, Result, Seq, SessionInfo, SessionKey, Slot,
    StoreExt as _,
};

use super::contention::{Contention, is_lost};
use crate::driver::read_behind;
pub(super) use crate::driver::{Received, Unread};
use crate::engine::Engine;

/// So many of the newest frames are read at a time.
const NEWEST: usize = 64;

/// The records of the inbox behind `seq`, as a run reads them.
pub(super) async fn behind(engine: &Engine, session: &SessionKey, seq: Seq) -> Result<Unread> {
    read_behind(engine, session, seq.0, usize::MAX).await
}

/// The records of the inbox that were not taken over when the session was opened to be restored.
pub(super) async fn unread(engine: &Engine, restored: &Restored) -> Result<Unread> {
    let (info, taken) = (&restored.info, restored.state.inbox_taken());
    let unread = match info.branch(&BranchId::inbox())?.head.seq > taken {
        true => behind(engine, &info.header.key, taken).await?,
        false => Unread::default(),
    };
    unread.up_to(taken, info)
}

/// The newest record of the inbox that is `wanted`. What cannot be read is passed over: nobody knows what it asked
/// for, and a run that begins reports it.
pub(super) async fn newest(
    engine: &Engine,
    session: &SessionKey,
    wanted: impl Fn(&Received) -> bool + Send + Sync,
) -> Result<Option<Received>> {
    let (journal, inbox) = (engine.journal(), BranchId::inbox());
    let read = ReadFrames::all(session.clone(), inbox.clone()).with_newest_first().with_limit(NEWEST);
    let mut found = None;
    let mut visit = |slots: Vec<Slot>| {
        for slot in slots {
            let Slot::Whole(frame) = slot else { continue };
            let Ok(batch) = journal.codec().decode(Place { session, branch: &inbox }, &frame) else { continue };
            let here = batch.numbered().map(|(seq, record)| Received { seq, at: batch.at, record: record.clone() });
            found = here.filter(|received| wanted(received)).last();
            if found.is_some() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    };
    journal.store().read_pages(&read, &mut visit).await?;
    Ok(found)
}

/// Puts a record into the inbox and wakes the run, if it is in this process.
pub(super) async fn put(engine: &Engine, session: &SessionKey, record: Record) -> Result<Position> {
    let mut contention = Contention::default();
    loop {
        let info = engine.journal().open(session).await?;
        match put_behind(engine, &info, record.clone(), None).await {
            Err(error) if is_lost(&error) => contention.lost(engine, session).await?,
            put => return put,
        }
    }
}

/// Puts a record into the inbox if nothing was put there since the session was opened (`Conflict` otherwise) and the
/// condition holds (`Overtaken` otherwise).
pub(super) async fn put_behind(
    engine: &Engine,
    info: &SessionInfo,
    record: Record,
    condition: Option<Condition>,
) -> Result<Position> {
    let position = engine.journal().send_behind(info, &[record], condition).await?;
    wake(engine, info).await;
    Ok(position)
}

/// Wakes whoever goes on with what was put into the inbox.
async fn wake(engine: &Engine, info: &SessionInfo) {
    engine.live(&info.header.key).wake_inbox();
    // It is in the inbox; that nobody can be woken is no failure of that.
    let _ = super::jobs::wake_parents(engine, info).await;
}
