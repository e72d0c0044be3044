//! Rows of jobs.

use rekindle_core::queue::{Claim, ClaimRequest, Job, KeyLimit};
use rekindle_core::{SessionKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Scope;
use super::connection::Value;
use super::failure::Outcome;
use super::rows::{optional_parsed, parsed, signed, time, unsigned};

/// What [`job`] reads of `j`.
pub(super) const COLUMNS: &str = "j.session, j.namespace, j.name, j.queue, j.priority, j.agent, j.key, j.key_most,
    j.enqueued_at, j.ready_at, j.worker, j.claims, j.attempts, j.wakes, j.note";

/// A job with the row of its session.
#[derive(Debug)]
pub(super) struct StoredJob {
    pub(super) session: i64,
    pub(super) job: Job,
}

/// Reads [`COLUMNS`], the first of which is at `start`; nothing if there is no job.
pub(super) fn job(row: &Row, start: usize) -> Outcome<Option<StoredJob>> {
    let Some(session) = row.try_get::<_, Option<i64>>(start)? else { return Ok(None) };
    let claims = unsigned(row, start + 11)?;
    let key: Option<String> = row.try_get(start + 6)?;
    let most: Option<i64> = row.try_get(start + 7)?;
    let ready_at: Option<i64> = row.try_get(start + 9)?;
    let job = Job {
        session: SessionKey::new(parsed(row, start + 1)?, parsed(row, start + 2)?),
        queue: parsed(row, start + 3)?,
        priority: row.try_get(start + 4)?,
        agent: row.try_get(start + 5)?,
        key: key.map(|key| KeyLimit { key, most: most.and_then(|most| u32::try_from(most).ok()).unwrap_or(1) }),
        enqueued_at: time(row, start + 8)?,
        ready_at: ready_at.map(|at| Timestamp(at.max(0).unsigned_abs())),
        claim: optional_parsed(row, start + 10)?.map(|worker| Claim { worker, number: claims }),
        claims,
        attempts: u32::try_from(unsigned(row, start + 12)?).unwrap_or(u32::MAX),
        wakes: unsigned(row, start + 13)?,
        note: String::from_utf8_lossy(row.try_get(start + 14)?).into_owned(),
    };
    Ok(Some(StoredJob { session, job }))
}

/// The job of a session, locked.
pub(super) async fn locked(scope: &Scope<'_>, key: &SessionKey) -> Outcome<Option<StoredJob>> {
    let sql =
        format!("SELECT {COLUMNS} FROM {}.jobs j WHERE j.namespace = $1 AND j.name = $2 FOR UPDATE", scope.schema);
    let names = [key.namespace.as_str(), key.id.as_str()];
    let row = scope.connection.query_opt(&sql, &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)]).await?;
    row.map_or(Ok(None), |row| job(&row, 0))
}

/// Writes the job of the session in row `session`, and tells everybody if others should look.
pub(super) async fn put(scope: &Scope<'_>, session: i64, job: &Job, tell: bool) -> Outcome<()> {
    let sql = format!(
        "WITH put AS (
             INSERT INTO {}.jobs AS j (session, namespace, name, queue, priority, agent, key, key_most, enqueued_at,
                 ready_at, worker, claims, attempts, wakes, note)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             ON CONFLICT (session) DO UPDATE SET queue = $4, priority = $5, agent = $6, key = $7, key_most = $8,
                 enqueued_at = $9, ready_at = $10, worker = $11, claims = $12, attempts = $13, wakes = $14, note = $15)
         SELECT CASE WHEN $16 THEN pg_notify($17, 'ready')::text END",
        scope.schema
    );
    let names = [job.session.namespace.as_str(), job.session.id.as_str(), job.queue.as_str()];
    let (note, worker) = (job.note.as_bytes(), job.claim.as_ref().map(|claim| claim.worker.as_str()));
    let values: [Value<'_>; 17] = [
        (&session, Type::INT8),
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&job.priority, Type::INT4),
        (&job.agent, Type::TEXT),
        (&job.key.as_ref().map(|key| key.key.as_str()), Type::TEXT),
        (&job.key.as_ref().map(|key| i64::from(key.most)), Type::INT8),
        (&signed(job.enqueued_at.0), Type::INT8),
        (&job.ready_at.map(|at| signed(at.0)), Type::INT8),
        (&worker, Type::TEXT),
        (&signed(job.claims), Type::INT8),
        (&i64::from(job.attempts), Type::INT8),
        (&signed(job.wakes), Type::INT8),
        (&note, Type::BYTEA),
        (&tell, Type::BOOL),
        (&scope.store.channel, Type::TEXT),
    ];
    scope.connection.query(&sql, &values).await?;
    Ok(())
}

/// Removes the job of a session; whether there was one.
pub(super) async fn remove(scope: &Scope<'_>, key: &SessionKey, tell: bool) -> Outcome<bool> {
    let sql = format!(
        "WITH gone AS (DELETE FROM {}.jobs WHERE namespace = $1 AND name = $2 RETURNING session)
         SELECT CASE WHEN $3 THEN pg_notify($4, 'ready')::text END FROM gone",
        scope.schema
    );
    let names = [key.namespace.as_str(), key.id.as_str()];
    let values: [Value<'_>; 4] =
        [(&names[0], Type::TEXT), (&names[1], Type::TEXT), (&tell, Type::BOOL), (&scope.store.channel, Type::TEXT)];
    Ok(scope.connection.query_opt(&sql, &values).await?.is_some())
}

/// What a worker wants, as values for a statement.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) namespace: &'a str,
    pub(super) queues: Option<Vec<&'a str>>,
    pub(super) agents: Option<Vec<&'a str>>,
}

impl<'a> Wanted<'a> {
    /// What `request` asks for.
    pub(super) fn of(request: &'a ClaimRequest) -> Self {
        let queues = request.queues.iter().map(|queue| queue.as_str()).collect();
        // No job has an agent with a zero byte, and the server would not take it.
        let agents = request.agents.as_ref();
        let agents =
            agents.map(|agents| agents.iter().map(String::as_str).filter(|name| !name.contains('\0')).collect());
        Self { namespace: request.namespace.as_str(), queues: (!request.queues.is_empty()).then_some(queues), agents }
    }

    /// The condition on `j`, whose values are `$1` to `$3`.
    pub(super) const SQL: &'static str = "j.namespace = $1 AND ($2::text[] IS NULL OR j.queue = ANY($2))
        AND ($3::text[] IS NULL OR j.agent = ANY($3))";

    /// The values of the condition.
    pub(super) fn values(&self) -> Vec<Value<'_>> {
        vec![(&self.namespace, Type::TEXT), (&self.queues, Type::TEXT_ARRAY), (&self.agents, Type::TEXT_ARRAY)]
    }
}
