//! Marks in a small SQLite database beside the one they are about.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Decision, Expected, ValueKey, ValuePage, ValueQuery, Values, check_keys};
use rekindle_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::private::Modes;

/// "RKMK": marks a file as ours.
const APPLICATION_ID: i64 = 0x524B_4D4B;
const VERSION: i64 = 1;
/// Small, because a mark is: each one written costs a page.
const PAGE_SIZE: i64 = 1024;
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS small_values (
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, kind, key)
) STRICT, WITHOUT ROWID;
";
/// How long to wait for a lock that another process holds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Values in a database of their own, with `synchronous=OFF`: no call waits for the disk.
pub struct MarkDatabase {
    path: PathBuf,
    /// The database that the marks are about: whoever may write to it may write marks.
    data: Option<PathBuf>,
    read_only: bool,
    // Readers go first: only a connection that writes may copy the log when it is closed.
    reads: Mutex<Option<Connection>>,
    writes: Mutex<Option<Connection>>,
}

impl MarkDatabase {
    /// Nothing is opened or made before it is needed.
    pub fn new(path: PathBuf, read_only: bool) -> Self {
        Self { path, data: None, read_only, reads: Mutex::new(None), writes: Mutex::new(None) }
    }

    /// The marks get the mode of the database they are about.
    pub fn about(self, data: PathBuf) -> Self {
        Self { data: Some(data), ..self }
    }

    /// Reads; nothing if there is no database yet.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<Option<T>> {
        let mut reads = lock(&self.reads);
        if reads.is_none() {
            match self.path.metadata() {
                Ok(file) if file.len() > 0 => {}
                _ => return Ok(None),
            }
            *reads = Some(open_reader(&self.path).map_err(|error| self.failed(&error))?);
        }
        let result = reads.as_ref().map(read).transpose();
        if result.is_err() {
            *reads = None;
        }
        result.map_err(|error| self.failed(&error))
    }

    fn write<T>(&self, write: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        if self.read_only {
            return Err(Error::new(ErrorKind::Unsupported, "the store was opened read-only"));
        }
        let mut writes = lock(&self.writes);
        let mut attempt = || {
            if writes.is_none() {
                // Names of sessions are in it. What cannot be made, opening reports.
                let _ = self.data.as_deref().map_or(Modes::PRIVATE, Modes::like).create_new(&self.path);
                *writes = Some(open_writer(&self.path)?);
            }
            let connection = writes.as_ref().ok_or(rusqlite::Error::InvalidQuery)?;
            let result = write(connection);
            if result.is_err() {
                *writes = None;
            }
            result
        };
        match attempt() {
            // Written without syncs, so a power cut may leave nonsense: it begins anew.
            Err(error) if is_damaged(&error) => {
                self.set_aside();
                attempt()
            }
            other => other,
        }
        .map_err(|error| self.failed(&error))
    }

    fn set_aside(&self) {
        *lock(&self.reads) = None;
        for end in ["", "-wal", "-shm"] {
            let (mut from, mut to) = (self.path.clone().into_os_string(), self.path.clone().into_os_string());
            from.push(end);
            to.push(format!(".damaged{end}"));
            let _ = std::fs::rename(from, to);
        }
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        let kind = match error.sqlite_error_code() {
            _ if is_damaged(error) => ErrorKind::Corrupt,
            Some(ErrorCode::DiskFull) => ErrorKind::PersistFailed,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::StoreUnavailable,
            _ => ErrorKind::Unsupported,
        };
        let message = format!("the marks in {} cannot be used: {error}", self.path.display());
        Error::new(kind, message).hint("make the file and its directory readable and writable, or delete the file")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "page_size", PAGE_SIZE)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let transaction = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match (found, version) {
        (APPLICATION_ID, VERSION) => {}
        (0, 0) => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        // Of another program, or of a later version: it stays as it is.
        _ => return Err(rusqlite::Error::InvalidPath(path.to_owned())),
    }
    transaction.commit()?;
    Ok(connection)
}

fn get(connection: &Connection, key: &ValueKey) -> rusqlite::Result<Option<Bytes>> {
    let sql = "SELECT value FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
    let name = params![key.namespace().as_str(), key.kind().as_str(), key.key()];
    let value: Option<Vec<u8>> = connection.prepare_cached(sql)?.query_row(name, |row| row.get(0)).optional()?;
    Ok(value.map(Bytes::from))
}

fn change(connection: &Connection, change: &Change) -> rusqlite::Result<Changed> {
    let key = &change.key;
    let (namespace, kind, name) = (key.namespace().as_str(), key.kind().as_str(), key.key());
    // The usual case, in one statement.
    if let (Expected::Is(Some(expected)), Some(value)) = (&change.expected, &change.value) {
        let sql = "UPDATE small_values SET value = ?4
                   WHERE namespace = ?1 AND kind = ?2 AND key = ?3 AND value = ?5";
        let updated =
            connection.prepare_cached(sql)?.execute(params![namespace, kind, name, &value[..], &expected[..]])?;
        if updated > 0 {
            return Ok(Changed::Done);
        }
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let current = get(&transaction, key)?;
    match change.decide(current.as_deref()) {
        Decision::Keep => return Ok(Changed::Done),
        Decision::Refuse => return Ok(Changed::Differs(current)),
        Decision::Write => {}
    }
    match &change.value {
        Some(value) => {
            let sql = "INSERT INTO small_values (namespace, kind, key, value) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (namespace, kind, key) DO UPDATE SET value = excluded.value";
            transaction.prepare_cached(sql)?.execute(params![namespace, kind, name, &value[..]])?;
        }
        None => {
            let sql = "DELETE FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
            transaction.prepare_cached(sql)?.execute(params![namespace, kind, name])?;
        }
    }
    transaction.commit()?;
    Ok(Changed::Done)
}

fn list(connection: &Connection, query: &ValueQuery) -> rusqlite::Result<ValuePage> {
    // Every key comes behind the empty text.
    let after = query.after.as_deref().unwrap_or_default();
    let sql = "SELECT key, value FROM small_values WHERE namespace = ?1 AND kind = ?2 AND key > ?3 ORDER BY key";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![query.namespace.as_str(), query.kind.as_str(), after], |row| {
        Ok((row.get(0)?, Bytes::from(row.get::<_, Vec<u8>>(1)?)))
    })?;
    ValuePage::fill(query.limit, rows)
}

/// Calls take microseconds and wait for no disk, so they are made where they are asked for.
#[async_trait]
impl Values for MarkDatabase {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        Ok(self.read(|connection| get(connection, key))?.flatten())
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let found = self.read(|connection| keys.iter().map(|key| get(connection, key)).collect())?;
        Ok(found.unwrap_or_else(|| vec![None; keys.len()]))
    }

    async fn change(&self, asked: &Change) -> Result<Changed> {
        asked.check()?;
        self.write(|connection| change(connection, asked))
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        Ok(self.read(|connection| list(connection, query))?.unwrap_or_default())
    }
}
