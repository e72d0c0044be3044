//! The readers: a few threads with a connection each. Every read sees one snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use rekindle_core::{Error, FramePage, ReadFrames, Section, SessionInfo, SessionKey, Timestamp};
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::failure::{Failure, Outcome};
use super::frames;
use super::index::{self, Line};
use super::rows::{find_session, missing};
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

/// A page of frames, and whether the index of the branch should be made anew.
pub(super) fn read(connection: &Connection, read: &ReadFrames) -> Outcome<(FramePage, bool)> {
    let Some(line) = Line::find(connection, &read.session, &read.branch)? else {
        return Err(absent(connection, read)?);
    };
    if read.section == Section::Base {
        let entries = frames::base_entries(connection, line.id, read)?;
        return Ok((complete(frames::page(connection, line.id, read, &entries)?)?, false));
    }
    let found = line.entries(connection, read)?;
    if let Some(page) = frames::page(connection, line.id, read, &found.entries)? {
        return Ok((page, found.repairable));
    }
    let found = line.scanned(connection, read)?;
    Ok((complete(frames::page(connection, line.id, read, &found.entries)?)?, found.repairable))
}

/// Makes the index of the branch anew.
pub(super) fn repair(connection: &Connection, read: &ReadFrames) -> Outcome<()> {
    // Whoever removed the branch meanwhile removed its index too.
    match Line::find(connection, &read.session, &read.branch)? {
        Some(line) => Ok(index::rebuild(connection, line.id)?),
        None => Ok(()),
    }
}

/// What was found by the rows themselves.
fn complete(page: Option<FramePage>) -> Outcome<FramePage> {
    page.ok_or_else(|| Error::corrupt("a row is not the one it was a moment ago").into())
}

fn absent(connection: &Connection, read: &ReadFrames) -> Outcome<Failure> {
    let found = find_session(connection, &read.session, Timestamp::default())?;
    Ok(match found.map(|found| found.info.branch(&read.branch).map(drop)) {
        Some(Err(error)) => error.into(),
        _ => missing(&read.session, "read").into(),
    })
}
