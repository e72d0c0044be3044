//! The inbox of a session, as operations read and write it.

use rekindle_core::{BranchId, Entry, Position, Record, Result, Seq, SessionKey, Timestamp};

use crate::engine::Engine;

/// How many batches are read at once.
const PAGE: usize = 256;

/// One record of the inbox.
pub(super) struct Received {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) record: Record,
}

impl Received {
    pub(super) fn position(&self) -> Position {
        Position::new(BranchId::inbox(), self.seq)
    }
}

/// The records of the inbox behind `seq`. What cannot be read is passed over, as a run does.
pub(super) async fn behind(engine: &Engine, session: &SessionKey, seq: Seq) -> Result<Vec<Received>> {
    let mut received = Vec::new();
    let mut from = seq.next();
    loop {
        let entries = engine.journal().read(session, &BranchId::inbox(), from, PAGE).await?;
        if entries.is_empty() {
            return Ok(received);
        }
        for entry in entries {
            match entry {
                Entry::Batch(batch) => {
                    let wanted = batch.numbered().filter(|(at, _)| *at >= from);
                    let here = wanted.map(|(seq, record)| Received { seq, at: batch.at, record: record.clone() });
                    received.extend(here);
                    from = batch.last.next();
                }
                Entry::Damaged(damage) => from = damage.last.next(),
            }
        }
    }
}

/// Puts a record into the inbox and wakes the run, if it is in this process.
pub(super) async fn put(engine: &Engine, session: &SessionKey, record: Record) -> Result<Position> {
    let position = engine.journal().send(session, &[record]).await?;
    engine.live(session).wake_inbox();
    Ok(position)
}
