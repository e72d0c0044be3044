//! Making jobs and settling them. The common case is one statement; only one that changes nothing
//! makes it look closer, at a job that is locked. The conditions are those of
//! [`Job::enqueue`] and [`Job::settle`].

use std::time::Duration;

use rekindle_core::BranchId;
use rekindle_core::queue::{Enqueued, Job, JobState, NewJob, SettleJob, Settled, Settlement, When};
use tokio_postgres::types::Type;

use super::Scope;
use super::change::time_now;
use super::connection::{Value, now};
use super::failure::Outcome;
use super::jobs::{self, COLUMNS};
use super::rows::{missing, signed};

/// Makes a job, or takes over what is said anew.
pub(super) async fn enqueue(scope: &Scope<'_>, new: &NewJob) -> Outcome<Enqueued> {
    match enqueue_at_once(scope, new).await? {
        Some(enqueued) => Ok(enqueued),
        None => enqueue_locked(scope, new).await,
    }
}

/// Carries out a settlement.
pub(super) async fn settle(scope: &Scope<'_>, settle: &SettleJob) -> Outcome<Settled> {
    let at_once = match &settle.settlement {
        Settlement::Done => end(scope, settle).await?,
        _ => give_back(scope, settle).await?,
    };
    match at_once {
        Some(settled) => Ok(settled),
        None => settle_locked(scope, settle).await,
    }
}

/// In one statement, if there is a job or nobody else makes one at the same time.
async fn enqueue_at_once(scope: &Scope<'_>, new: &NewJob) -> Outcome<Option<Enqueued>> {
    let names = [new.session.namespace.as_str(), new.session.id.as_str(), new.queue.as_str()];
    let (delay, at) = match new.when {
        When::Now => (0, None),
        When::In(delay) => (micros(delay), None),
        When::At(at) => (0, Some(signed(at.0))),
    };
    let inbox = BranchId::inbox();
    let (inbox, key) = (inbox.as_str(), new.key.as_ref());
    let values: [Value<'_>; 12] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&new.priority, Type::INT4),
        (&new.agent, Type::TEXT),
        (&key.map(|key| key.key.as_str()), Type::TEXT),
        (&key.map(|key| i64::from(key.most)), Type::INT8),
        (&delay, Type::INT8),
        (&at, Type::INT8),
        (&scope.now, Type::INT8),
        (&inbox, Type::TEXT),
        (&scope.store.channel, Type::TEXT),
    ];
    let Some(row) = scope.connection.query_opt(&enqueue_sql(scope.schema), &values).await? else { return Ok(None) };
    let repeated: bool = row.try_get(0)?;
    Ok(jobs::job(&row, 2)?.map(|stored| Enqueued { job: stored.job, repeated }))
}

/// The row of the inbox is written as in [`meet_inbox`], before the job is there for others.
fn enqueue_sql(schema: &str) -> String {
    let now = now(10);
    format!(
        "WITH clock AS MATERIALIZED (SELECT {now} AS now),
         due AS MATERIALIZED (
             SELECT now, coalesce($9, least(now::numeric + $8, 9223372036854775807)::int8) AS at FROM clock),
         again AS (
             UPDATE {schema}.jobs j SET queue = $3, priority = $4, agent = $5, key = $6, key_most = $7, wakes = j.wakes + 1,
                 ready_at = CASE WHEN j.worker IS NOT NULL AND j.ready_at > due.now THEN j.ready_at ELSE due.at END,
                 attempts = CASE WHEN j.worker IS NOT NULL AND j.ready_at > due.now THEN j.attempts ELSE 0 END,
                 note = CASE WHEN j.worker IS NOT NULL AND j.ready_at > due.now THEN j.note ELSE '' END,
                 worker = CASE WHEN j.ready_at > due.now THEN j.worker END
             FROM due WHERE j.namespace = $1 AND j.name = $2 RETURNING {COLUMNS}),
         held AS MATERIALIZED (
             SELECT s.id FROM {schema}.sessions s
             WHERE s.namespace = $1 AND s.session = $2 AND NOT EXISTS (SELECT FROM again) FOR UPDATE OF s),
         met AS (
             UPDATE {schema}.branches b SET updated_at = b.updated_at FROM held
             WHERE b.session = held.id AND b.name = $11 RETURNING b.session),
         made AS (
             INSERT INTO {schema}.jobs AS j (session, namespace, name, queue, priority, agent, key, key_most, enqueued_at,
                 ready_at, claims, attempts, wakes, note)
             SELECT met.session, $1, $2, $3, $4, $5, $6, $7, due.now, due.at, 0, 0, 0, '' FROM met, due
             ON CONFLICT DO NOTHING RETURNING {COLUMNS})
         SELECT j.repeated, CASE WHEN j.ready_at <= due.now THEN pg_notify($12, 'ready')::text END, {COLUMNS}
         FROM due, (SELECT true AS repeated, again.* FROM again UNION ALL SELECT false, made.* FROM made) j"
    )
}

/// Removes a job that is done, if it is still the worker's and nobody woke it.
async fn end(scope: &Scope<'_>, settle: &SettleJob) -> Outcome<Option<Settled>> {
    let sql = format!(
        "WITH gone AS (
             DELETE FROM {}.jobs WHERE namespace = $1 AND name = $2 AND worker = $3 AND claims = $4 AND wakes = $5
             RETURNING agent, key)
         SELECT CASE WHEN agent IS NOT NULL OR key IS NOT NULL THEN pg_notify($6, 'ready')::text END FROM gone",
        scope.schema
    );
    let names = names(settle);
    let values: [Value<'_>; 6] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&signed(settle.number), Type::INT8),
        (&signed(settle.wakes), Type::INT8),
        (&scope.store.channel, Type::TEXT),
    ];
    Ok(scope.connection.query_opt(&sql, &values).await?.map(|_| Settled::Done))
}

/// What a settlement that keeps the job does to it, as values for a statement.
#[derive(Debug, Default)]
struct Change<'a> {
    /// It stays the worker's.
    stays: bool,
    at: Option<i64>,
    after: Option<i64>,
    /// By how much attempts become fewer; all of them if it does not say.
    fewer: Option<i64>,
    note: Option<&'a [u8]>,
}

impl<'a> Change<'a> {
    fn of(settlement: &'a Settlement) -> Self {
        match settlement {
            Settlement::Progress | Settlement::Done => Self { stays: true, ..Self::default() },
            Settlement::Later { ready_at } => Self { at: ready_at.map(|at| signed(at.0)), ..Self::default() },
            Settlement::Again { after, counts, note } => Self {
                after: Some(micros(*after)),
                fewer: Some(i64::from(!*counts)),
                note: Some(note.as_bytes()),
                ..Self::default()
            },
        }
    }
}

/// Changes a job, if it is still the worker's and nobody woke it.
async fn give_back(scope: &Scope<'_>, settle: &SettleJob) -> Outcome<Option<Settled>> {
    let (names, change) = (names(settle), Change::of(&settle.settlement));
    let values: [Value<'_>; 12] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&signed(settle.number), Type::INT8),
        (&signed(settle.wakes), Type::INT8),
        (&change.stays, Type::BOOL),
        (&change.at, Type::INT8),
        (&change.after, Type::INT8),
        (&change.fewer, Type::INT8),
        (&change.note, Type::BYTEA),
        (&scope.now, Type::INT8),
        (&scope.store.channel, Type::TEXT),
    ];
    let Some(row) = scope.connection.query_opt(&give_back_sql(scope.schema), &values).await? else { return Ok(None) };
    Ok(jobs::job(&row, 1)?.map(|stored| Settled::Kept(stored.job)))
}

fn give_back_sql(schema: &str) -> String {
    let now = now(11);
    format!(
        "WITH clock AS MATERIALIZED (SELECT {now} AS now),
         kept AS (
             UPDATE {schema}.jobs j SET worker = CASE WHEN $6 THEN j.worker END,
                 ready_at = CASE WHEN $6 THEN j.ready_at WHEN $8::int8 IS NULL THEN $7
                     ELSE least(c.now::numeric + $8, 9223372036854775807)::int8 END,
                 attempts = CASE WHEN $9::int8 IS NULL THEN 0 ELSE greatest(j.attempts - $9, 0) END,
                 note = coalesce($10, j.note)
             FROM clock c
             WHERE j.namespace = $1 AND j.name = $2 AND j.worker = $3 AND j.claims = $4 AND ($6 OR j.wakes = $5)
             RETURNING {COLUMNS})
         SELECT CASE WHEN coalesce(j.ready_at <= c.now, false)
                 OR (j.worker IS NULL AND (j.agent IS NOT NULL OR j.key IS NOT NULL))
             THEN pg_notify($12, 'ready')::text END, {COLUMNS}
         FROM kept j, clock c"
    )
}

fn names(settle: &SettleJob) -> [&str; 3] {
    [settle.session.namespace.as_str(), settle.session.id.as_str(), settle.worker.as_str()]
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

async fn enqueue_locked(scope: &Scope<'_>, new: &NewJob) -> Outcome<Enqueued> {
    scope.connection.begin().await?;
    // Held, so that the session cannot go meanwhile and nobody else makes its job.
    let sql = format!("SELECT id FROM {}.sessions WHERE namespace = $1 AND session = $2 FOR UPDATE", scope.schema);
    let names = [new.session.namespace.as_str(), new.session.id.as_str()];
    let row = scope.connection.query_opt(&sql, &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)]).await?;
    let id: i64 = row.ok_or_else(|| missing(&new.session, "enqueue"))?.try_get(0)?;
    let existing = jobs::locked(scope, &new.session).await?.map(|stored| stored.job);
    if existing.is_none() {
        meet_inbox(scope, id).await?;
    }
    let now = time_now(scope).await?;
    let enqueued = Job::enqueue(existing, new, now);
    jobs::put(scope, id, &enqueued.job, enqueued.job.state(now) == JobState::Ready).await?;
    scope.connection.commit().await?;
    Ok(enqueued)
}

/// Lets an append to the inbox come before the job or after it: whoever claims the job finds what was
/// appended, or the append finds the job and wakes it.
async fn meet_inbox(scope: &Scope<'_>, session: i64) -> Outcome<()> {
    let sql = format!("UPDATE {}.branches SET updated_at = updated_at WHERE session = $1 AND name = $2", scope.schema);
    let inbox = BranchId::inbox();
    scope.connection.query(&sql, &[(&session, Type::INT8), (&inbox.as_str(), Type::TEXT)]).await?;
    Ok(())
}

async fn settle_locked(scope: &Scope<'_>, settle: &SettleJob) -> Outcome<Settled> {
    scope.connection.begin().await?;
    let Some(stored) = jobs::locked(scope, &settle.session).await? else { return Ok(Settled::Lost) };
    let now = time_now(scope).await?;
    let limited = stored.job.key.is_some() || stored.job.agent.is_some();
    let (job, settled) = stored.job.settle(settle, now);
    match (&job, &settled) {
        (_, Settled::Lost) => return Ok(settled),
        (Some(job), _) => {
            // It is for somebody else now, or a limit has room again.
            let tell = job.state(now) == JobState::Ready || (job.claim.is_none() && limited);
            jobs::put(scope, stored.session, job, tell).await?;
        }
        (None, _) => drop(jobs::remove(scope, &settle.session, limited).await?),
    }
    scope.connection.commit().await?;
    Ok(settled)
}
