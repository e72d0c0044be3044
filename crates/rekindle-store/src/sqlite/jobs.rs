//! Rows of jobs and workers.

use rekindle_core::queue::{Claim, Job, JobQuery, KeyLimit, QueueInfo, WorkerInfo};
use rekindle_core::{Namespace, QueueName, SessionKey, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::rows::{optional_parsed, parsed, signed, unsigned};

const COLUMNS: &str = "namespace, session, queue, priority, agent, key, key_most, enqueued_at, ready_at, worker,
    claims, attempts, wakes, note";

/// Reads [`COLUMNS`].
fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let claims = unsigned(row, 10)?;
    let key: Option<String> = row.get(5)?;
    let most: Option<u32> = row.get(6)?;
    Ok(Job {
        session: SessionKey::new(parsed(row, 0)?, parsed(row, 1)?),
        queue: parsed(row, 2)?,
        priority: row.get(3)?,
        agent: row.get(4)?,
        key: key.map(|key| KeyLimit { key, most: most.unwrap_or(1) }),
        enqueued_at: Timestamp(unsigned(row, 7)?),
        ready_at: row.get::<_, Option<i64>>(8)?.map(|at| Timestamp(at.max(0).unsigned_abs())),
        claim: optional_parsed(row, 9)?.map(|worker| Claim { worker, number: claims }),
        claims,
        attempts: row.get(11)?,
        wakes: unsigned(row, 12)?,
        note: row.get(13)?,
    })
}

/// The job of a session.
pub(super) fn find(connection: &Connection, key: &SessionKey) -> rusqlite::Result<Option<Job>> {
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE namespace = ?1 AND session = ?2");
    connection.prepare_cached(&sql)?.query_row([key.namespace.as_str(), key.id.as_str()], job).optional()
}

/// Writes a job over the one its session has.
pub(super) fn put(connection: &Connection, job: &Job) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO jobs ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    );
    connection.prepare_cached(&sql)?.execute(params![
        job.session.namespace.as_str(),
        job.session.id.as_str(),
        job.queue.as_str(),
        job.priority,
        job.agent,
        job.key.as_ref().map(|key| &key.key),
        job.key.as_ref().map(|key| key.most),
        signed(job.enqueued_at.0),
        job.ready_at.map(|at| signed(at.0)),
        job.claim.as_ref().map(|claim| claim.worker.as_str()),
        signed(job.claims),
        job.attempts,
        signed(job.wakes),
        job.note,
    ])?;
    Ok(())
}

/// Removes the job of a session; whether there was one.
pub(super) fn remove(connection: &Connection, key: &SessionKey) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached("DELETE FROM jobs WHERE namespace = ?1 AND session = ?2")?;
    Ok(statement.execute([key.namespace.as_str(), key.id.as_str()])? > 0)
}

/// Something arrived for a session: its job becomes ready, and everybody is told.
pub(super) fn wake(connection: &Connection, key: &SessionKey, now: Timestamp) -> rusqlite::Result<()> {
    if let Some(mut job) = find(connection, key)? {
        job.wake(now);
        put(connection, &job)?;
    }
    tell(connection)
}

/// Others should look.
pub(super) fn tell(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE news SET count = count + 1 WHERE id = 1")?.execute([]).map(drop)
}

/// How much there was to look at in all.
pub(super) fn news(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT count FROM news WHERE id = 1")?.query_row([], |row| row.get(0))
}

/// Which jobs to look at, and in which order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Those that are ready, in the order they should begin.
    Ready,
    /// Those that become ready by themselves, soonest first.
    Coming,
    /// Those that a worker has.
    Claimed,
}

impl Look {
    fn condition(self) -> &'static str {
        match self {
            Self::Ready => "ready_at <= ?2 ORDER BY priority DESC, ready_at, session",
            Self::Coming => "ready_at > ?2 ORDER BY ready_at",
            Self::Claimed => "worker IS NOT NULL AND ready_at > ?2",
        }
    }
}

/// Gives jobs as they are at `now` to `visit`, until it says to stop.
pub(super) fn each(
    connection: &Connection,
    look: Look,
    namespace: &Namespace,
    now: Timestamp,
    mut visit: impl FnMut(Job) -> bool,
) -> rusqlite::Result<()> {
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE namespace = ?1 AND {}", look.condition());
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![namespace.as_str(), signed(now.0)])?;
    while let Some(row) = rows.next()? {
        if !visit(job(row)?) {
            return Ok(());
        }
    }
    Ok(())
}

/// The jobs a query asks for, one more than its limit if there are more.
pub(super) fn list(connection: &Connection, query: &JobQuery, now: Timestamp) -> rusqlite::Result<Vec<Job>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM jobs
         WHERE namespace = ?1 AND session > ?2 AND (?3 IS NULL OR session = ?3) AND (?4 IS NULL OR queue = ?4)
         ORDER BY session"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let after = query.after.as_ref().map_or("", |after| after.as_str());
    let session = query.session.as_ref().map(|session| session.as_str());
    let queue = query.queue.as_ref().map(QueueName::as_str);
    let mut rows = statement.query(params![query.namespace.as_str(), after, session, queue])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        let job = job(row)?;
        if query.wants(&job, now) {
            jobs.push(job);
        }
        if jobs.len() > query.limit {
            break;
        }
    }
    Ok(jobs)
}

/// What is in each queue.
pub(super) fn queues(
    connection: &Connection,
    namespace: &Namespace,
    now: Timestamp,
) -> rusqlite::Result<Vec<QueueInfo>> {
    let mut statement = connection.prepare_cached(
        "SELECT queue, sum(ready_at <= ?2), sum(ready_at > ?2 AND worker IS NULL), sum(ready_at IS NULL),
             sum(ready_at > ?2 AND worker IS NOT NULL), min(CASE WHEN ready_at <= ?2 THEN ready_at END)
         FROM jobs WHERE namespace = ?1 GROUP BY queue ORDER BY queue",
    )?;
    let rows = statement.query_map(params![namespace.as_str(), signed(now.0)], |row| {
        let count = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.unwrap_or(0).unsigned_abs());
        Ok(QueueInfo {
            queue: parsed(row, 0)?,
            ready: count(1)?,
            scheduled: count(2)?,
            parked: count(3)?,
            claimed: count(4)?,
            oldest_ready: row.get::<_, Option<i64>>(5)?.map(|at| Timestamp(at.unsigned_abs())),
        })
    })?;
    rows.collect()
}

/// Keeps a worker on the list, and takes those off it that were not heard of since long ago.
pub(super) fn put_worker(connection: &Connection, worker: &WorkerInfo, detail: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO workers (namespace, worker, until, detail) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![worker.namespace.as_str(), worker.worker.as_str(), signed(worker.until.0), detail])?;
    connection.prepare_cached("DELETE FROM workers WHERE until <= ?1")?.execute([signed(worker.seen_at.0)])?;
    Ok(())
}

/// Takes a worker off the list.
pub(super) fn remove_worker(connection: &Connection, worker: &WorkerInfo) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM workers WHERE namespace = ?1 AND worker = ?2")?
        .execute([worker.namespace.as_str(), worker.worker.as_str()])
        .map(drop)
}

/// What workers said of themselves, of those that count as alive at `now`.
pub(super) fn workers(connection: &Connection, namespace: &Namespace, now: Timestamp) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        connection.prepare_cached("SELECT detail FROM workers WHERE namespace = ?1 AND until > ?2 ORDER BY worker")?;
    let rows = statement.query_map(params![namespace.as_str(), signed(now.0)], |row| row.get(0))?;
    rows.collect()
}
