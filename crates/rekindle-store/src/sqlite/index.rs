//! Which frames a branch has and where they stand.
//!
//! The newest entries stand in the row of the branch, which every append writes anyway. Once
//! there are enough for a chunk, they move to `frame_index`. The columns of `frames` say the same
//! once more: when the index does not hold together, they are scanned instead, and the index can
//! be made anew from them.

use rekindle_core::{BranchId, Marks, ReadFrames, Seq, SessionKey};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::entry::{Entry, continuous, decode, encode};
use super::rows::signed;

/// Entries of a chunk. More would make every append write more, fewer would make chunks move
/// more often; both cost pages.
pub(super) const CHUNK: usize = 32;

pub(super) const OLDEST_FIRST: &str =
    "SELECT last, entries FROM frame_index WHERE branch = ?1 AND last >= ?2 ORDER BY last";
// The chunk that holds a record may end behind it, so that chunk's end is the bound.
pub(super) const NEWEST_FIRST: &str = "SELECT last, entries FROM frame_index
    WHERE branch = ?1 AND last >= ?2
        AND last <= coalesce((SELECT min(last) FROM frame_index WHERE branch = ?1 AND last >= ?3), ?3)
    ORDER BY last DESC";

/// What the row of a branch says about its frames.
#[derive(Debug)]
pub(super) struct Line {
    /// The row.
    pub(super) id: i64,
    // Its own frames begin behind this record and end with the head.
    start: Seq,
    head: Seq,
    recent: Vec<u8>,
}

/// Entries, and how they were found.
#[derive(Debug)]
pub(super) struct Found {
    /// The entries that were asked for, in the order asked for: one more than the limit if there
    /// are more.
    pub(super) entries: Vec<Entry>,
    /// The index does not hold together.
    pub(super) damaged: bool,
    /// The index can be made anew.
    pub(super) repairable: bool,
}

impl Line {
    /// The line of a branch, if it exists.
    pub(super) fn find(connection: &Connection, key: &SessionKey, branch: &BranchId) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT b.id, coalesce(b.base_seq, b.fork_seq, 0), b.head, b.recent
             FROM sessions s JOIN branches b ON b.session = s.id
             WHERE s.namespace = ?1 AND s.session = ?2 AND b.name = ?3";
        let mut statement = connection.prepare_cached(sql)?;
        let names = [key.namespace.as_str(), key.id.as_str(), branch.as_str()];
        let line =
            |row: &Row<'_>| Ok(Self { id: row.get(0)?, start: seq(row, 1)?, head: seq(row, 2)?, recent: row.get(3)? });
        statement.query_row(names, line).optional()
    }

    /// The entries of the history that `read` asks for.
    pub(super) fn entries(&self, connection: &Connection, read: &ReadFrames) -> rusqlite::Result<Found> {
        let indexed = match read.newest_first {
            true => self.newest_first(connection, read)?,
            false => self.oldest_first(connection, read)?,
        };
        match indexed {
            Some(entries) => Ok(Found { entries, damaged: false, repairable: false }),
            None => self.scanned(connection, read),
        }
    }

    /// The same by the columns of `frames`: slow, but right whatever happened to the index.
    pub(super) fn scanned(&self, connection: &Connection, read: &ReadFrames) -> rusqlite::Result<Found> {
        let all = scan(connection, self.id)?;
        let ends = |entry: &Entry| entry.last == self.head;
        let complete = all.first().is_none_or(|entry| entry.first <= self.start.next()) && all.last().is_none_or(ends);
        let repairable = complete && continuous(&all) && (!all.is_empty() || self.start == self.head);
        Ok(Found { entries: pick(read, all), damaged: true, repairable })
    }

    /// Nothing if the index does not hold together.
    fn oldest_first(&self, connection: &Connection, read: &ReadFrames) -> rusqlite::Result<Option<Vec<Entry>>> {
        let (mut picked, mut begun) = (Vec::new(), false);
        // What is in front of the range or of the branch need not be seen.
        let from = read.from.min(read.through);
        let mut seen = self.start.max(from.previous());
        let mut statement = connection.prepare_cached(OLDEST_FIRST)?;
        let mut rows = statement.query([self.id, signed(from.0)])?;
        loop {
            let row = rows.next()?;
            let (entries, newest) = match row {
                Some(row) => (chunk(row)?, false),
                None => (self.recent(), true),
            };
            let Some(entries) = entries else { return Ok(None) };
            if let [first, .., last] | [first @ last] = &entries[..] {
                if first.first > seen.next() || (begun && first.first <= seen) {
                    return Ok(None);
                }
                (seen, begun) = (seen.max(last.last), true);
            }
            picked.extend(entries.into_iter().filter(|entry| wants(read, entry)));
            if newest || seen >= read.through || picked.len() > read.limit {
                break;
            }
        }
        let whole = seen >= self.head.min(read.through) || picked.len() > read.limit;
        picked.truncate(read.limit.saturating_add(1));
        Ok(whole.then_some(picked))
    }

    /// Nothing if the index does not hold together.
    fn newest_first(&self, connection: &Connection, read: &ReadFrames) -> rusqlite::Result<Option<Vec<Entry>>> {
        let Some(recent) = self.recent() else { return Ok(None) };
        // What is behind this was seen; what is not behind `floor` need not be.
        let mut left = recent.first().map_or(self.head, |entry| entry.first.previous());
        let from = read.from.min(read.through);
        let floor = self.start.max(from.previous());
        let mut picked: Vec<_> = recent.into_iter().rev().filter(|entry| wants(read, entry)).collect();
        let mut statement = connection.prepare_cached(NEWEST_FIRST)?;
        let end = left.min(read.through);
        let mut rows = statement.query([self.id, signed(from.0), signed(end.0)])?;
        while left > floor && picked.len() <= read.limit {
            let Some(row) = rows.next()? else { break };
            let Some(entries) = chunk(row)? else { return Ok(None) };
            if let [first, .., last] | [first @ last] = &entries[..] {
                if last.last > left || last.last < left.min(read.through) {
                    return Ok(None);
                }
                left = first.first.previous();
            }
            picked.extend(entries.into_iter().rev().filter(|entry| wants(read, entry)));
        }
        let whole = left <= floor || picked.len() > read.limit || read.through <= floor;
        picked.truncate(read.limit.saturating_add(1));
        Ok(whole.then_some(picked))
    }

    /// The newest entries; nothing if they are damaged.
    fn recent(&self) -> Option<Vec<Entry>> {
        decode(&self.recent).filter(|entries| entries.last().is_none_or(|entry| entry.last == self.head))
    }
}

/// The entries of `all` that `read` asks for, one more than its limit if there are more.
pub(super) fn pick(read: &ReadFrames, mut all: Vec<Entry>) -> Vec<Entry> {
    all.retain(|entry| wants(read, entry));
    if read.newest_first {
        all.reverse();
    }
    all.truncate(read.limit.saturating_add(1));
    all
}

/// Moves recent entries into chunks; how many stay.
pub(super) fn move_recent(connection: &Connection, branch: i64) -> rusqlite::Result<usize> {
    let recent: Vec<u8> = connection
        .prepare_cached("SELECT recent FROM branches WHERE id = ?1")?
        .query_row([branch], |row| row.get(0))?;
    match decode(&recent) {
        Some(entries) => store(connection, branch, &entries).map(|()| entries.len() % CHUNK),
        None => rebuild(connection, branch).map(|()| 0),
    }
}

/// Makes the index of a branch anew from its frames.
pub(super) fn rebuild(connection: &Connection, branch: i64) -> rusqlite::Result<()> {
    remove(connection, branch)?;
    store(connection, branch, &scan(connection, branch)?)
}

/// Forgets every entry but the recent ones.
pub(super) fn remove(connection: &Connection, branch: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM frame_index WHERE branch = ?1")?.execute([branch]).map(drop)
}

/// Forgets the entries of frames that end with `through` or before.
pub(super) fn trim(connection: &Connection, line: &Line, through: Seq) -> rusqlite::Result<()> {
    let values = [line.id, signed(through.0)];
    connection.prepare_cached("DELETE FROM frame_index WHERE branch = ?1 AND last <= ?2")?.execute(values)?;
    let cut = connection
        .prepare_cached("SELECT last, entries FROM frame_index WHERE branch = ?1 ORDER BY last LIMIT 1")?
        .query_row([line.id], |row| Ok((row.get::<_, i64>(0)?, chunk(row)?)))
        .optional()?;
    let (last, entries) = match cut {
        Some((last, entries)) => (Some(last), entries),
        None => (None, line.recent()),
    };
    let Some(mut entries) = entries else { return rebuild(connection, line.id) };
    entries.retain(|entry| entry.last > through);
    match last {
        Some(last) => connection
            .prepare_cached("UPDATE frame_index SET entries = ?3 WHERE branch = ?1 AND last = ?2")?
            .execute(params![line.id, last, encode(entries)])
            .map(drop),
        None => set_recent(connection, line.id, entries),
    }
}

/// Entries behind those that stand in chunks already: whole chunks, and the rest as recent ones.
fn store(connection: &Connection, branch: i64, entries: &[Entry]) -> rusqlite::Result<()> {
    let chunks = entries.chunks_exact(CHUNK);
    let rest = chunks.remainder().to_vec();
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO frame_index (branch, last, entries) VALUES (?1, ?2, ?3)")?;
    for chunk in chunks {
        let last = chunk[CHUNK - 1].last;
        statement.execute(params![branch, signed(last.0), encode(chunk.iter().copied())])?;
    }
    set_recent(connection, branch, rest)
}

fn set_recent(connection: &Connection, branch: i64, entries: Vec<Entry>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE branches SET recent = ?2 WHERE id = ?1")?;
    statement.execute(params![branch, encode(entries)]).map(drop)
}

fn scan(connection: &Connection, branch: i64) -> rusqlite::Result<Vec<Entry>> {
    let mut statement =
        connection.prepare_cached("SELECT id, first, last, marks FROM frames WHERE branch = ?1 ORDER BY last")?;
    statement.query_map([branch], entry)?.collect()
}

/// The entry of a row of id, first, last and marks.
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    // Marks that are no marks are all marks: rather found too often than not at all.
    let marks = u8::try_from(row.get::<_, i64>(3)?).unwrap_or(u8::MAX);
    Ok(Entry { id: row.get(0)?, first: seq(row, 1)?, last: seq(row, 2)?, marks: Marks(marks) })
}

/// The entries of a row of last and entries; nothing if they are damaged.
fn chunk(row: &Row<'_>) -> rusqlite::Result<Option<Vec<Entry>>> {
    let last = seq(row, 0)?;
    let entries = decode(row.get_ref(1)?.as_blob()?);
    Ok(entries.filter(|entries| entries.last().is_some_and(|entry| entry.last == last)))
}

fn wants(read: &ReadFrames, entry: &Entry) -> bool {
    read.wants(entry.first, entry.last, entry.marks)
}

fn seq(row: &Row<'_>, column: usize) -> rusqlite::Result<Seq> {
    row.get::<_, i64>(column).map(|number| Seq(number.unsigned_abs()))
}
