//! Appending, inside a transaction of the writer. The common case is one UPDATE that checks head
//! and lease, moves the head and adds to the index, and one INSERT per frame; only an UPDATE that
//! changes nothing makes it look closer.

use std::collections::HashMap;

use rekindle_core::{
    Append, Appended, BootTime, BranchId, Decided, Error, Hash, Moment, ReadFrames, Seq, SessionKey, Slot,
};
use rusqlite::{Connection, params};

use super::failure::Outcome;
use super::frames::{self, FrameRow};
use super::index;
use super::jobs;
use super::reader;
use super::rows::{find_branch, find_session, header, missing, signed};
use super::writer::Scope;

/// The most branches whose rows are remembered.
const REMEMBERED: usize = 8_192;

/// The rows of branches that were written lately. What is remembered may be gone, but is never
/// another branch: rows of branches are numbered once and for all.
#[derive(Debug, Default)]
pub(super) struct BranchCache(HashMap<(SessionKey, BranchId), Known>);

/// A branch that was written lately.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: i64,
    /// Entries added since its recent ones were last looked at. Another process may have added
    /// more: then they are moved a little later.
    added: usize,
}

impl BranchCache {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn remember(&mut self, key: (SessionKey, BranchId), known: Known) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(key, known);
    }
}

/// Carries out an append or says why not.
pub(super) fn append(scope: &mut Scope, append: &Append, rows: &[FrameRow]) -> Outcome<Appended> {
    let now = scope.now();
    let key = (append.session.clone(), append.branch.clone());
    let known = scope.branches.0.get(&key).copied();
    if append.condition.is_some()
        && let Some(settled) = conditional(scope, append, now)?
    {
        return Ok(settled);
    }
    let (first, entries) = numbered(scope, rows)?;
    if let Some(known) = known
        && move_head(&scope.connection, known.id, append, now, &entries)?
    {
        return complete(scope, (key, known), first, append, rows);
    }
    let Some(id) = find_branch(&scope.connection, &append.session, &append.branch)? else {
        scope.branches.0.remove(&key);
        return Err(absent(scope, append, now)?.into());
    };
    if known.map(|known| known.id) != Some(id) && move_head(&scope.connection, id, append, now, &entries)? {
        return complete(scope, (key, Known { id, added: 0 }), first, append, rows);
    }
    explain(scope, append, now)
}

/// Decides about an append with a condition on the session as it is: nothing else writes before this
/// transaction ends. Nothing if it is to be carried out.
fn conditional(scope: &Scope, append: &Append, now: Moment) -> Outcome<Option<Appended>> {
    match decide(scope, append, now)? {
        Decided::Repeated(appended) => Ok(Some(appended)),
        Decided::Fresh => Ok(None),
    }
}

/// The number of the first row, and the entries of all. Numbers of an append that is refused go
/// to the next one.
fn numbered(scope: &mut Scope, rows: &[FrameRow]) -> rusqlite::Result<(i64, Vec<u8>)> {
    let first = match scope.next_frame {
        Some(first) => first,
        None => frames::next_id(&scope.connection)?,
    };
    scope.next_frame = Some(first);
    Ok((first, FrameRow::entries(rows, first)))
}

/// Whether the head was moved. The conditions are those of [`Append::decide`] for an append that
/// is new.
fn move_head(connection: &Connection, id: i64, append: &Append, now: Moment, entries: &[u8]) -> rusqlite::Result<bool> {
    let (head, expected) = (append.head(), append.expected);
    let status = append.status.map(|status| status.as_str());
    let (seq, expected_seq, wall) = (signed(head.seq.0), signed(expected.seq.0), signed(now.wall.0));
    let (boot, since) = boot_columns(now.boot);
    let last_wait = append.last_wait().map(|seq| signed(seq.0));
    let changed = match append.fence {
        Some(epoch) => {
            let until = append.renew.map(|ttl| now.wall.plus(ttl));
            let (lease_boot, lease_until) = boot_columns(until.and_then(|until| now.boot_at(until)));
            connection.prepare_cached(FENCED)?.execute(params![
                seq,
                head.hash.0,
                wall,
                status,
                until.map(|until| signed(until.0)),
                id,
                expected_seq,
                expected.hash.0,
                signed(epoch.0),
                entries,
                last_wait,
                boot,
                since,
                lease_boot,
                lease_until,
            ])
        }
        None => connection.prepare_cached(UNFENCED)?.execute(params![
            seq,
            head.hash.0,
            wall,
            status,
            id,
            expected_seq,
            expected.hash.0,
            entries,
            last_wait,
            boot,
            since,
        ]),
    };
    changed.map(|rows| rows > 0)
}

// A lease ends within `MAX_LEASE`, or counts as expired.
const FENCED: &str = "UPDATE branches SET head = ?1, head_hash = ?2, updated_at = ?3, status = coalesce(?4, status),
     lease_expires = coalesce(?5, lease_expires), recent = CAST(recent || ?10 AS BLOB),
     last_wait = coalesce(?11, last_wait),
     lease_boot = CASE WHEN ?5 IS NULL THEN lease_boot ELSE ?14 END,
     lease_until = CASE WHEN ?5 IS NULL THEN lease_until ELSE ?15 END
 WHERE id = ?6 AND head = ?7 AND head_hash = ?8 AND lease_epoch = ?9
     AND CASE WHEN lease_boot = ?12 THEN lease_until - ?13 ELSE lease_expires - ?3 END BETWEEN 1 AND 86400000000";

const UNFENCED: &str = "UPDATE branches SET head = ?1, head_hash = ?2, updated_at = ?3, status = coalesce(?4, status),
     recent = CAST(recent || ?8 AS BLOB), last_wait = coalesce(?9, last_wait)
 WHERE id = ?5 AND head = ?6 AND head_hash = ?7 AND (lease_expires IS NULL
     OR CASE WHEN lease_boot = ?10 THEN lease_until - ?11 ELSE lease_expires - ?3 END NOT BETWEEN 1 AND 86400000000)";

/// A boot time as its columns hold it.
fn boot_columns(time: Option<BootTime>) -> (Option<i64>, Option<i64>) {
    (time.map(|time| time.boot.cast_signed()), time.map(|time| signed(time.micros)))
}

/// Adds the frames to a branch, numbered from `first`.
fn complete(
    scope: &mut Scope,
    (key, Known { id, mut added }): ((SessionKey, BranchId), Known),
    first: i64,
    append: &Append,
    rows: &[FrameRow],
) -> Outcome<Appended> {
    frames::insert(&scope.connection, id, first, rows)?;
    scope.next_frame = Some(first + rows.len() as i64);
    added += rows.len();
    if added >= index::CHUNK {
        added = index::move_recent(&scope.connection, id)?;
    }
    scope.branches.remember(key, Known { id, added });
    if append.describe.is_some() || append.sealed.is_some() {
        describe(&scope.connection, append)?;
    }
    if append.branch.is_inbox() {
        jobs::wake(&scope.connection, &append.session, scope.clock.now())?;
    }
    Ok(Appended { head: append.head() })
}

/// Says why the head could not be moved.
fn explain(scope: &Scope, append: &Append, now: Moment) -> Outcome<Appended> {
    match decide(scope, append, now)? {
        Decided::Repeated(appended) => Ok(appended),
        Decided::Fresh => {
            let message = format!("branch `{}` could not be moved although nothing stands against it", append.branch);
            Err(append.error(Error::corrupt(message)).into())
        }
    }
}

/// Decides by the rules that all stores share.
fn decide(scope: &Scope, append: &Append, now: Moment) -> Outcome<Decided> {
    let Some(found) = find_session(&scope.connection, &append.session, now)? else {
        return Err(missing(&append.session, "append").into());
    };
    let info = found.info.branch(&append.branch).map_err(|error| append.error(error))?;
    let other = append.other(&found.info.branches);
    let stored = |seq| stored_hash(&scope.connection, append, seq).map_err(|failure| failure.into_error(&scope.path));
    Ok(append.decide(info, other, now.wall, stored)?)
}

fn absent(scope: &Scope, append: &Append, now: Moment) -> Outcome<Error> {
    let found = find_session(&scope.connection, &append.session, now)?;
    Ok(match found.map(|found| found.info.branch(&append.branch).map(drop)) {
        Some(Err(error)) => append.error(error),
        _ => missing(&append.session, "append"),
    })
}

fn stored_hash(connection: &Connection, append: &Append, last: Seq) -> Outcome<Option<Hash>> {
    let at = ReadFrames::all(append.session.clone(), append.branch.clone()).with_range(last, last).with_limit(1);
    let (page, _) = reader::read(connection, &at)?;
    // A damaged frame is not the caller's frame.
    Ok(page.slots.into_iter().find_map(|slot| match slot {
        Slot::Whole(frame) if frame.last == last => Some(frame.hash),
        _ => None,
    }))
}

fn describe(connection: &Connection, append: &Append) -> Outcome<()> {
    let key = &append.session;
    let (id, text): (i64, String) = connection
        .prepare_cached("SELECT id, header FROM sessions WHERE namespace = ?1 AND session = ?2")?
        .query_row([key.namespace.as_str(), key.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut header = header(key, &text).map_err(|detail| append.error(Error::corrupt(detail)))?;
    if let Some(change) = &append.describe {
        header.apply(change);
    }
    if let Some(sealed) = &append.sealed {
        header.sealed = Some(sealed.clone());
    }
    let text = serde_json::to_string(&header)
        .map_err(|error| append.error(Error::invalid("the header cannot be written").because(error)))?;
    connection.prepare_cached("UPDATE sessions SET search = ?2, header = ?3 WHERE id = ?1")?.execute(params![
        id,
        header.search_text(),
        text
    ])?;
    Ok(())
}
