//! Frames as rows: adding them, reading them by the entries of the index, removing them.

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{
    Damage, DamageKind, FramePage, Indexed, Marks, PAGE_BYTES, ReadFrames, Removed, Section, Seq, Slot,
};
use rusqlite::{CachedStatement, Connection, Row, params};

use super::entry::{Entry, encode};
use super::index::{self, Line};
use super::rows::signed;

/// A frame as a row, made by the caller so that the writer need not.
#[derive(Clone, Debug)]
pub(super) struct FrameRow {
    first: Seq,
    last: Seq,
    marks: Marks,
    body: Bytes,
}

impl FrameRow {
    /// The rows of `frames`.
    pub(super) fn all(frames: &[Frame]) -> Vec<Self> {
        let row =
            |frame: &Frame| Self { first: frame.first, last: frame.last, marks: frame.marks, body: frame.to_bytes() };
        frames.iter().map(row).collect()
    }

    /// The bytes of `rows` together.
    pub(super) fn bytes(rows: &[Self]) -> usize {
        rows.iter().map(|row| row.body.len()).sum()
    }

    /// The entries of `rows` in the index when they are numbered from `id`.
    pub(super) fn entries(rows: &[Self], id: i64) -> Vec<u8> {
        let entry = |(row, id): (&Self, i64)| Entry { id, first: row.first, last: row.last, marks: row.marks };
        encode(rows.iter().zip(id..).map(entry))
    }
}

/// The number of the next frame, and of those that follow.
pub(super) fn next_id(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT coalesce(max(id), 0) + 1 FROM frames")?.query_row([], |row| row.get(0))
}

/// Adds frames, numbered from `id`. Their entries are the caller's business.
pub(super) fn insert(connection: &Connection, branch: i64, id: i64, rows: &[FrameRow]) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT INTO frames (id, branch, first, last, marks, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (row, id) in rows.iter().zip(id..) {
        let (first, last) = (signed(row.first.0), signed(row.last.0));
        statement.execute(params![id, branch, first, last, row.marks.0, &row.body[..]])?;
    }
    Ok(())
}

/// Adds the parts of a base.
pub(super) fn insert_base(connection: &Connection, branch: i64, rows: &[FrameRow]) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT INTO bases (branch, first, last, marks, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for row in rows {
        let (first, last) = (signed(row.first.0), signed(row.last.0));
        statement.execute(params![branch, first, last, row.marks.0, &row.body[..]])?;
    }
    Ok(())
}

/// The entries of the parts of a base that `read` asks for.
pub(super) fn base_entries(connection: &Connection, branch: i64, read: &ReadFrames) -> rusqlite::Result<Vec<Entry>> {
    let mut statement =
        connection.prepare_cached("SELECT id, first, last, marks FROM bases WHERE branch = ?1 ORDER BY last")?;
    let all = statement.query_map([branch], index::entry)?.collect::<rusqlite::Result<_>>()?;
    Ok(index::pick(read, all))
}

const HISTORY: &str = "SELECT id, branch, first, last, body, marks FROM frames WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
const BASE: &str = "SELECT id, branch, first, last, body, marks FROM bases WHERE id BETWEEN ?1 AND ?2 ORDER BY id";

/// The page of `read` that `entries` make; nothing if a row is not the one its entry names.
pub(super) fn page(
    connection: &Connection,
    branch: i64,
    read: &ReadFrames,
    entries: &[Entry],
) -> rusqlite::Result<Option<FramePage>> {
    let mut page = Page { branch, read, slots: Vec::new(), bytes: 0 };
    let statement = match read.section {
        Section::History => HISTORY,
        Section::Base => BASE,
    };
    let mut statement = connection.prepare_cached(statement)?;
    let mut rest = &entries[..entries.len().min(read.limit)];
    while !rest.is_empty() && page.bytes < PAGE_BYTES {
        let run;
        (run, rest) = rest.split_at(run_length(rest));
        if !page.add(&mut statement, run)? {
            return Ok(None);
        }
    }
    let more = page.slots.len() < entries.len();
    Ok(Some(FramePage { slots: page.slots, more }))
}

/// How many of the first entries stand in rows behind each other.
fn run_length(entries: &[Entry]) -> usize {
    1 + entries.windows(2).take_while(|pair| pair[1].id == pair[0].id + 1).count()
}

struct Page<'a> {
    branch: i64,
    read: &'a ReadFrames,
    slots: Vec<Slot>,
    bytes: usize,
}

impl Page<'_> {
    /// Adds a run of entries until the page is full; whether the rows are those of the entries.
    fn add(&mut self, statement: &mut CachedStatement<'_>, run: &[Entry]) -> rusqlite::Result<bool> {
        let mut rows = statement.query([run[0].id, run[run.len() - 1].id])?;
        let mut row = rows.next()?;
        for entry in run {
            if self.bytes >= PAGE_BYTES {
                break;
            }
            match row {
                Some(found) if found.get::<_, i64>(0)? == entry.id => {
                    let columns = (found.get(1)?, found.get(2)?, found.get(3)?);
                    if columns != (self.branch, signed(entry.first.0), signed(entry.last.0)) {
                        return Ok(false);
                    }
                    self.add_row(found, entry)?;
                    row = rows.next()?;
                }
                _ => self.add_damage(entry, DamageKind::Missing, "the frame is gone".into()),
            }
        }
        Ok(true)
    }

    fn add_row(&mut self, row: &Row<'_>, entry: &Entry) -> rusqlite::Result<()> {
        let Ok(body) = row.get_ref(4)?.as_blob() else {
            self.add_damage(entry, DamageKind::Format, "the frame is not a row of bytes".into());
            return Ok(());
        };
        self.bytes += body.len();
        let (marks, listed) = (row.get(5)?, i64::from(entry.marks.0));
        // The column and the entry of the index are both compared: reads are filtered by either.
        let index = Indexed { first: entry.first, last: entry.last, marks: Some(marks) };
        let slot = Slot::indexed(&self.read.branch, index, Bytes::copy_from_slice(body));
        match &slot {
            Slot::Whole(frame) if i64::from(frame.marks.0) != listed => {
                let detail = format!("the index does not fit the frame, whose marks are {}", frame.marks.0);
                self.add_damage(entry, DamageKind::Index, detail);
            }
            _ => self.slots.push(slot),
        }
        Ok(())
    }

    fn add_damage(&mut self, entry: &Entry, kind: DamageKind, detail: String) {
        let (branch, first, last) = (self.read.branch.clone(), entry.first, entry.last);
        self.slots.push(Slot::Damaged(Damage::new(kind, branch, first, last, detail)));
    }
}

/// Removes the base of a branch and the frames of its `history` that end where it ends or before.
/// Their entries are the caller's business.
pub(super) fn remove(connection: &Connection, line: &Line, history: &ReadFrames) -> rusqlite::Result<Removed> {
    let (mut removed, through) = (Removed::default(), history.through);
    let found = line.entries(connection, history)?;
    let mut all_there = !found.damaged;
    for entry in found.entries.into_iter().filter(|entry| entry.last <= through) {
        all_there &= remove_row(connection, [entry.id, line.id], &mut removed)?;
    }
    if !all_there {
        // Whatever else belongs to the branch must not stay behind for ever.
        remove_all(connection, "frames", [line.id, signed(through.0)], &mut removed)?;
    }
    remove_all(connection, "bases", [line.id, i64::MAX], &mut removed)?;
    Ok(removed)
}

/// Removes a frame; whether it was there.
fn remove_row(connection: &Connection, values: [i64; 2], removed: &mut Removed) -> rusqlite::Result<bool> {
    let mut statement =
        connection.prepare_cached("DELETE FROM frames WHERE id = ?1 AND branch = ?2 RETURNING length(body)")?;
    let mut rows = statement.query(values)?;
    let Some(row) = rows.next()? else { return Ok(false) };
    removed.frames += 1;
    removed.bytes += row.get::<_, i64>(0)?.unsigned_abs();
    Ok(true)
}

fn remove_all(connection: &Connection, table: &str, values: [i64; 2], removed: &mut Removed) -> rusqlite::Result<()> {
    let condition = "WHERE branch = ?1 AND last <= ?2";
    let (frames, bytes): (i64, i64) = connection
        .prepare_cached(&format!("SELECT count(*), coalesce(sum(length(body)), 0) FROM {table} {condition}"))?
        .query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
    connection.prepare_cached(&format!("DELETE FROM {table} {condition}"))?.execute(values)?;
    removed.frames += frames.unsigned_abs();
    removed.bytes += bytes.unsigned_abs();
    Ok(())
}
