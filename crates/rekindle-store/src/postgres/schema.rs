//! The tables, how they come to be, and how a handle recognises its store.

use rekindle_core::{Error, ErrorKind};
use tokio_postgres::types::Type;

use super::connection::Lent;
use super::failure::Outcome;
use super::settings::Settings;

/// The oldest server this works with.
const OLDEST_SERVER: i32 = 150_000;

/// Each script brings the schema from the version of its index to the next; `{s}` stands for its
/// name. Scripts that were released never change.
const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3];

// Text that people choose freely is kept as bytes: PostgreSQL's text holds no zero byte. Numbers of
// branches are never used again, so a remembered one means the same branch or none. Frames are
// compressed before they get here; up to three to a page they stay in their row, larger ones go out
// of line, which wastes less of a page. Room in the pages of `branches` and `jobs` keeps their
// updates away from the indexes.
const VERSION_1: &str = r#"
CREATE TABLE {s}.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version int4 NOT NULL,
    identity text NOT NULL
);
CREATE TABLE {s}.sessions (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    current text COLLATE "C" NOT NULL,
    parent_namespace text COLLATE "C",
    parent_session text COLLATE "C",
    agent bytea,
    search bytea NOT NULL,
    tags bytea[] NOT NULL,
    labels bytea[] NOT NULL,
    header bytea NOT NULL,
    created_at int8 NOT NULL,
    UNIQUE (namespace, session)
);
CREATE INDEX sessions_by_age ON {s}.sessions (namespace, created_at, session);
CREATE INDEX sessions_by_parent ON {s}.sessions (parent_session, parent_namespace) WHERE parent_session IS NOT NULL;
CREATE TABLE {s}.branches (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session int8 NOT NULL,
    name text COLLATE "C" NOT NULL,
    parent_branch text COLLATE "C",
    fork_seq int8,
    head int8 NOT NULL,
    head_hash bytea NOT NULL,
    base_seq int8,
    base_hash bytea,
    status text NOT NULL,
    created_at int8 NOT NULL,
    updated_at int8 NOT NULL,
    epoch int8 NOT NULL,
    lease_owner text COLLATE "C",
    lease_epoch int8,
    lease_expires int8,
    UNIQUE (session, name)
) WITH (fillfactor = 70);
CREATE TABLE {s}.frames (
    branch int8 NOT NULL,
    last int8 NOT NULL,
    first int8 NOT NULL,
    marks int2 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (branch, last) INCLUDE (first, marks)
) WITH (toast_tuple_target = 2720);
ALTER TABLE {s}.frames ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE {s}.bases (
    branch int8 NOT NULL,
    last int8 NOT NULL,
    first int8 NOT NULL,
    marks int2 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (branch, last) INCLUDE (first, marks)
) WITH (toast_tuple_target = 2720);
ALTER TABLE {s}.bases ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE {s}.jobs (
    session int8 PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority int4 NOT NULL,
    agent text COLLATE "C",
    key text COLLATE "C",
    key_most int8,
    enqueued_at int8 NOT NULL,
    ready_at int8,
    worker text COLLATE "C",
    claims int8 NOT NULL,
    attempts int8 NOT NULL,
    wakes int8 NOT NULL,
    note bytea NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX jobs_by_name ON {s}.jobs (namespace, name);
CREATE INDEX jobs_by_order ON {s}.jobs (namespace, priority DESC, ready_at, name) WHERE ready_at IS NOT NULL;
CREATE INDEX jobs_by_time ON {s}.jobs (namespace, ready_at) WHERE ready_at IS NOT NULL;
CREATE TABLE {s}.workers (
    namespace text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    seen_at int8 NOT NULL,
    until int8 NOT NULL,
    detail bytea NOT NULL,
    PRIMARY KEY (namespace, worker)
);
"#;

// The last record about a wait, which answers compare.
const VERSION_2: &str = "ALTER TABLE {s}.branches ADD COLUMN last_wait int8 NOT NULL DEFAULT 0;";

// Small values beside the journals. A key may contain any character but control characters.
const VERSION_3: &str = r#"
CREATE TABLE {s}.small_values (
    namespace text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (namespace, kind, key)
);
"#;

/// What is known of a store: which it is, and how far its schema is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Chosen at random when the store was created.
    pub(super) identity: String,
    version: u32,
}

/// What may be done to bring the schema up to date.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Creating it.
    pub(super) create: bool,
    /// Changing it.
    pub(super) write: bool,
}

/// Makes sure that a new connection leads to a server that can be used, and to the store that was
/// `known` before, if any; creates or updates its schema if that is needed and allowed. Gives the
/// identity of the store.
pub(super) async fn check(
    connection: &Lent,
    settings: &Settings,
    known: Option<&str>,
    allowed: Allowed,
) -> Outcome<String> {
    let found = match look(connection, settings).await? {
        Some(found) => found,
        None if known.is_some() => return Err(another_store(settings, "has no journal").into()),
        None if allowed.create && allowed.write => migrate(connection, settings).await?,
        None => {
            let message = format!("there is no journal in schema `{}` of {}", settings.schema, settings.shown);
            return Err(Error::not_found(message).hint("check the URL, or allow the store to be created").into());
        }
    };
    if known.is_some_and(|known| known != found.identity) {
        return Err(another_store(settings, "has another journal").into());
    }
    if found.version == newest_version() {
        return Ok(found.identity);
    }
    if !allowed.write {
        let message =
            format!("the schema of {} is of version {} and must be brought up to date", settings.shown, found.version);
        return Err(Error::new(ErrorKind::Unsupported, message).hint("open the store once for writing").into());
    }
    Ok(migrate(connection, settings).await?.identity)
}

fn newest_version() -> u32 {
    MIGRATIONS.len() as u32
}

fn another_store(settings: &Settings, what: &str) -> Error {
    let message = format!("this is not the store it was: schema `{}` of {} {what}", settings.schema, settings.shown);
    Error::new(ErrorKind::StoreUnavailable, message)
        .hint("after a failover, name the server that has the journal, or restore it; nothing was written to this one")
}

/// What the server has; an error if it cannot be used or the schema is too new.
async fn look(connection: &Lent, settings: &Settings) -> Outcome<Option<Found>> {
    let sql = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'), EXISTS (
            SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = 'meta')";
    let rows = connection.query(sql, &[(&settings.schema, Type::TEXT)]).await?;
    let row = rows.first().ok_or_else(|| Error::corrupt("the server says nothing of itself"))?;
    let (version, encoding): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    if version < OLDEST_SERVER {
        let message = format!("the server is PostgreSQL {}: {}", version / 10_000, settings.shown);
        return Err(Error::new(ErrorKind::Unsupported, message).hint("use PostgreSQL 15 or newer").into());
    }
    if encoding != "UTF8" {
        let message = format!("the encoding of the database is {encoding}: {}", settings.shown);
        let hint = "use a database made with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`";
        return Err(Error::new(ErrorKind::Unsupported, message).hint(hint).into());
    }
    if !row.try_get::<_, bool>(2)? {
        return Ok(None);
    }
    let sql = format!("SELECT version, identity FROM {}.meta", settings.quoted_schema());
    let row = connection.query_opt(&sql, &[]).await?.ok_or_else(|| {
        Error::corrupt(format!("schema `{}` does not say what it holds: {}", settings.schema, settings.shown))
    })?;
    let found = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u32::MAX);
    let supported = newest_version();
    if found > supported {
        let kind = ErrorKind::VersionTooNew { what: "schema".into(), found, supported };
        let message = format!("{} has schema version {found}; this build reads up to {supported}", settings.shown);
        return Err(Error::new(kind, message).into());
    }
    Ok(Some(Found { identity: row.try_get(1)?, version: found }))
}

/// Creates the schema or brings it up to date. Whoever comes second waits and finds it done.
async fn migrate(connection: &Lent, settings: &Settings) -> Outcome<Found> {
    let quoted = settings.quoted_schema();
    connection.begin().await?;
    let lock = settings.lock("schema", "");
    connection.query("SELECT pg_advisory_xact_lock($1)::text", &[(&lock, Type::INT8)]).await?;
    let before = look(connection, settings).await?;
    let sql = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1";
    // Even if it is there, `IF NOT EXISTS` would demand the right to make it.
    if connection.query_opt(sql, &[(&settings.schema, Type::TEXT)]).await?.is_none() {
        connection.script(&format!("CREATE SCHEMA {quoted}")).await?;
    }
    let done = before.as_ref().map_or(0, |found| found.version);
    for script in MIGRATIONS.iter().skip(done as usize) {
        connection.script(&script.replace("{s}", &quoted)).await?;
    }
    let identity = match before {
        Some(found) => found.identity,
        None => random_identity()?,
    };
    let version = i32::try_from(newest_version()).unwrap_or(i32::MAX);
    let sql = format!(
        "INSERT INTO {quoted}.meta (version, identity) VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET version = $1"
    );
    connection.query(&sql, &[(&version, Type::INT4), (&identity, Type::TEXT)]).await?;
    connection.commit().await?;
    Ok(Found { identity, version: newest_version() })
}

fn random_identity() -> Outcome<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::StoreUnavailable, "the operating system gave no random bytes").because(error)
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
