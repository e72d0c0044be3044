//! The inbox of a session, as operations read and write it.

use std::ops::ControlFlow;

use rekindle_core::codec::Place;
use rekindle_core::{BranchId, ReadFrames, Restored, Result, Seq, SessionKey, Slot, StoreExt as _};

use crate::driver::read_behind;
pub(super) use crate::driver::{Received, Unread};
use crate::engine::Engine;
pub(super) use crate::inbox::{put, put_behind};

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
