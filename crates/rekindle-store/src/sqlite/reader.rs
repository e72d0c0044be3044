//! What readers do. Every read sees one snapshot.

use rekindle_core::{Error, FramePage, Moment, ReadFrames, Section, SessionInfo, SessionKey, Timestamp};
use rusqlite::Connection;

use super::failure::{Failure, Outcome};
use super::frames;
use super::index::{self, Line};
use super::rows::{find_session, missing};

/// Does `work` on one snapshot.
pub(super) fn on_snapshot<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    connection.prepare_cached("BEGIN")?.execute([])?;
    let outcome = work(connection);
    // Nothing was changed. If this fails, whoever reads next ends it.
    let _ = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
    outcome
}

/// Everything known of a session but its frames.
pub(super) fn open(connection: &Connection, key: &SessionKey, now: Moment) -> Outcome<SessionInfo> {
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
    let found = find_session(connection, &read.session, Timestamp::default().into())?;
    Ok(match found.map(|found| found.info.branch(&read.branch).map(drop)) {
        Some(Err(error)) => error.into(),
        _ => missing(&read.session, "read").into(),
    })
}
