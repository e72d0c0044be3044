//! Leases. What is asked for most is one statement; only one that changes nothing makes it look
//! closer, on a locked session, and say why. The conditions are those of [`LeaseRequest::decide`].

use std::time::Duration;

use rekindle_core::{Epoch, Head, Lease, LeaseAction, LeaseInfo, LeaseRequest, OwnerId, Seq};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Scope;
use super::change::locked;
use super::connection::{Value, live, now};
use super::failure::Outcome;
use super::rows::{hash, missing, parsed, signed, time, unsigned};

/// Carries out a request about a lease.
pub(super) async fn lease(scope: &Scope<'_>, request: &LeaseRequest) -> Outcome<Lease> {
    let at_once = match &request.action {
        _ if request.branch.is_inbox() => None,
        LeaseAction::Acquire { owner, ttl, whole_session } => {
            acquire(scope, request, owner, *ttl, *whole_session).await?
        }
        LeaseAction::Renew { epoch, ttl } => renew(scope, request, *epoch, *ttl).await?,
        LeaseAction::Release { owner, epoch } => release(scope, request, owner, *epoch).await?,
    };
    match at_once {
        Some(lease) => Ok(lease),
        None => decide(scope, request).await,
    }
}

/// Decides on the session as it is while nobody else can change it.
async fn decide(scope: &Scope<'_>, request: &LeaseRequest) -> Outcome<Lease> {
    let found = locked(scope, &request.session).await?;
    let mut found = found.ok_or_else(|| missing(&request.session, "lease"))?;
    let (current, now) = (found.info.current.clone(), found.info.observed_at);
    let lease = request.decide(&mut found.info, now)?;
    let branch = found.info.branch(&request.branch)?;
    let (schema, held) = (scope.schema, branch.lease.as_ref());
    let sql = format!(
        "WITH now_current AS (UPDATE {schema}.sessions SET current = $6 WHERE id = $7 AND $8)
         UPDATE {schema}.branches SET epoch = $2, lease_owner = $3, lease_epoch = $4, lease_expires = $5 WHERE id = $1"
    );
    let name = request.branch.as_str();
    let values: [Value<'_>; 8] = [
        (&found.branch_id(&request.branch)?, Type::INT8),
        (&signed(branch.epoch.0), Type::INT8),
        (&held.map(|lease| lease.owner.as_str()), Type::TEXT),
        (&held.map(|lease| signed(lease.epoch.0)), Type::INT8),
        (&held.map(|lease| signed(lease.expires_at.0)), Type::INT8),
        (&name, Type::TEXT),
        (&found.id, Type::INT8),
        (&(found.info.current != current), Type::BOOL),
    ];
    scope.connection.query(&sql, &values).await?;
    scope.connection.commit().await?;
    Ok(lease)
}

/// Takes the lease in one statement, unless somebody has it. Rows are locked in the order in which
/// everybody locks them; what others did to them meanwhile counts. A branch that was started
/// meanwhile is not seen, but that it was is: the session's row is another version then.
async fn acquire(
    scope: &Scope<'_>,
    request: &LeaseRequest,
    owner: &OwnerId,
    ttl: Duration,
    whole_session: bool,
) -> Outcome<Option<Lease>> {
    let (names, owner, ttl) = (names(request), owner.as_str(), micros(ttl));
    let values: [Value<'_>; 7] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&owner, Type::TEXT),
        (&ttl, Type::INT8),
        (&scope.now, Type::INT8),
        (&whole_session, Type::BOOL),
    ];
    let row = scope.connection.query_opt(&acquire_sql(scope.schema), &values).await?;
    row.map(|row| granted(request, &row)).transpose()
}

fn acquire_sql(schema: &str) -> String {
    let now = now(6);
    let live = live("lease_expires", &now);
    format!(
        "WITH held AS MATERIALIZED (
             SELECT s.id, s.current FROM {schema}.sessions s
             WHERE s.namespace = $1 AND s.session = $2 AND s.xmin = (
                 SELECT seen.xmin FROM {schema}.sessions seen WHERE seen.namespace = $1 AND seen.session = $2)
             FOR UPDATE OF s),
         every AS MATERIALIZED (
             SELECT b.id, b.name, b.lease_owner, b.lease_expires FROM {schema}.branches b
             WHERE b.session = (SELECT id FROM held) ORDER BY b.id FOR UPDATE OF b),
         taken AS MATERIALIZED (
             SELECT max(lease_expires) FILTER (WHERE lease_owner <> $4 AND ($7 OR name = $3) AND {live}) AS until,
                 {now} AS now FROM every),
         free AS MATERIALIZED (
             SELECT e.id, t.now FROM every e CROSS JOIN taken t
             WHERE e.name = $3 AND (t.until IS NULL OR t.until <= t.now)),
         moved AS (
             UPDATE {schema}.sessions s SET current = $3 FROM held, free WHERE s.id = held.id AND held.current <> $3)
         UPDATE {schema}.branches b SET epoch = b.epoch + 1, lease_owner = $4, lease_epoch = b.epoch + 1,
             lease_expires = least(free.now::numeric + $5, 9223372036854775807)::int8
         FROM free WHERE b.id = free.id
         RETURNING b.lease_owner, b.lease_epoch, b.lease_expires, b.head, b.head_hash, free.now"
    )
}

/// Renews in one statement, if the lease is live.
async fn renew(scope: &Scope<'_>, request: &LeaseRequest, epoch: Epoch, ttl: Duration) -> Outcome<Option<Lease>> {
    let (schema, now) = (scope.schema, now(6));
    let live = live("b.lease_expires", &now);
    let sql = format!(
        "UPDATE {schema}.branches b SET lease_expires = least({now}::numeric + $5, 9223372036854775807)::int8
         FROM {schema}.sessions s
         WHERE s.namespace = $1 AND s.session = $2 AND b.session = s.id AND b.name = $3 AND b.lease_epoch = $4
             AND {live}
         RETURNING b.lease_owner, b.lease_epoch, b.lease_expires, b.head, b.head_hash, {now}"
    );
    let (epoch, ttl) = (signed(epoch.0), micros(ttl));
    let names = names(request);
    let values: [Value<'_>; 6] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&epoch, Type::INT8),
        (&ttl, Type::INT8),
        (&scope.now, Type::INT8),
    ];
    let row = scope.connection.query_opt(&sql, &values).await?;
    row.map(|row| granted(request, &row)).transpose()
}

/// Ends the lease in one statement, if exactly this owner and epoch hold it.
async fn release(scope: &Scope<'_>, request: &LeaseRequest, owner: &OwnerId, epoch: Epoch) -> Outcome<Option<Lease>> {
    let (schema, now) = (scope.schema, now(5));
    let sql = format!(
        "WITH held AS MATERIALIZED (
             SELECT b.id, b.lease_owner, b.lease_epoch, b.lease_expires
             FROM {schema}.sessions s JOIN {schema}.branches b ON b.session = s.id
             WHERE s.namespace = $1 AND s.session = $2 AND b.name = $3 AND b.lease_epoch = $4
                 AND b.lease_owner = $6 FOR UPDATE OF b)
         UPDATE {schema}.branches b SET lease_owner = NULL, lease_epoch = NULL, lease_expires = NULL
         FROM held WHERE b.id = held.id
         RETURNING held.lease_owner, held.lease_epoch, least(held.lease_expires, {now}), b.head, b.head_hash,
             {now}"
    );
    let (epoch, owner) = (signed(epoch.0), owner.as_str());
    let names = names(request);
    let values: [Value<'_>; 6] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&epoch, Type::INT8),
        (&scope.now, Type::INT8),
        (&owner, Type::TEXT),
    ];
    let row = scope.connection.query_opt(&sql, &values).await?;
    row.map(|row| granted(request, &row)).transpose()
}

fn names(request: &LeaseRequest) -> [&str; 3] {
    [request.session.namespace.as_str(), request.session.id.as_str(), request.branch.as_str()]
}

/// The lease in a row: its owner, epoch and end, the head of its branch, and the server's time.
fn granted(request: &LeaseRequest, row: &Row) -> Outcome<Lease> {
    let (owner, epoch, expires_at) = (parsed(row, 0)?, Epoch(unsigned(row, 1)?), time(row, 2)?);
    let info = LeaseInfo { owner, epoch, expires_at, boot: None };
    let head = Head { seq: Seq(unsigned(row, 3)?), hash: hash(row, 4)? };
    let observed_at = time(row, 5)?;
    Ok(Lease { session: request.session.clone(), branch: request.branch.clone(), info, head, observed_at })
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
