//! Claiming jobs. Without limits it is one statement, in which workers pass over each other's rows.
//! With limits, whoever claims in a namespace waits for whoever does so already, so that counts are
//! exact.

use rekindle_core::queue::{ClaimRequest, Claimed, Counts, Job, KeyLimit, NewJob};
use rekindle_core::{SessionId, SessionKey, Timestamp};
use tokio_postgres::types::Type;

use super::Scope;
use super::change::time_now;
use super::connection::{Value, now};
use super::failure::Outcome;
use super::jobs::{COLUMNS, StoredJob, Wanted, job};
use super::rows::{signed, time, unsigned};

/// How many jobs are looked at at once.
const LOOKED_AT: i64 = 256;
/// How often to choose anew if others had their hands on all that was chosen.
const ATTEMPTS: usize = 3;

/// Takes jobs that are ready.
pub(super) async fn claim(scope: &Scope<'_>, request: &ClaimRequest) -> Outcome<Claimed> {
    let wanted = Wanted::of(request);
    let first = claim_freely(scope, request, &wanted).await?;
    match first.held_back {
        true => claim_within_limits(scope, request, &wanted).await,
        false => Ok(first.claimed),
    }
}

struct First {
    claimed: Claimed,
    /// There are jobs, but limits have to be looked at.
    held_back: bool,
}

async fn claim_freely(scope: &Scope<'_>, request: &ClaimRequest, wanted: &Wanted<'_>) -> Outcome<First> {
    let worker = request.worker.as_str();
    let limited = !request.agent_limits.is_empty();
    let (most, hold) = (signed(request.most as u64), micros(request.hold));
    let mut values = wanted.values();
    values.extend([
        (&scope.now as _, Type::INT8),
        (&most as _, Type::INT8),
        (&worker as _, Type::TEXT),
        (&hold as _, Type::INT8),
        (&limited as _, Type::BOOL),
    ]);
    let rows = scope.connection.query(&claim_sql(scope.schema), &values).await?;
    let (mut claimed, mut held_back) = (Claimed::default(), false);
    for row in &rows {
        claimed.now = time(row, 0)?;
        claimed.next = row.try_get::<_, Option<i64>>(1)?.map(|at| Timestamp(at.max(0).unsigned_abs()));
        held_back = unsigned(row, 2)? > 0;
        claimed.jobs.extend(job(row, 3)?.map(|stored| stored.job));
    }
    held_back &= claimed.jobs.is_empty();
    Ok(First { claimed: ordered(claimed, &[]), held_back })
}

/// The statement that claims unless limits have to be looked at.
fn claim_sql(schema: &str) -> String {
    let (clock, wanted) = (now(4), Wanted::SQL);
    format!(
        "WITH clock AS MATERIALIZED (SELECT {clock} AS now),
         ready AS MATERIALIZED (
             SELECT j.session, j.key, j.priority, j.ready_at FROM {schema}.jobs j
             WHERE {wanted} AND j.ready_at <= (SELECT now FROM clock)
             ORDER BY j.priority DESC, j.ready_at, j.name LIMIT $5 FOR UPDATE OF j SKIP LOCKED),
         taken AS (
             UPDATE {schema}.jobs j SET claims = j.claims + 1, attempts = least(j.attempts + 1, 4294967295), worker = $6,
                 ready_at = least((SELECT now FROM clock)::numeric + $7, 9223372036854775807)::int8
             FROM ready WHERE j.session = ready.session AND NOT $8
                 AND NOT EXISTS (SELECT FROM ready WHERE key IS NOT NULL)
             RETURNING {COLUMNS}, ready.priority AS order_priority, ready.ready_at AS order_ready)
         SELECT c.now, (SELECT j.ready_at FROM {schema}.jobs j
                 WHERE {wanted} AND j.ready_at > (SELECT now FROM clock) ORDER BY j.ready_at LIMIT 1),
             (SELECT count(*) FROM ready), j.*
         FROM clock c LEFT JOIN taken j ON true ORDER BY j.order_priority DESC, j.order_ready, j.name"
    )
}

async fn claim_within_limits(scope: &Scope<'_>, request: &ClaimRequest, wanted: &Wanted<'_>) -> Outcome<Claimed> {
    scope.connection.begin().await?;
    let lock = scope.store.settings.lock("claims", wanted.namespace);
    scope.connection.query("SELECT pg_advisory_xact_lock($1)::text", &[(&lock, Type::INT8)]).await?;
    let now = time_now(scope).await?;
    let mut claimed = Claimed { now, ..Claimed::default() };
    for _ in 0..ATTEMPTS {
        let counts = counts(scope, wanted.namespace, now).await?;
        let chosen = choose(scope, request, wanted, counts, now).await?;
        claimed.jobs = take(scope, request, &chosen, now).await?;
        if !claimed.jobs.is_empty() || chosen.is_empty() {
            claimed = ordered(claimed, &chosen);
            break;
        }
    }
    claimed.next = next(scope, wanted, now).await?;
    scope.connection.commit().await?;
    Ok(claimed)
}

/// How many jobs of each agent and key are claimed.
async fn counts(scope: &Scope<'_>, namespace: &str, now: Timestamp) -> Outcome<Counts> {
    let sql = format!(
        "SELECT agent, key, count(*) FROM {}.jobs
         WHERE namespace = $1 AND ready_at > $2 AND worker IS NOT NULL AND (agent IS NOT NULL OR key IS NOT NULL)
         GROUP BY agent, key",
        scope.schema
    );
    let rows = scope.connection.query(&sql, &[(&namespace, Type::TEXT), (&signed(now.0), Type::INT8)]).await?;
    let mut counts = Counts::default();
    let session: SessionKey = SessionId::new("any")?.into();
    for row in &rows {
        let key: Option<String> = row.try_get(1)?;
        let key = key.map(|key| KeyLimit { key, most: 1 });
        let new = NewJob { agent: row.try_get(0)?, key, ..NewJob::new(session.clone()) };
        let job = Job::new(&new, now);
        (0..unsigned(row, 2)?).for_each(|_| counts.add(&job));
    }
    Ok(counts)
}

/// The agents and keys of which no more may be claimed: jobs of theirs are passed over.
#[derive(Debug, Default)]
struct Full {
    agents: Vec<String>,
    keys: Vec<String>,
    mosts: Vec<i64>,
}

impl Full {
    fn add(&mut self, job: &Job, counts: &Counts, request: &ClaimRequest) {
        let by_agent = counts.allow(&Job { key: None, ..job.clone() }, request);
        match (&job.agent, &job.key) {
            (Some(agent), _) if !by_agent => self.agents.push(agent.clone()),
            (_, Some(key)) => {
                self.keys.push(key.key.clone());
                self.mosts.push(i64::from(key.most));
            }
            _ => {}
        }
    }
}

/// The jobs to claim: the first in order that limits allow.
async fn choose(
    scope: &Scope<'_>,
    request: &ClaimRequest,
    wanted: &Wanted<'_>,
    mut counts: Counts,
    now: Timestamp,
) -> Outcome<Vec<StoredJob>> {
    let (mut chosen, mut full): (Vec<StoredJob>, Full) = (Vec::new(), Full::default());
    let mut after: Option<(i32, i64, String)> = None;
    loop {
        let page = look(scope, wanted, &full, after.as_ref(), now).await?;
        let complete = (page.len() as i64) < LOOKED_AT;
        for stored in page {
            let ready_at = stored.job.ready_at.map_or(0, |at| signed(at.0));
            after = Some((stored.job.priority, ready_at, stored.job.session.id.as_str().to_owned()));
            if chosen.len() == request.most {
                return Ok(chosen);
            }
            if counts.allow(&stored.job, request) {
                counts.add(&stored.job);
                chosen.push(stored);
            } else {
                full.add(&stored.job, &counts, request);
            }
        }
        if complete {
            return Ok(chosen);
        }
    }
}

async fn look(
    scope: &Scope<'_>,
    wanted: &Wanted<'_>,
    full: &Full,
    after: Option<&(i32, i64, String)>,
    now: Timestamp,
) -> Outcome<Vec<StoredJob>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {}.jobs j
         WHERE {} AND j.ready_at <= $4 AND (j.agent IS NULL OR j.agent <> ALL($5))
             AND NOT EXISTS (SELECT FROM unnest($6::text[], $7::int8[]) AS f (key, most)
                 WHERE f.key = j.key AND j.key_most <= f.most)
             AND ($8::int4 IS NULL OR j.priority < $8 OR (j.priority = $8 AND (j.ready_at, j.name) > ($9, $10)))
         ORDER BY j.priority DESC, j.ready_at, j.name LIMIT $11",
        scope.schema,
        Wanted::SQL
    );
    let (priority, ready_at) = (after.map(|after| after.0), after.map(|after| after.1));
    let name = after.map(|after| after.2.as_str());
    let (now, limit) = (signed(now.0), LOOKED_AT);
    let mut values = wanted.values();
    let more: [Value<'_>; 8] = [
        (&now, Type::INT8),
        (&full.agents, Type::TEXT_ARRAY),
        (&full.keys, Type::TEXT_ARRAY),
        (&full.mosts, Type::INT8_ARRAY),
        (&priority, Type::INT4),
        (&ready_at, Type::INT8),
        (&name, Type::TEXT),
        (&limit, Type::INT8),
    ];
    values.extend(more);
    let rows = scope.connection.query(&sql, &values).await?;
    rows.iter().filter_map(|row| job(row, 0).transpose()).collect()
}

/// Takes what was chosen, unless somebody else has done something to it.
async fn take(scope: &Scope<'_>, request: &ClaimRequest, chosen: &[StoredJob], now: Timestamp) -> Outcome<Vec<Job>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "WITH mine AS MATERIALIZED (
             SELECT j.session FROM {0}.jobs j JOIN unnest($1::int8[], $2::int8[]) AS c (session, claims)
                 ON c.session = j.session AND c.claims = j.claims
             WHERE j.ready_at <= $5 ORDER BY j.session FOR UPDATE OF j SKIP LOCKED)
         UPDATE {0}.jobs j SET claims = j.claims + 1, attempts = least(j.attempts + 1, 4294967295), worker = $3,
             ready_at = least($5::numeric + $4, 9223372036854775807)::int8
         FROM mine WHERE j.session = mine.session RETURNING {COLUMNS}",
        scope.schema
    );
    let sessions: Vec<i64> = chosen.iter().map(|stored| stored.session).collect();
    let claims: Vec<i64> = chosen.iter().map(|stored| signed(stored.job.claims)).collect();
    let worker = request.worker.as_str();
    let values: [Value<'_>; 5] = [
        (&sessions, Type::INT8_ARRAY),
        (&claims, Type::INT8_ARRAY),
        (&worker, Type::TEXT),
        (&micros(request.hold), Type::INT8),
        (&signed(now.0), Type::INT8),
    ];
    let rows = scope.connection.query(&sql, &values).await?;
    rows.iter().filter_map(|row| job(row, 0).transpose()).map(|stored| stored.map(|stored| stored.job)).collect()
}

/// When the next job that is wanted becomes ready by itself.
async fn next(scope: &Scope<'_>, wanted: &Wanted<'_>, now: Timestamp) -> Outcome<Option<Timestamp>> {
    let sql = format!(
        "SELECT j.ready_at FROM {}.jobs j WHERE {} AND j.ready_at > $4 ORDER BY j.ready_at LIMIT 1",
        scope.schema,
        Wanted::SQL
    );
    let now = signed(now.0);
    let mut values = wanted.values();
    values.push((&now, Type::INT8));
    scope.connection.query_opt(&sql, &values).await?.map(|row| time(&row, 0)).transpose()
}

/// Jobs in the order in which they were chosen, and those among them that run out first as the next.
fn ordered(mut claimed: Claimed, chosen: &[StoredJob]) -> Claimed {
    claimed.jobs.sort_by_key(|job| chosen.iter().position(|stored| stored.job.session == job.session));
    claimed.next = claimed.next.into_iter().chain(claimed.jobs.iter().filter_map(|job| job.ready_at)).min();
    claimed
}

fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
