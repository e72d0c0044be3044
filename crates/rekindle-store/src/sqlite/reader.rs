//! The readers: a few threads with a connection each. Every read sees one snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{
    Damage, DamageKind, FramePage, PAGE_BYTES, ReadFrames, Seq, SessionInfo, SessionKey, Slot, Timestamp,
};
use rusqlite::{Connection, Row, params};
use tokio::sync::mpsc;

use super::failure::{Failure, Outcome};
use super::rows::{find_branch, find_session, missing, section_number, signed};
use super::worker::Worker;

/// How many reads go on at once.
pub(super) const READERS: usize = 2;

/// What a reader is given to do.
pub(super) type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Starts a thread for each connection.
pub(super) fn start(connections: Vec<Connection>) -> rekindle_core::Result<Worker<ReadJob>> {
    let (mut worker, jobs) = Worker::<ReadJob>::new();
    let jobs = Arc::new(Mutex::new(jobs));
    for connection in connections {
        let jobs = jobs.clone();
        worker.spawn("rekindle-sqlite-reader", move || {
            while let Some(job) = next(&jobs) {
                job(&connection);
            }
        })?;
    }
    Ok(worker)
}

// Whoever holds the lock waits for the next job; the lock is free while jobs run.
fn next(jobs: &Mutex<mpsc::Receiver<ReadJob>>) -> Option<ReadJob> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv()
}

/// Does `work` on one snapshot.
pub(super) fn on_snapshot<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    let snapshot = connection.unchecked_transaction()?;
    work(&snapshot)
}

/// Everything known of a session but its frames.
pub(super) fn open(connection: &Connection, key: &SessionKey, now: Timestamp) -> Outcome<SessionInfo> {
    let found = find_session(connection, key, now)?.ok_or_else(|| missing(key, "open"))?;
    Ok(found.info)
}

// The frame that holds `through` may end behind it; frames are read by where they end, so that
// frame's end is the bound. Which frames have the marks is told by the index alone.
pub(super) const OLDEST_FIRST: &str = "SELECT first, last, body FROM frames
    WHERE branch = ?1 AND section = ?2 AND last >= ?3
        AND last <= coalesce((SELECT min(last) FROM frames WHERE branch = ?1 AND section = ?2 AND last >= ?4), ?4)
        AND (?5 = 0 OR marks & ?5 <> 0)
    ORDER BY last";
pub(super) const NEWEST_FIRST: &str = "SELECT first, last, body FROM frames
    WHERE branch = ?1 AND section = ?2 AND last >= ?3
        AND last <= coalesce((SELECT min(last) FROM frames WHERE branch = ?1 AND section = ?2 AND last >= ?4), ?4)
        AND (?5 = 0 OR marks & ?5 <> 0)
    ORDER BY last DESC";

/// A page of frames.
pub(super) fn read(connection: &Connection, read: &ReadFrames) -> Outcome<FramePage> {
    let Some(branch) = find_branch(connection, &read.session, &read.branch)? else {
        return Err(absent(connection, read)?);
    };
    let mut statement = connection.prepare_cached(if read.newest_first { NEWEST_FIRST } else { OLDEST_FIRST })?;
    let section = section_number(read.section);
    let mut rows =
        statement.query(params![branch, section, signed(read.from.0), signed(read.through.0), read.marks.0])?;
    let (mut slots, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let last = Seq(row.get::<_, i64>(1)?.unsigned_abs());
        let first = row.get_ref(0)?.as_i64().map_or(last, |first| Seq(first.unsigned_abs()));
        if first > read.through {
            continue;
        }
        if slots.len() == read.limit || bytes >= PAGE_BYTES {
            return Ok(FramePage { slots, more: true });
        }
        let (slot, size) = slot(row, read, first, last)?;
        bytes += size;
        slots.push(slot);
    }
    Ok(FramePage { slots, more: false })
}

fn absent(connection: &Connection, read: &ReadFrames) -> Outcome<Failure> {
    let found = find_session(connection, &read.session, Timestamp::default())?;
    Ok(match found.map(|found| found.info.branch(&read.branch).map(drop)) {
        Some(Err(error)) => error.into(),
        _ => missing(&read.session, "read").into(),
    })
}

fn slot(row: &Row<'_>, read: &ReadFrames, first: Seq, last: Seq) -> rusqlite::Result<(Slot, usize)> {
    let damaged = |kind, detail| Slot::Damaged(Damage { kind, branch: read.branch.clone(), first, last, detail });
    let Ok(body) = row.get_ref(2)?.as_blob() else {
        return Ok((damaged(DamageKind::Format, "the frame is not a row of bytes".into()), 0));
    };
    let size = body.len();
    let slot = match Frame::from_bytes(Bytes::copy_from_slice(body)) {
        Ok(frame) if (frame.first, frame.last) == (first, last) => Slot::Whole(frame),
        Ok(frame) => {
            let detail = format!("holds records {} to {} in the place of {first} to {last}", frame.first, frame.last);
            damaged(DamageKind::Format, detail)
        }
        Err(error) => damaged(error.kind, error.detail.into_owned()),
    };
    Ok((slot, size))
}
