//! Appending. The common case is one statement, which is one trip and one commit: it checks head and
//! lease, moves the head and adds the frames. Only one that changes nothing makes it look closer.
//!
//! Writers of the same branch wait for each other at its row, and the condition is looked at again
//! when the wait is over; so of two appends behind the same head, the second finds that it moved.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use rekindle_core::{
    Append, Appended, BranchId, Condition, Decided, Error, ErrorKind, Hash, Holds, Seq, SessionKey, Slot,
};
use tokio_postgres::types::Type;

use super::Scope;
use super::connection::{Value, live, now};
use super::failure::Outcome;
use super::frames::{self, FrameRows};
use super::group::Waiting;
use super::rows::{HeaderColumns, StoredSession, find_session, header, missing, signed};

/// The most branches whose rows are remembered.
const REMEMBERED: usize = 8_192;
/// How often to look again when everything moves.
const ATTEMPTS: usize = 8;
/// No lease lasts longer, in microseconds; with the time added it still is a number.
const LONGEST_LEASE: i64 = 1 << 62;

/// The rows of branches that were written lately. What is remembered may be gone, but is never
/// another branch.
#[derive(Debug, Default)]
pub(super) struct BranchCache(Mutex<HashMap<(SessionKey, BranchId), i64>>);

impl BranchCache {
    pub(super) fn find(&self, append: &Append) -> Option<i64> {
        self.with(|known| known.get(&(append.session.clone(), append.branch.clone())).copied())
    }

    fn remember(&self, append: &Append, id: i64) {
        self.with(|known| {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert((append.session.clone(), append.branch.clone()), id);
        });
    }

    fn forget(&self, append: &Append) {
        self.with(|known| known.remove(&(append.session.clone(), append.branch.clone())));
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<(SessionKey, BranchId), i64>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The statements, made once for each store.
#[derive(Debug)]
pub(super) struct AppendSql {
    by_id: String,
    by_name: String,
    inbox_by_id: String,
    inbox_by_name: String,
    conditional: String,
    inbox_conditional: String,
    together: String,
}

impl AppendSql {
    /// The statements for a schema.
    pub(super) fn new(schema: &str) -> Self {
        let by_name = format!(
            "(SELECT b.id FROM {schema}.sessions s JOIN {schema}.branches b ON b.session = s.id
              WHERE s.namespace = $15 AND s.session = $16 AND b.name = $17)"
        );
        Self {
            by_id: statement(schema, "$1", "", None),
            by_name: statement(schema, &by_name, "", None),
            inbox_by_id: statement(schema, "$1", "$15, $16", None),
            inbox_by_name: statement(schema, &by_name, "$18, $19", None),
            conditional: statement(schema, &by_name, "", Some(["$18", "$19", "$20", "$21"])),
            inbox_conditional: statement(schema, &by_name, "$18, $19", Some(["$20", "$21", "$22", "$23"])),
            together: statement_for_many(schema),
        }
    }
}

/// Where a statement finds what an append asks for: names of columns or numbers of parameters.
struct Asked<'a> {
    head: &'a str,
    hash: &'a str,
    status: &'a str,
    renew: &'a str,
    expected: &'a str,
    expected_hash: &'a str,
    fence: &'a str,
    last_wait: &'a str,
}

impl Asked<'_> {
    /// What is set in the row `b` of a branch.
    fn set(&self, now: &str) -> String {
        let Self { head, hash, status, renew, last_wait, .. } = self;
        format!(
            "head = {head}, head_hash = {hash}, updated_at = {now}, status = coalesce({status}, b.status),
             last_wait = coalesce({last_wait}, b.last_wait),
             lease_expires = CASE WHEN {renew}::int8 IS NULL THEN b.lease_expires ELSE {now} + {renew} END"
        )
    }

    /// The conditions: those of [`Append::decide`] for an append that is new.
    fn fits(&self, now: &str) -> String {
        let Self { expected, expected_hash, fence, .. } = self;
        let live = live("b.lease_expires", now);
        format!(
            "b.head = {expected} AND b.head_hash = {expected_hash} AND CASE WHEN {fence}::int8 IS NULL
                 THEN NOT coalesce({live}, false) ELSE b.lease_epoch = {fence} AND {live} END"
        )
    }
}

/// The statement for the branch whose row is `id`. With a `channel` and a payload it also wakes the
/// session's job and tells everybody; the conditions of waking are
/// [`Job::wake`](rekindle_core::queue::Job::wake)'s.
///
/// A job that is made while this waits for the inbox is not seen by a statement that began before.
/// Making one writes the row of the inbox, so then it is another version of the row than the one
/// this began with; nothing is changed, and a new statement sees the job.
///
/// With the name, head, hash and last wait of another branch as `condition`, both rows are locked, in the
/// order in which everybody locks them, before the other one is looked at: it stays so until this is
/// committed.
fn statement(schema: &str, id: &str, channel: &str, condition: Option<[&str; 4]>) -> String {
    let now = now(13);
    let asked = Asked {
        head: "$2",
        hash: "$3",
        status: "$4",
        renew: "$5",
        expected: "$6",
        expected_hash: "$7",
        fence: "$8",
        last_wait: "$14",
    };
    let (unchanged, woken, told) = match channel.split_once(", ") {
        Some((channel, payload)) => (
            format!("AND b.xmin = (SELECT seen.xmin FROM {schema}.branches seen WHERE seen.id = {id})"),
            format!(
                ", woken AS (
                     UPDATE {schema}.jobs j SET wakes = j.wakes + 1, ready_at = CASE
                         WHEN j.worker IS NOT NULL AND j.ready_at > {now} THEN j.ready_at
                         ELSE least(coalesce(j.ready_at, {now}), {now}) END
                     FROM moved WHERE j.session = moved.session RETURNING j.session)"
            ),
            format!(
                ", pg_notify({channel}, CASE WHEN EXISTS (SELECT FROM woken) THEN 'job ' ELSE 'inbox ' END || {payload})::text"
            ),
        ),
        None => Default::default(),
    };
    let (locked, holds) = match condition {
        Some([name, head, hash, last_wait]) => (
            format!(
                "both_branches AS MATERIALIZED (
                     SELECT b.name, b.head, b.head_hash, b.last_wait
                     FROM {schema}.sessions s JOIN {schema}.branches b ON b.session = s.id
                     WHERE s.namespace = $15 AND s.session = $16 AND b.name IN ($17, {name})
                     ORDER BY b.id FOR UPDATE OF b),"
            ),
            format!(
                "AND EXISTS (SELECT FROM both_branches o WHERE o.name = {name}
                     AND ({head}::int8 IS NULL OR (o.head = {head} AND o.head_hash = {hash}))
                     AND ({last_wait}::int8 IS NULL OR o.last_wait = {last_wait}))"
            ),
        ),
        None => Default::default(),
    };
    let (set, fits) = (asked.set(&now), asked.fits(&now));
    format!(
        "WITH {locked} moved AS (
             UPDATE {schema}.branches b SET {set} WHERE b.id = {id} AND {fits} {unchanged} {holds}
             RETURNING b.id, b.session),
         added AS (
             INSERT INTO {schema}.frames (branch, first, last, marks, body)
             SELECT moved.id, f.first, f.last, f.marks, f.body
             FROM moved, unnest($9::int8[], $10::int8[], $11::int2[], $12::bytea[]) AS f (first, last, marks, body))
             {woken}
         SELECT moved.id {told} FROM moved"
    )
}

/// The statement for many branches, none of which is an inbox.
fn statement_for_many(schema: &str) -> String {
    let now = now(14);
    let asked = Asked {
        head: "a.head",
        hash: "a.hash",
        status: "a.status",
        renew: "a.renew",
        expected: "a.expected",
        expected_hash: "a.expected_hash",
        fence: "a.fence",
        last_wait: "a.last_wait",
    };
    let (set, fits) = (asked.set(&now), asked.fits(&now));
    format!(
        "WITH moved AS (
             UPDATE {schema}.branches b SET {set}
             FROM unnest($1::int8[], $2::int8[], $3::bytea[], $4::text[], $5::int8[], $6::int8[], $7::bytea[], $8::int8[],
                     $15::int8[])
                 AS a (branch, head, hash, status, renew, expected, expected_hash, fence, last_wait)
             WHERE b.id = a.branch AND {fits} RETURNING b.id),
         added AS (
             INSERT INTO {schema}.frames (branch, first, last, marks, body)
             SELECT f.branch, f.first, f.last, f.marks, f.body
             FROM unnest($9::int8[], $10::int8[], $11::int8[], $12::int2[], $13::bytea[])
                 AS f (branch, first, last, marks, body)
             JOIN moved ON moved.id = f.branch)
         SELECT id FROM moved"
    )
}

/// What an append asks for besides its frames, as it is bound.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// The row of the branch.
    pub(super) branch: i64,
    head: i64,
    hash: Hash,
    status: Option<&'static str>,
    renew: Option<i64>,
    expected: i64,
    expected_hash: Hash,
    fence: Option<i64>,
    last_wait: Option<i64>,
}

impl Move {
    /// What `append` asks for on the branch in this row.
    pub(super) fn of(append: &Append, branch: i64) -> Self {
        let (head, expected) = (append.head(), append.expected);
        let renew = append.renew.filter(|_| append.fence.is_some());
        Self {
            branch,
            head: signed(head.seq.0),
            hash: head.hash,
            status: append.status.map(|status| status.as_str()),
            renew: renew.map(|ttl| i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX).min(LONGEST_LEASE)),
            expected: signed(expected.seq.0),
            expected_hash: expected.hash,
            fence: append.fence.map(|epoch| signed(epoch.0)),
            last_wait: append.last_wait().map(|seq| signed(seq.0)),
        }
    }
}

/// Whether an append adds frames to a branch and does nothing else.
pub(super) fn is_plain(append: &Append) -> bool {
    !append.branch.is_inbox() && !is_describing(append) && append.condition.is_none()
}

fn is_describing(append: &Append) -> bool {
    append.describe.is_some() || append.sealed.is_some()
}

/// Carries out many plain appends on branches of different sessions: the rows of the branches whose
/// heads were moved.
pub(super) async fn move_heads(scope: &Scope<'_>, appends: &[Waiting]) -> Outcome<HashSet<i64>> {
    fn column<T>(appends: &[Waiting], of: impl Fn(&Move) -> T) -> Vec<T> {
        appends.iter().map(|waiting| of(&waiting.moves)).collect()
    }
    let hashes: Vec<&[u8]> = appends.iter().map(|waiting| &waiting.moves.hash.0[..]).collect();
    let expected_hashes: Vec<&[u8]> = appends.iter().map(|waiting| &waiting.moves.expected_hash.0[..]).collect();
    let frames = || appends.iter().flat_map(|waiting| waiting.rows.each(waiting.moves.branch));
    let bodies: Vec<&[u8]> = frames().map(|frame| frame.body).collect();
    let values: [Value<'_>; 15] = [
        (&column(appends, |moves| moves.branch), Type::INT8_ARRAY),
        (&column(appends, |moves| moves.head), Type::INT8_ARRAY),
        (&hashes, Type::BYTEA_ARRAY),
        (&column(appends, |moves| moves.status), Type::TEXT_ARRAY),
        (&column(appends, |moves| moves.renew), Type::INT8_ARRAY),
        (&column(appends, |moves| moves.expected), Type::INT8_ARRAY),
        (&expected_hashes, Type::BYTEA_ARRAY),
        (&column(appends, |moves| moves.fence), Type::INT8_ARRAY),
        (&frames().map(|frame| frame.branch).collect::<Vec<_>>(), Type::INT8_ARRAY),
        (&frames().map(|frame| frame.first).collect::<Vec<_>>(), Type::INT8_ARRAY),
        (&frames().map(|frame| frame.last).collect::<Vec<_>>(), Type::INT8_ARRAY),
        (&frames().map(|frame| frame.marks).collect::<Vec<_>>(), Type::INT2_ARRAY),
        (&bodies, Type::BYTEA_ARRAY),
        (&scope.now, Type::INT8),
        (&column(appends, |moves| moves.last_wait), Type::INT8_ARRAY),
    ];
    let rows = scope.connection.query(&scope.store.append_sql.together, &values).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Carries out an append or says why not.
pub(super) async fn append(scope: &Scope<'_>, append: &Append, rows: &FrameRows) -> Outcome<Appended> {
    let branches = &scope.store.branches;
    let mut known = branches.find(append);
    for _ in 0..ATTEMPTS {
        let moved = match is_describing(append) {
            true => move_and_describe(scope, append, rows).await?,
            false => move_head(scope, append, rows, known).await?,
        };
        if let Some(id) = moved {
            branches.remember(append, id);
            return Ok(Appended { head: append.head() });
        }
        if let Some(appended) = explain(scope, append).await? {
            return Ok(appended);
        }
        // It would succeed now: the branch was made again under the same name, or a lease ended.
        branches.forget(append);
        known = None;
    }
    let message = format!("branch `{}` changes all the time", append.branch);
    Err(append.error(Error::new(ErrorKind::StoreUnavailable, message)).into())
}

/// The row of the branch, if its head was moved.
async fn move_head(scope: &Scope<'_>, append: &Append, rows: &FrameRows, known: Option<i64>) -> Outcome<Option<i64>> {
    let known = known.filter(|_| append.condition.is_none());
    let moves = Move::of(append, known.unwrap_or_default());
    let (hash, expected_hash) = (&moves.hash.0[..], &moves.expected_hash.0[..]);
    let bodies = rows.bodies();
    let mut values: Vec<Value<'_>> = vec![
        (&known, Type::INT8),
        (&moves.head, Type::INT8),
        (&hash, Type::BYTEA),
        (&moves.status, Type::TEXT),
        (&moves.renew, Type::INT8),
        (&moves.expected, Type::INT8),
        (&expected_hash, Type::BYTEA),
        (&moves.fence, Type::INT8),
        (&rows.first, Type::INT8_ARRAY),
        (&rows.last, Type::INT8_ARRAY),
        (&rows.marks, Type::INT2_ARRAY),
        (&bodies, Type::BYTEA_ARRAY),
        (&scope.now, Type::INT8),
        (&moves.last_wait, Type::INT8),
    ];
    let names = [append.session.namespace.as_str(), append.session.id.as_str(), append.branch.as_str()];
    if known.is_none() {
        values.extend(names.iter().map(|name| (name as _, Type::TEXT)));
    }
    let payload = scope.store.payload(&append.session);
    let inbox = append.branch.is_inbox();
    if inbox {
        values.extend([(&scope.store.channel as _, Type::TEXT), (&payload as _, Type::TEXT)]);
    }
    let condition = append.condition.as_ref().map(Demands::of);
    if let Some(demands) = &condition {
        values.extend([
            (&demands.branch as _, Type::TEXT),
            (&demands.head as _, Type::INT8),
            (&demands.hash as _, Type::BYTEA),
            (&demands.last_wait as _, Type::INT8),
        ]);
    }
    let sql = &scope.store.append_sql;
    let sql = match (inbox, known.is_some()) {
        (false, _) if condition.is_some() => &sql.conditional,
        (true, _) if condition.is_some() => &sql.inbox_conditional,
        (false, true) => &sql.by_id,
        (false, false) => &sql.by_name,
        (true, true) => &sql.inbox_by_id,
        (true, false) => &sql.inbox_by_name,
    };
    let row = scope.connection.query_opt(sql, &values).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// A condition, as it is bound.
struct Demands<'a> {
    branch: &'a str,
    head: Option<i64>,
    hash: Option<&'a [u8]>,
    last_wait: Option<i64>,
}

impl<'a> Demands<'a> {
    fn of(condition: &'a Condition) -> Self {
        let branch = condition.branch.as_str();
        match &condition.holds {
            Holds::Head(head) => {
                Self { branch, head: Some(signed(head.seq.0)), hash: Some(&head.hash.0[..]), last_wait: None }
            }
            Holds::LastWait(seq) => Self { branch, head: None, hash: None, last_wait: Some(signed(seq.0)) },
        }
    }
}

/// The same, with a change of the header.
async fn move_and_describe(scope: &Scope<'_>, append: &Append, rows: &FrameRows) -> Outcome<Option<i64>> {
    scope.connection.begin().await?;
    let schema = scope.schema;
    let key = &append.session;
    // Sessions are locked before their branches, here as everywhere.
    let sql = format!("SELECT id, header FROM {schema}.sessions WHERE namespace = $1 AND session = $2 FOR UPDATE");
    let names = [key.namespace.as_str(), key.id.as_str()];
    let row = scope.connection.query_opt(&sql, &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)]).await?;
    let moved = move_head(scope, append, rows, None).await?;
    let (Some(row), Some(branch)) = (row, moved) else {
        scope.connection.roll_back().await?;
        return Ok(None);
    };
    let (id, bytes): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
    let columns = described(append, bytes)?;
    let sql = format!("UPDATE {schema}.sessions SET search = $2, tags = $3, labels = $4, header = $5 WHERE id = $1");
    let values: [Value<'_>; 5] = [
        (&id, Type::INT8),
        (&columns.search, Type::BYTEA),
        (&columns.tags, Type::BYTEA_ARRAY),
        (&columns.labels, Type::BYTEA_ARRAY),
        (&columns.header, Type::BYTEA),
    ];
    scope.connection.query(&sql, &values).await?;
    scope.connection.commit().await?;
    Ok(Some(branch))
}

fn described(append: &Append, bytes: &[u8]) -> Outcome<HeaderColumns> {
    let mut header = header(&append.session, bytes).map_err(|detail| append.error(Error::corrupt(detail)))?;
    if let Some(change) = &append.describe {
        header.apply(change);
    }
    if let Some(sealed) = &append.sealed {
        header.sealed = Some(sealed.clone());
    }
    HeaderColumns::of(&header)
}

/// Says why the head could not be moved; nothing if nothing stands against it any more.
async fn explain(scope: &Scope<'_>, append: &Append) -> Outcome<Option<Appended>> {
    let found = find_session(scope, &append.session).await?;
    let Some(StoredSession { info, .. }) = found else {
        return Err(missing(&append.session, "append").into());
    };
    let branch = info.branch(&append.branch).map_err(|error| append.error(error))?;
    let stored = match branch.head.seq >= append.head().seq {
        true => stored_hash(scope, append, append.head().seq).await?,
        false => None,
    };
    match append.decide(branch, append.other(&info.branches), info.observed_at, |_| Ok(stored))? {
        Decided::Repeated(appended) => Ok(Some(appended)),
        Decided::Fresh => Ok(None),
    }
}

async fn stored_hash(scope: &Scope<'_>, append: &Append, last: Seq) -> Outcome<Option<Hash>> {
    let slots = frames::ending_at(scope, &append.session, &append.branch, last).await?;
    // A damaged frame is not the caller's frame.
    Ok(slots.into_iter().find_map(|slot| match slot {
        Slot::Whole(frame) if frame.last == last => Some(frame.hash),
        _ => None,
    }))
}
