//! How a database file is opened: checks before anything is touched, settings, migrations.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rekindle_core::{Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, Transaction, TransactionBehavior};

use super::failure::{database_error, is_busy};
use crate::options::StoreOptions;
use crate::private::{self, Modes};

/// "RKJL": marks a database file as ours.
const APPLICATION_ID: i64 = 0x524B_4A4C;

/// Each script brings the schema from the version of its index to the next. Scripts that were
/// released never change.
const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3, VERSION_4];

// Rows of `frames` are in the order of their commits and have no index, so a commit touches the
// end of the table and the rows of its branches, wherever their older frames stand. Ids of
// sessions and branches are never used again (AUTOINCREMENT), so a remembered id means the same
// branch or none.
const VERSION_1: &str = "
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    agent TEXT,
    parent_namespace TEXT,
    parent_session TEXT,
    search TEXT NOT NULL,
    header TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    current_branch INTEGER NOT NULL,
    UNIQUE (namespace, session)
) STRICT;
CREATE INDEX sessions_by_age ON sessions (namespace, created_at, session);
CREATE INDEX sessions_by_parent ON sessions (parent_session, parent_namespace) WHERE parent_session IS NOT NULL;
CREATE TABLE branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    parent_branch TEXT,
    fork_seq INTEGER,
    head INTEGER NOT NULL,
    head_hash BLOB NOT NULL,
    base_seq INTEGER,
    base_hash BLOB,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    lease_owner TEXT,
    lease_epoch INTEGER,
    lease_expires INTEGER,
    recent BLOB NOT NULL DEFAULT x'',
    UNIQUE (session, name)
) STRICT;
CREATE TABLE frames (
    id INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    marks INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE frame_index (
    branch INTEGER NOT NULL,
    last INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (branch, last)
) STRICT, WITHOUT ROWID;
CREATE TABLE bases (
    id INTEGER PRIMARY KEY,
    branch INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    marks INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX bases_by_end ON bases (branch, last);
";

// Jobs for workers. `news` counts what others should look at: it is read when the database changed,
// so that not every commit wakes everybody.
const VERSION_2: &str = "
CREATE TABLE jobs (
    namespace TEXT NOT NULL,
    session TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    agent TEXT,
    key TEXT,
    key_most INTEGER,
    enqueued_at INTEGER NOT NULL,
    ready_at INTEGER,
    worker TEXT,
    claims INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    wakes INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (namespace, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_priority ON jobs (namespace, priority DESC, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX jobs_by_time ON jobs (namespace, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX jobs_by_worker ON jobs (namespace, worker) WHERE worker IS NOT NULL;
CREATE TABLE workers (
    namespace TEXT NOT NULL,
    worker TEXT NOT NULL,
    until INTEGER NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (namespace, worker)
) STRICT, WITHOUT ROWID;
CREATE TABLE news (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL) STRICT;
INSERT INTO news (id, count) VALUES (1, 0);
";

// The end of a lease by the clock since the machine was started, and which start that was; the last
// record about a wait, which answers compare.
const VERSION_3: &str = "
ALTER TABLE branches ADD COLUMN lease_boot INTEGER;
ALTER TABLE branches ADD COLUMN lease_until INTEGER;
ALTER TABLE branches ADD COLUMN last_wait INTEGER NOT NULL DEFAULT 0;
";

// Small values beside the journals.
const VERSION_4: &str = "
CREATE TABLE small_values (
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, kind, key)
) STRICT, WITHOUT ROWID;
";
/// The way out for those who want to write to what may only be read.
pub(super) const MAKE_WRITABLE: &str = "make the file and its directory writable, or copy the store to a place that is \
     with `rekindle copy --to`";

/// What every database begins with.
const HEADER_BYTES: u64 = 100;
const PAGE_SIZE: i64 = 8192;
/// Pages in the log before they are copied into the database.
const CHECKPOINT_PAGES: i64 = 2_000;
/// What the log may keep of the disk once its content was copied.
const LOG_BYTES: i64 = 32 << 20;
/// Negative means KiB.
const CACHE_SIZE: i64 = -16_000;
const STATEMENTS: usize = 64;

const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// How long to wait for a lock that another process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5) }
    }
}

/// The absolute path of the database, if there is or may be one.
pub(super) fn locate(path: &Path, options: &StoreOptions) -> Result<PathBuf> {
    // An absolute path is never taken for a URI or for SQLite's special names.
    let path = std::path::absolute(path)
        .map_err(|error| Error::invalid(format!("`{}` is not a path", path.display())).because(error))?;
    if path.is_dir() {
        let example = path.join("rekindle.db");
        return Err(Error::invalid(format!("`{}` is a directory", path.display()))
            .hint(format!("name a file, e.g. `{}`", example.display())));
    }
    match path.metadata() {
        // SQLite takes a file of one byte for an empty one and would write over it.
        Ok(file) if (1..HEADER_BYTES).contains(&file.len()) => {
            return Err(Error::corrupt(format!("the file is not a database: {}", path.display()))
                .hint("name another file, or restore this one from a copy; it was not changed"));
        }
        Ok(_) => return Ok(path),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(error) => return Err(unreadable(&path, error)),
    }
    if options.read_only || !options.create {
        return Err(Error::not_found(format!("there is no database `{}`", path.display()))
            .hint("check the path, or allow the store to be created"));
    }
    match path.parent().filter(|directory| !directory.is_dir()) {
        Some(directory) => Err(Error::not_found(format!("there is no directory `{}`", directory.display()))
            .hint("create the directory first, or check the path")),
        None => Ok(path),
    }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::StoreUnavailable, format!("the database may not be read: {}", path.display()))
        .because(error)
        .hint("check who may read the file and enter its directory")
}

/// Opens the connection that writes; the schema is there and current afterwards.
pub(super) fn open_writer(path: &Path, options: &StoreOptions, settings: Settings) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, options.create);
    let failed = |error| database_error(path, error);
    if options.create {
        // The log and its index get the mode of the database. What cannot be made, opening reports.
        let _ = Modes::PRIVATE.create_new(&private::target(path));
    }
    let connection = connect(path, flags, settings).map_err(failed)?;
    let version = match patient_inspection(&connection, path, settings) {
        // The file is there and can be read, so it is the files beside it that cannot be made.
        Err(error) if log_is_refused(&error) && path.exists() => return Err(unwritable(path).because(error)),
        other => other?,
    };
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(unwritable(path));
    }
    if version == 0 {
        prepare_empty(&connection).map_err(failed)?;
    }
    write_ahead(&connection, path, settings)?;
    configure_writer(&connection).map_err(failed)?;
    if version < newest_version() {
        migrate(&connection, path, settings)?;
    }
    Ok(connection)
}

fn unwritable(path: &Path) -> Error {
    let message = format!("the database may not be written: {}", path.display());
    Error::new(ErrorKind::PersistFailed, message).hint(MAKE_WRITABLE)
}

/// Opens a connection that only reads a database that [`open_writer`] prepared.
pub(super) fn open_reader(path: &Path, settings: Settings) -> Result<Connection> {
    let connection = connect(path, READING, settings).map_err(|error| database_error(path, error))?;
    with_cache(connection, path)
}

/// Opens a connection of a store that never writes, and checks that it can be read.
pub(super) fn open_read_only(path: &Path, settings: Settings) -> Result<Connection> {
    let failed = |error| database_error(path, error);
    let connection = connect(path, READING, settings).map_err(failed)?;
    match with_cache(connection, path).and_then(|found| checked(found, path, settings)) {
        Err(error) if log_is_refused(&error) && log_bytes(path) > 0 => Err(log_in_the_way(path).because(error)),
        // Without a log, and in a place where none can be made, a database does not change.
        Err(error) if log_is_refused(&error) => {
            let uri = immutable_uri(path);
            let flags = READING | OpenFlags::SQLITE_OPEN_URI;
            checked(connect(Path::new(&uri), flags, settings).map_err(failed)?, path, settings)
        }
        other => other,
    }
}

fn with_cache(connection: Connection, path: &Path) -> Result<Connection> {
    connection.pragma_update(None, "cache_size", CACHE_SIZE).map_err(|error| database_error(path, error))?;
    Ok(connection)
}

/// Repeats what fails because somebody else holds a lock. SQLite waits by itself in most places,
/// but not where waiting might be a deadlock, as when the kind of log changes.
pub(super) fn patiently<T>(
    patience: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && start.elapsed() < patience => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
}

fn newest_version() -> u32 {
    MIGRATIONS.len() as u32
}

fn connect(path: &Path, flags: OpenFlags, settings: Settings) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(settings.patience)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this, a plan that looked at a value is made anew whenever another value is bound: every time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Even reading makes files beside the database; whether that is what failed.
fn log_is_refused(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    let code = cause.and_then(rusqlite::Error::sqlite_error_code);
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// The size of the log beside the database.
fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |log| log.len())
}

/// The error of a log that holds commits and cannot be read where it is.
fn log_in_the_way(path: &Path) -> Error {
    let shown = path.display();
    let message = format!("{shown} has a log, {shown}-wal, that can only be read where files can be made beside it");
    Error::new(ErrorKind::StoreUnavailable, message)
        .hint(format!("copy {shown} and {shown}-wal together to a place that can be written, and open the copy"))
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn checked(connection: Connection, path: &Path, settings: Settings) -> Result<Connection> {
    match patient_inspection(&connection, path, settings)? {
        0 => Err(Error::not_found(format!("the database has no journal yet: {}", path.display()))),
        version if version < newest_version() => {
            let message =
                format!("the schema of {} is of version {version} and must be brought up to date", path.display());
            let hint =
                "open the store once for writing; if it is on a read-only disk, copy the file to another place first";
            Err(Error::new(ErrorKind::Unsupported, message).hint(hint))
        }
        _ => Ok(connection),
    }
}

fn patient_inspection(connection: &Connection, path: &Path, settings: Settings) -> Result<u32> {
    // One transaction, so that what is read fits together although another process may be
    // creating the database.
    let look = || identity(&*connection.unchecked_transaction()?);
    let found = patiently(settings.patience, look).map_err(|error| database_error(path, error))?;
    version_of(found, path)
}

/// The application id, the schema version, and how many tables and indexes there are.
fn identity(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    Ok((application, version, objects))
}

/// The schema version, zero for an empty database; an error if it is not ours or too new.
fn version_of((application, version, objects): (i64, i64, i64), path: &Path) -> Result<u32> {
    if application != APPLICATION_ID && (application, version, objects) != (0, 0, 0) {
        return Err(Error::invalid(format!("the database belongs to another program: {}", path.display()))
            .hint("name another file; this one was not changed"));
    }
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    let supported = newest_version();
    if found > supported {
        let kind = ErrorKind::VersionTooNew { what: "schema".into(), found, supported };
        let path = path.display();
        return Err(Error::new(kind, format!("{path} has schema version {found}; this build reads up to {supported}")));
    }
    Ok(found)
}

/// What can only be chosen before the first page is written.
fn prepare_empty(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_SIZE)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

fn write_ahead(connection: &Connection, path: &Path, settings: Settings) -> Result<()> {
    let switch = || connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    let mode = patiently(settings.patience, switch).map_err(|error| database_error(path, error))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    let message = format!("the file system of {} cannot hold a write-ahead log (mode `{mode}`)", path.display());
    Err(Error::new(ErrorKind::Unsupported, message).hint("put the database on a local disk, or use the file store"))
}

fn configure_writer(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    connection.pragma_update(None, "cache_size", CACHE_SIZE)?;
    // What was removed is overwritten where that costs no further write.
    connection.pragma_update(None, "secure_delete", "FAST")
}

fn migrate(connection: &Connection, path: &Path, settings: Settings) -> Result<()> {
    let failed = |error| database_error(path, error);
    let begin = || Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
    let transaction = patiently(settings.patience, begin).map_err(failed)?;
    // Another process may have done it while this one waited for the lock.
    let version = version_of(identity(&transaction).map_err(failed)?, path)?;
    for script in MIGRATIONS.iter().skip(version as usize) {
        transaction.execute_batch(script).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.pragma_update(None, "user_version", newest_version()).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    // The schema goes into the database itself, so that no later loss of the log can take it.
    // Somebody else reading is no reason to fail: the log is durable too.
    let _ = connection.pragma_query(None, "wal_checkpoint", |_| Ok(()));
    Ok(())
}
