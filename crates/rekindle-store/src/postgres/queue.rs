//! The queue of the PostgreSQL store.

use async_trait::async_trait;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Enqueued, JobPage, JobQuery, JobState, NewJob, Notices, Queue, QueueInfo,
    SettleJob, Settled, WorkerInfo,
};
use rekindle_core::{Error, Namespace, QueueName, Result, SessionKey, Timestamp};
use tokio_postgres::types::Type;

use super::connection::{Value, now};
use super::failure::Outcome;
use super::jobs::{self, COLUMNS};
use super::notices::PostgresNotices;
use super::rows::{parsed, signed, time, unsigned};
use super::{PostgresStore, Scope, claim, put, run};

#[async_trait]
impl Queue for PostgresStore {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        new.check()?;
        let context = |error: Error| error.during("enqueue").on(&new.session);
        self.0.writable().map_err(context)?;
        run!(self, scope => put::enqueue(&scope, new)).map_err(context)
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        let context = |error: Error| error.during("dequeue").on(session);
        self.0.writable().map_err(context)?;
        run!(self, scope => jobs::remove(&scope, session, false)).map_err(context)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        let context = |error: Error| error.during("claim");
        self.0.writable().map_err(context)?;
        run!(self, scope => claim::claim(&scope, request)).map_err(context)
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        let context = |error: Error| error.during("beat");
        self.0.writable().map_err(context)?;
        run!(self, scope => renew(&scope, beat)).map_err(context)
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        let context = |error: Error| error.during("settle").on(&settle.session);
        self.0.writable().map_err(context)?;
        run!(self, scope => put::settle(&scope, settle)).map_err(context)
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        query.check()?;
        run!(self, scope => list(&scope, query)).map_err(|error| error.during("list jobs"))
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        run!(self, scope => queues(&scope, namespace)).map_err(|error| error.during("list queues"))
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        run!(self, scope => workers(&scope, namespace)).map_err(|error| error.during("list workers"))
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        let notices = PostgresNotices::open(self.0.clone()).await.map_err(|error| error.during("listen"))?;
        Ok(Box::new(notices))
    }
}

async fn renew(scope: &Scope<'_>, beat: &Beat) -> Outcome<Beaten> {
    let detail = serde_json::to_vec(&beat.worker)
        .map_err(|error| Error::invalid("the worker's description cannot be written").because(error))?;
    let held = |text: fn(&SessionKey) -> &str| beat.held.iter().map(|held| text(&held.session)).collect::<Vec<_>>();
    let (namespaces, names) = (held(|session| session.namespace.as_str()), held(|session| session.id.as_str()));
    let numbers: Vec<i64> = beat.held.iter().map(|held| signed(held.number)).collect();
    let own = [beat.worker.namespace.as_str(), beat.worker.worker.as_str()];
    let hold = i64::try_from(beat.hold.as_micros()).unwrap_or(i64::MAX);
    let values: [Value<'_>; 9] = [
        (&namespaces, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&numbers, Type::INT8_ARRAY),
        (&own[0], Type::TEXT),
        (&own[1], Type::TEXT),
        (&hold, Type::INT8),
        (&scope.now, Type::INT8),
        (&detail, Type::BYTEA),
        (&beat.ends, Type::BOOL),
    ];
    let rows = scope.connection.query(&beat_sql(scope.schema), &values).await?;
    let mut kept = Vec::new();
    let mut now = Timestamp::default();
    for row in &rows {
        now = time(row, 0)?;
        if row.try_get::<_, Option<&str>>(1)?.is_some() {
            kept.push(SessionKey::new(parsed(row, 1)?, parsed(row, 2)?));
        }
    }
    let lost = beat.held.iter().map(|held| &held.session).filter(|session| !kept.contains(session));
    Ok(Beaten { lost: lost.cloned().collect(), now })
}

fn beat_sql(schema: &str) -> String {
    format!(
        "WITH clock AS MATERIALIZED (SELECT {} AS now),
         until AS MATERIALIZED (SELECT least(now::numeric + $6, 9223372036854775807)::int8 AS at FROM clock),
         mine AS MATERIALIZED (
             SELECT j.session FROM {schema}.jobs j JOIN unnest($1::text[], $2::text[], $3::int8[]) AS h (namespace, name, number)
                 ON j.namespace = h.namespace AND j.name = h.name AND j.claims = h.number
             WHERE j.worker = $5 ORDER BY j.session FOR UPDATE OF j),
         renewed AS (
             UPDATE {schema}.jobs j SET ready_at = (SELECT at FROM until) FROM mine WHERE j.session = mine.session
             RETURNING j.namespace, j.name),
         here AS (
             INSERT INTO {schema}.workers (namespace, worker, seen_at, until, detail)
             SELECT $4, $5, c.now, u.at, $8 FROM clock c, until u WHERE NOT $9
             ON CONFLICT (namespace, worker) DO UPDATE SET seen_at = excluded.seen_at, until = excluded.until,
                 detail = excluded.detail),
         gone AS (
             DELETE FROM {schema}.workers w USING (
                 SELECT namespace, worker FROM {schema}.workers
                 WHERE CASE WHEN namespace = $4 AND worker = $5 THEN $9 ELSE until <= (SELECT now FROM clock) END
                 FOR UPDATE SKIP LOCKED) old
             WHERE w.namespace = old.namespace AND w.worker = old.worker)
         SELECT c.now, r.namespace, r.name FROM clock c LEFT JOIN renewed r ON true",
        now(7)
    )
}

async fn list(scope: &Scope<'_>, query: &JobQuery) -> Outcome<JobPage> {
    let sql = format!(
        "WITH clock AS MATERIALIZED (SELECT {} AS now)
         SELECT c.now, j.* FROM clock c LEFT JOIN LATERAL (
             SELECT {COLUMNS} FROM {}.jobs j
             WHERE j.namespace = $1 AND ($2::text IS NULL OR j.queue = $2) AND ($3::text IS NULL OR j.name = $3)
                 AND ($4::text IS NULL OR j.name > $4) AND ($5::text IS NULL OR $5 = CASE
                     WHEN j.ready_at IS NULL THEN 'parked' WHEN j.ready_at <= c.now THEN 'ready'
                     WHEN j.worker IS NOT NULL THEN 'claimed' ELSE 'scheduled' END)
             ORDER BY j.name LIMIT $6) j ON true
         ORDER BY j.name",
        now(7),
        scope.schema
    );
    let namespace = query.namespace.as_str();
    let values: [Value<'_>; 7] = [
        (&namespace, Type::TEXT),
        (&query.queue.as_ref().map(QueueName::as_str), Type::TEXT),
        (&query.session.as_ref().map(|session| session.as_str()), Type::TEXT),
        (&query.after.as_ref().map(|after| after.as_str()), Type::TEXT),
        (&query.state.map(JobState::as_str), Type::TEXT),
        (&signed(query.limit as u64 + 1), Type::INT8),
        (&scope.now, Type::INT8),
    ];
    let rows = scope.connection.query(&sql, &values).await?;
    let mut page = JobPage::default();
    for row in &rows {
        page.now = time(row, 0)?;
        page.jobs.extend(jobs::job(row, 1)?.map(|stored| stored.job));
    }
    let more = page.jobs.len() > query.limit;
    page.jobs.truncate(query.limit);
    page.next = page.jobs.last().filter(|_| more).map(|job| job.session.id.clone());
    Ok(page)
}

async fn queues(scope: &Scope<'_>, namespace: &Namespace) -> Outcome<Vec<QueueInfo>> {
    let sql = format!(
        "WITH clock AS MATERIALIZED (SELECT {} AS now)
         SELECT j.queue, count(*) FILTER (WHERE j.ready_at <= c.now),
             count(*) FILTER (WHERE j.ready_at > c.now AND j.worker IS NULL),
             count(*) FILTER (WHERE j.ready_at IS NULL),
             count(*) FILTER (WHERE j.ready_at > c.now AND j.worker IS NOT NULL),
             min(j.ready_at) FILTER (WHERE j.ready_at <= c.now)
         FROM clock c CROSS JOIN {}.jobs j WHERE j.namespace = $1 GROUP BY j.queue ORDER BY j.queue",
        now(2),
        scope.schema
    );
    let namespace = namespace.as_str();
    let rows = scope.connection.query(&sql, &[(&namespace, Type::TEXT), (&scope.now, Type::INT8)]).await?;
    let queue = |row: &tokio_postgres::Row| {
        let oldest: Option<i64> = row.try_get(5)?;
        Ok(QueueInfo {
            queue: parsed(row, 0)?,
            ready: unsigned(row, 1)?,
            scheduled: unsigned(row, 2)?,
            parked: unsigned(row, 3)?,
            claimed: unsigned(row, 4)?,
            oldest_ready: oldest.map(|at| Timestamp(at.max(0).unsigned_abs())),
        })
    };
    rows.iter().map(queue).collect()
}

async fn workers(scope: &Scope<'_>, namespace: &Namespace) -> Outcome<Vec<WorkerInfo>> {
    let sql = format!(
        "SELECT detail, seen_at, until FROM {}.workers WHERE namespace = $1 AND until > {} ORDER BY worker",
        scope.schema,
        now(2)
    );
    let namespace = namespace.as_str();
    let rows = scope.connection.query(&sql, &[(&namespace, Type::TEXT), (&scope.now, Type::INT8)]).await?;
    let mut workers = Vec::new();
    for row in &rows {
        // What a newer program says of itself is none of ours to judge.
        if let Ok(worker) = serde_json::from_slice::<WorkerInfo>(row.try_get(0)?) {
            workers.push(WorkerInfo { seen_at: time(row, 1)?, until: time(row, 2)?, ..worker });
        }
    }
    Ok(workers)
}
