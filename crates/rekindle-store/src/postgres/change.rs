//! Everything else that writes sessions: creating, forking, removing. Each decides on the
//! session as it is while nobody else can change it: sessions are locked before their branches, and
//! those before their job.

use rekindle_core::{
    BranchInfo, Error, ErrorKind, Fork, NewSession, Removal, Removed, Seq, SessionInfo, SessionKey, Timestamp,
};
use tokio_postgres::types::Type;

use super::Scope;
use super::connection::{Value, now};
use super::failure::Outcome;
use super::frames::{self, FrameRows};
use super::rows::{HeaderColumns, StoredSession, find_session, missing, signed, time};

/// Creates a session; `base` are the parts of its base.
pub(super) async fn create(scope: &Scope<'_>, new: &NewSession, base: &FrameRows) -> Outcome<SessionInfo> {
    let info = new.session_info(time_now(scope).await?);
    let (header, key) = (HeaderColumns::of(&new.header)?, &new.header.key);
    let names = [key.namespace.as_str(), key.id.as_str(), info.current.as_str()];
    let parent = new.header.parent.as_ref().map(|parent| (parent.namespace.as_str(), parent.id.as_str()));
    let branches = BranchRows::of(&info.branches);
    let values: [Value<'_>; 22] = [
        (&names[0], Type::TEXT),
        (&names[1], Type::TEXT),
        (&names[2], Type::TEXT),
        (&parent.map(|parent| parent.0), Type::TEXT),
        (&parent.map(|parent| parent.1), Type::TEXT),
        (&header.agent, Type::BYTEA),
        (&header.search, Type::BYTEA),
        (&header.tags, Type::BYTEA_ARRAY),
        (&header.labels, Type::BYTEA_ARRAY),
        (&header.header, Type::BYTEA),
        (&signed(info.created_at.0), Type::INT8),
        (&branches.names, Type::TEXT_ARRAY),
        (&branches.heads, Type::INT8_ARRAY),
        (&branches.hashes, Type::BYTEA_ARRAY),
        (&branches.base_seqs, Type::INT8_ARRAY),
        (&branches.base_hashes, Type::BYTEA_ARRAY),
        (&branches.statuses, Type::TEXT_ARRAY),
        (&branches.epochs, Type::INT8_ARRAY),
        (&base.first, Type::INT8_ARRAY),
        (&base.last, Type::INT8_ARRAY),
        (&base.marks, Type::INT2_ARRAY),
        (&base.bodies(), Type::BYTEA_ARRAY),
    ];
    match scope.connection.query_opt(&create_sql(scope.schema), &values).await? {
        Some(_) => Ok(info),
        None => Err(Error::new(ErrorKind::AlreadyExists, "the session exists already").into()),
    }
}

fn create_sql(schema: &str) -> String {
    format!(
        "WITH made AS (
             INSERT INTO {schema}.sessions (namespace, session, current, parent_namespace, parent_session, agent, search,
                 tags, labels, header, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (namespace, session) DO NOTHING RETURNING id),
         begun AS (
             INSERT INTO {schema}.branches (session, name, head, head_hash, base_seq, base_hash, status, created_at,
                 updated_at, epoch)
             SELECT made.id, b.name, b.head, b.head_hash, b.base_seq, b.base_hash, b.status, $11, $11, b.epoch
             FROM made, unnest($12::text[], $13::int8[], $14::bytea[], $15::int8[], $16::bytea[], $17::text[], $18::int8[])
                 WITH ORDINALITY AS b (name, head, head_hash, base_seq, base_hash, status, epoch, place)
             ORDER BY b.place RETURNING id, name),
         based AS (
             INSERT INTO {schema}.bases (branch, first, last, marks, body)
             SELECT begun.id, f.first, f.last, f.marks, f.body
             FROM begun, unnest($19::int8[], $20::int8[], $21::int2[], $22::bytea[]) AS f (first, last, marks, body)
             WHERE begun.name = $3)
         SELECT id FROM made"
    )
}

/// Branches as columns.
#[derive(Debug)]
struct BranchRows<'a> {
    names: Vec<&'a str>,
    heads: Vec<i64>,
    hashes: Vec<&'a [u8]>,
    base_seqs: Vec<Option<i64>>,
    base_hashes: Vec<Option<&'a [u8]>>,
    statuses: Vec<&'a str>,
    epochs: Vec<i64>,
}

impl<'a> BranchRows<'a> {
    fn of(branches: &'a [BranchInfo]) -> Self {
        let each = || branches.iter();
        Self {
            names: each().map(|branch| branch.branch.as_str()).collect(),
            heads: each().map(|branch| signed(branch.head.seq.0)).collect(),
            hashes: each().map(|branch| &branch.head.hash.0[..]).collect(),
            base_seqs: each().map(|branch| branch.base.map(|base| signed(base.seq.0))).collect(),
            base_hashes: each().map(|branch| branch.base.as_ref().map(|base| &base.hash.0[..])).collect(),
            statuses: each().map(|branch| branch.status.as_str()).collect(),
            epochs: each().map(|branch| signed(branch.epoch.0)).collect(),
        }
    }
}

/// Starts a branch; `base` are the parts of its base.
pub(super) async fn fork(scope: &Scope<'_>, fork: &Fork, base: &FrameRows) -> Outcome<BranchInfo> {
    let found = locked(scope, &fork.session).await?.ok_or_else(|| missing(&fork.session, "fork"))?;
    if let Some(existing) = fork.decide(&found.info)? {
        return Ok(existing);
    }
    let info = fork.branch_info(found.info.observed_at);
    let branch = insert_branch(scope, found.id, &info).await?;
    frames::insert_base(scope, branch, base).await?;
    scope.connection.commit().await?;
    Ok(info)
}

async fn insert_branch(scope: &Scope<'_>, session: i64, info: &BranchInfo) -> Outcome<i64> {
    let schema = scope.schema;
    // The session's row is written too: whoever leases in one statement that began before sees that
    // there is a branch it does not see.
    let sql = format!(
        "WITH seen AS (UPDATE {schema}.sessions SET current = current WHERE id = $1)
         INSERT INTO {schema}.branches (session, name, parent_branch, fork_seq, head, head_hash, base_seq, base_hash, status,
             created_at, updated_at, epoch)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id"
    );
    let names = (info.branch.as_str(), info.parent.as_ref().map(|parent| parent.branch.as_str()), info.status.as_str());
    let values: [Value<'_>; 12] = [
        (&session, Type::INT8),
        (&names.0, Type::TEXT),
        (&names.1, Type::TEXT),
        (&info.parent.as_ref().map(|parent| signed(parent.seq.0)), Type::INT8),
        (&signed(info.head.seq.0), Type::INT8),
        (&&info.head.hash.0[..], Type::BYTEA),
        (&info.base.map(|base| signed(base.seq.0)), Type::INT8),
        (&info.base.as_ref().map(|base| &base.hash.0[..]), Type::BYTEA),
        (&names.2, Type::TEXT),
        (&signed(info.created_at.0), Type::INT8),
        (&signed(info.updated_at.0), Type::INT8),
        (&signed(info.epoch.0), Type::INT8),
    ];
    let row = scope.connection.query_opt(&sql, &values).await?;
    let row = row.ok_or_else(|| Error::corrupt("a row was added but is not there"))?;
    Ok(row.try_get(0)?)
}

/// Removes; `base` are the frames that stand in the place of history.
pub(super) async fn remove(scope: &Scope<'_>, removal: &Removal, base: &FrameRows) -> Outcome<Removed> {
    let Some(found) = locked(scope, removal.session()).await? else {
        return match removal {
            Removal::History { session, .. } => Err(missing(session, "remove").into()),
            _ => Ok(Removed::default()),
        };
    };
    if !removal.decide(&found.info, found.info.observed_at)? {
        return Ok(Removed::default());
    }
    let before = match removal {
        Removal::Session { .. } | Removal::SessionAt { .. } => remove_session(scope, &found).await?,
        Removal::Branch { branch, .. } => remove_branches(scope, &[found.branch_id(branch)?]).await?,
        Removal::History { branch, base: new, .. } => {
            let id = found.branch_id(branch)?;
            let removed = frames::remove(scope, &[id], new.head.seq).await?;
            frames::insert_base(scope, id, base).await?;
            let sql = format!("UPDATE {}.branches SET base_seq = $2, base_hash = $3 WHERE id = $1", scope.schema);
            let values: [Value<'_>; 3] =
                [(&id, Type::INT8), (&signed(new.head.seq.0), Type::INT8), (&&new.head.hash.0[..], Type::BYTEA)];
            scope.connection.query(&sql, &values).await?;
            removed
        }
    };
    scope.connection.commit().await?;
    Ok(Removed {
        frames: before.frames.saturating_sub(base.len() as u64),
        bytes: before.bytes.saturating_sub(base.bytes() as u64),
    })
}

async fn remove_session(scope: &Scope<'_>, found: &StoredSession) -> Outcome<Removed> {
    let removed = remove_branches(scope, &found.branch_ids).await?;
    for (table, column) in [("jobs", "session"), ("sessions", "id")] {
        let sql = format!("DELETE FROM {}.{table} WHERE {column} = $1", scope.schema);
        scope.connection.query(&sql, &[(&found.id, Type::INT8)]).await?;
    }
    Ok(removed)
}

/// The rows of the branches go first: whoever still appends has finished then, and its frames go too.
async fn remove_branches(scope: &Scope<'_>, branches: &[i64]) -> Outcome<Removed> {
    let sql = format!("DELETE FROM {}.branches WHERE id = ANY($1)", scope.schema);
    scope.connection.query(&sql, &[(&branches, Type::INT8_ARRAY)]).await?;
    frames::remove(scope, branches, Seq::MAX).await
}

/// Begins a transaction in which nobody else can change a session; the session, if there is one.
pub(super) async fn locked(scope: &Scope<'_>, key: &SessionKey) -> Outcome<Option<StoredSession>> {
    scope.connection.begin().await?;
    let schema = scope.schema;
    // Whoever holds the session may have started a branch: it is seen by the next statement only.
    // Nobody can lease that one meanwhile, and appends to it change nothing that is decided here.
    let sql = format!(
        "WITH held AS MATERIALIZED (
             SELECT id FROM {schema}.sessions WHERE namespace = $1 AND session = $2 FOR UPDATE)
         SELECT b.session FROM {schema}.branches b WHERE b.session = (SELECT id FROM held) ORDER BY b.id FOR UPDATE OF b"
    );
    let names = [key.namespace.as_str(), key.id.as_str()];
    let row = scope.connection.query_opt(&sql, &[(&names[0], Type::TEXT), (&names[1], Type::TEXT)]).await?;
    let Some(held) = row.map(|row| row.try_get::<_, i64>(0)).transpose()? else { return Ok(None) };
    // One that was created since is not held.
    Ok(find_session(scope, key).await?.filter(|found| found.id == held))
}

/// The time by the store's clock.
pub(super) async fn time_now(scope: &Scope<'_>) -> Outcome<Timestamp> {
    let sql = format!("SELECT {}", now(1));
    let row = scope.connection.query_opt(&sql, &[(&scope.now, Type::INT8)]).await?;
    time(&row.ok_or_else(|| Error::corrupt("the server does not know the time"))?, 0)
}
