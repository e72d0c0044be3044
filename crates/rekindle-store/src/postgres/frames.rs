//! Frames as rows: their columns, reading them in pages, removing them.

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{
    BranchId, Error, FramePage, Indexed, Marks, PAGE_BYTES, ReadFrames, Removed, Result, Section, Seq, SessionKey, Slot,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::Value;
use super::failure::Outcome;
use super::rows::{find_session, missing, signed, unsigned};
use super::{Scope, capabilities};

/// What one statement may carry; the server takes a little more.
const MOST_BYTES: usize = 512 << 20;

/// Frames as columns.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameRows {
    pub(super) first: Vec<i64>,
    pub(super) last: Vec<i64>,
    pub(super) marks: Vec<i16>,
    bodies: Vec<Bytes>,
}

/// A frame as a row.
pub(super) struct FrameRow<'a> {
    pub(super) branch: i64,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) marks: i16,
    pub(super) body: &'a [u8],
}

impl FrameRows {
    /// The columns of `frames`, if the server can take them.
    pub(super) fn of(frames: &[Frame]) -> Result<Self> {
        let limit = capabilities().max_frame_bytes;
        let mut rows = Self::default();
        for frame in frames {
            if frame.stored_len() > limit {
                return Err(Error::limit("frame bytes", frame.stored_len() as u64, limit as u64));
            }
            if frame.last > Seq::MAX {
                return Err(Error::limit("record number", frame.last.0, Seq::MAX.0));
            }
            rows.first.push(signed(frame.first.0));
            rows.last.push(signed(frame.last.0));
            rows.marks.push(i16::from(frame.marks.0));
            rows.bodies.push(frame.to_bytes());
        }
        match rows.bytes() > MOST_BYTES {
            true => Err(Error::limit("bytes at once", rows.bytes() as u64, MOST_BYTES as u64)),
            false => Ok(rows),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Their bytes together.
    pub(super) fn bytes(&self) -> usize {
        self.bodies.iter().map(Bytes::len).sum()
    }

    /// Each of them, as a row of a branch.
    pub(super) fn each(&self, branch: i64) -> impl Iterator<Item = FrameRow<'_>> {
        (0..self.len()).map(move |at| FrameRow {
            branch,
            first: self.first[at],
            last: self.last[at],
            marks: self.marks[at],
            body: &self.bodies[at],
        })
    }

    /// The bodies, as they are bound.
    pub(super) fn bodies(&self) -> Vec<&[u8]> {
        self.bodies.iter().map(Bytes::as_ref).collect()
    }
}

/// A page of frames. What is over its bytes is counted but not sent.
pub(super) async fn read(scope: &Scope<'_>, read: &ReadFrames) -> Outcome<FramePage> {
    let values = (signed(read.from.0), signed(read.through.0), i16::from(read.marks.0));
    let (limit, page_bytes) = (signed(read.limit as u64 + 1), signed(PAGE_BYTES as u64));
    let names = [read.session.namespace.as_str(), read.session.id.as_str(), read.branch.as_str()];
    let values: [Value<'_>; 8] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&values.0, Type::INT8),
        (&values.1, Type::INT8),
        (&values.2, Type::INT2),
        (&limit, Type::INT8),
        (&page_bytes, Type::INT8),
    ];
    let rows = scope.connection.query(&page_sql(scope.schema, read), &values).await?;
    let Some(first) = rows.first() else {
        return Err(absent(scope, read).await?.into());
    };
    let found: Option<i64> = first.try_get(0)?;
    let Some(found) = found.and_then(|found| usize::try_from(found).ok()) else {
        return Ok(FramePage { slots: Vec::new(), more: false });
    };
    let slots = rows.iter().take(read.limit).map(|row| slot(row, &read.branch)).collect::<Outcome<Vec<_>>>()?;
    let more = slots.len() < found;
    Ok(FramePage { slots, more })
}

/// One row for each frame of the page, or one without a frame if there is none; no row if there is
/// no such branch. Frames follow each other, so the last one that begins at a record or earlier is
/// the first that ends there or later: that bounds the range by the index alone.
fn page_sql(schema: &str, read: &ReadFrames) -> String {
    let table = match read.section {
        Section::History => "frames",
        Section::Base => "bases",
    };
    let order = if read.newest_first { "DESC" } else { "ASC" };
    let range = format!(
        "branch = (SELECT id FROM place) AND last >= $4 AND first <= $5 AND last <= coalesce((SELECT e.last
             FROM {schema}.{table} e WHERE e.branch = (SELECT id FROM place) AND e.last >= $5
             ORDER BY e.last LIMIT 1), 9223372036854775807)"
    );
    let picked = match read.marks == Marks::NONE {
        true => format!(
            "SELECT first, last, body, marks FROM {schema}.{table} WHERE {range} ORDER BY last {order} LIMIT $7"
        ),
        // Marks stand in the index: rows without them are not visited.
        false => format!(
            "SELECT f.first, f.last, f.body, f.marks FROM (
                 SELECT branch, last FROM {schema}.{table} WHERE {range} AND marks & $6 <> 0
                 ORDER BY last {order} LIMIT $7) marked
             JOIN {schema}.{table} f ON f.branch = marked.branch AND f.last = marked.last"
        ),
    };
    format!(
        "WITH place AS MATERIALIZED (
             SELECT b.id FROM {schema}.sessions s JOIN {schema}.branches b ON b.session = s.id
             WHERE s.namespace = $1 AND s.session = $2 AND b.name = $3),
         picked AS (
             SELECT p.*, count(*) OVER () AS found, coalesce(sum(octet_length(p.body)) OVER (
                 ORDER BY p.last {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
             FROM ({picked}) p)
         SELECT p.found, p.first, p.last, p.body, p.marks FROM place LEFT JOIN picked p ON p.before < $8
         ORDER BY p.last {order}"
    )
}

/// The frame of a branch that ends at a record, if there is one.
pub(super) async fn ending_at(
    scope: &Scope<'_>,
    session: &SessionKey,
    branch: &BranchId,
    last: Seq,
) -> Outcome<Vec<Slot>> {
    let at = ReadFrames::all(session.clone(), branch.clone()).with_range(last, last).with_limit(1);
    Ok(read(scope, &at).await?.slots)
}

fn slot(row: &Row, branch: &BranchId) -> Outcome<Slot> {
    let (first, last, marks) = (Seq(unsigned(row, 1)?), Seq(unsigned(row, 2)?), row.try_get::<_, i16>(4)?);
    let index = Indexed { first, last, marks: Some(marks.into()) };
    Ok(Slot::indexed(branch, index, Bytes::copy_from_slice(row.try_get(3)?)))
}

async fn absent(scope: &Scope<'_>, read: &ReadFrames) -> Outcome<Error> {
    let found = find_session(scope, &read.session).await?;
    Ok(match found.map(|found| found.info.branch(&read.branch).map(drop)) {
        Some(Err(error)) => error.during("read"),
        _ => missing(&read.session, "read"),
    })
}

/// Adds the parts of a base.
pub(super) async fn insert_base(scope: &Scope<'_>, branch: i64, rows: &FrameRows) -> Outcome<()> {
    if rows.len() == 0 {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {}.bases (branch, first, last, marks, body)
         SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::int2[], $5::bytea[])",
        scope.schema
    );
    let values: [Value<'_>; 5] = [
        (&branch, Type::INT8),
        (&rows.first, Type::INT8_ARRAY),
        (&rows.last, Type::INT8_ARRAY),
        (&rows.marks, Type::INT2_ARRAY),
        (&rows.bodies(), Type::BYTEA_ARRAY),
    ];
    scope.connection.query(&sql, &values).await?;
    Ok(())
}

/// Removes the bases of branches and the frames of their history that end at `through` or before.
pub(super) async fn remove(scope: &Scope<'_>, branches: &[i64], through: Seq) -> Outcome<Removed> {
    let mut removed = Removed::default();
    for (table, through) in [("frames", through), ("bases", Seq::MAX)] {
        let sql = format!(
            "WITH gone AS (DELETE FROM {}.{table} WHERE branch = ANY($1) AND last <= $2 RETURNING octet_length(body) AS n)
             SELECT count(*), coalesce(sum(n), 0)::int8 FROM gone",
            scope.schema
        );
        let values: [Value<'_>; 2] = [(&branches, Type::INT8_ARRAY), (&signed(through.0), Type::INT8)];
        if let Some(row) = scope.connection.query_opt(&sql, &values).await? {
            removed.frames += unsigned(&row, 0)?;
            removed.bytes += unsigned(&row, 1)?;
        }
    }
    Ok(removed)
}
