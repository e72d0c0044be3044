//! Reading the table: for reading alone, row by row, without making or changing any file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rekindle::{Error, ErrorKind, Result, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Value, json};

use crate::read::{self, Read};
use crate::{ImportOptions, time};

/// The columns that are read, the required ones first.
const COLUMNS: [&str; 10] = [
    "session_id",
    "state_json",
    "id",
    "project_id",
    "step_number",
    "created_at",
    "description",
    "trigger_type",
    "duration_ms",
    "token_usage",
];
const REQUIRED: usize = 2;

/// The table, and how it is read.
pub(super) struct Table {
    connection: Connection,
    pub(super) place: String,
    /// The columns, each as SQL: `NULL` where there is none.
    columns: Vec<&'static str>,
    options: ImportOptions,
    pub(super) skipped: Vec<(String, String)>,
}

/// Where a row stands in time.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) row: i64,
    pub(super) time: Option<Timestamp>,
    pub(super) step: i64,
    pub(super) project: Option<String>,
}

impl Table {
    pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let path = read::existing(path)?;
        let place = path.display().to_string();
        let refuse = |error: rusqlite::Error| {
            Error::invalid(format!("`{place}` is not a checkpoint table that can be read")).because(error)
        };
        let connection = connect(&path)?;
        connection.pragma_update(None, "query_only", true).map_err(refuse)?;
        connection.pragma_update(None, "trusted_schema", false).map_err(refuse)?;
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'checkpoints' AND type = 'table' \
                   AND sql NOT LIKE 'CREATE VIRTUAL%'";
        // A view could be made to read anything, for ever.
        let tables: i64 = connection.query_row(sql, [], |row| row.get(0)).map_err(refuse)?;
        let columns = if tables == 1 { columns(&connection).map_err(refuse)? } else { BTreeSet::new() };
        if let Some(missing) = COLUMNS[..REQUIRED].iter().find(|name| !columns.contains(**name)) {
            let message = match tables {
                1 => format!("the table `checkpoints` of `{place}` has no column `{missing}`"),
                _ => format!("`{place}` has no table `checkpoints`"),
            };
            return Err(Error::invalid(message).hint("name the database that holds the table `checkpoints`"));
        }
        let columns = COLUMNS.map(|name| if columns.contains(name) { name } else { "NULL" }).to_vec();
        Ok(Self { connection, place, columns, options: options.clone(), skipped: Vec::new() })
    }

    /// The rows of each session, in order, without their states.
    pub(super) fn survey(mut self) -> Result<(Self, BTreeMap<String, Vec<Key>>)> {
        let limit = self.options.max_files;
        let [session, _, _, project, step, created, ..] = self.columns[..] else {
            return Err(Error::invalid("the table has too few columns"));
        };
        let sql = format!("SELECT rowid, {session}, {step}, {created}, {project} FROM checkpoints ORDER BY rowid");
        let mut sessions: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        let mut skipped = Vec::new();
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                count += 1;
                if count > limit {
                    skipped.push((self.place.clone(), format!("it has more than {limit} rows; the rest was not read")));
                    break;
                }
                let number: i64 = row.get(0)?;
                let Some(id) = text(row, 1)? else {
                    skipped.push((place(&self.place, number), "its session id is not text".into()));
                    continue;
                };
                let key = Key {
                    row: number,
                    time: time::timestamp(&value(row, 3)?),
                    step: value(row, 2)?.as_i64().unwrap_or(0),
                    project: text(row, 4)?,
                };
                sessions.entry(id).or_default().push(key);
            }
            Ok(())
        };
        read().map_err(|error| damaged(&self.place, error))?;
        self.skipped = skipped;
        Ok((self, sessions))
    }

    /// One row.
    pub(super) fn row(&self, number: i64) -> Read<Stored> {
        let columns = self.columns.join(", ");
        let sql = format!("SELECT length(CAST(state_json AS BLOB)), {columns} FROM checkpoints WHERE rowid = ?1");
        let limit = self.options.max_file_bytes;
        let read = self.connection.query_row(&sql, [number], |row| {
            let size: u64 = row.get::<_, Option<i64>>(0)?.unwrap_or(0).try_into().unwrap_or(0);
            if size > limit {
                return Ok(Err(format!("its state has {size} bytes; {limit} are allowed")));
            }
            let state = match row.get_ref(2)? {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match bytes {
                    [0x1f, 0x8b, ..] | [0x78, 0x01 | 0x9c | 0xda, ..] => Err("its state is compressed".into()),
                    bytes => read::parse(bytes).and_then(read::into_object),
                },
                _ => Err("it has no state".into()),
            };
            let state = match state {
                Ok(state) => state,
                Err(why) => return Ok(Err(why)),
            };
            Ok(Ok(Stored {
                state,
                id: text(row, 3)?.unwrap_or_default(),
                project: text(row, 4)?,
                step: value(row, 5)?.as_u64().unwrap_or(0),
                created_at: Some(value(row, 6)?).filter(|value| !value.is_null()),
                description: text(row, 7)?.unwrap_or_default(),
                trigger: text(row, 8)?.unwrap_or_default(),
                duration_ms: value(row, 9)?.as_u64().unwrap_or(0),
                tokens: value(row, 10)?.as_u64().unwrap_or(0),
            }))
        });
        read.map_err(|error| error.to_string())?
    }
}

/// A row as it is stored.
pub(super) struct Stored {
    pub(super) state: read::Object,
    pub(super) id: String,
    pub(super) project: Option<String>,
    pub(super) step: u64,
    pub(super) created_at: Option<Value>,
    pub(super) description: String,
    pub(super) trigger: String,
    pub(super) duration_ms: u64,
    pub(super) tokens: u64,
}

/// Opens the database without making or changing any file beside it.
fn connect(path: &Path) -> Result<Connection> {
    let place = path.display();
    let refuse =
        |error: rusqlite::Error| Error::invalid(format!("`{place}` cannot be opened as a database")).because(error);
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(PathBuf::from(name)).is_ok_and(|file| file.len() > 0)
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match (is_write_ahead(path), beside("-wal"), beside("-shm")) {
        // Even a reader would make files beside a database in this mode, unless it never changes.
        (true, false, _) => {
            let uri = uri(path).ok_or_else(|| Error::invalid(format!("the path `{place}` is not UTF-8")))?;
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).map_err(refuse)
        }
        (true, true, false) => Err(Error::new(ErrorKind::Unsupported, format!("`{place}` was not closed properly"))
            .hint("open and close it once with the program it belongs to, or bring its `-shm` file too")),
        _ => Connection::open_with_flags(path, flags).map_err(refuse),
    }
}

/// Whether a database keeps a write-ahead log, as bytes 18 and 19 of its header say.
fn is_write_ahead(path: &Path) -> bool {
    let mut header = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header[18..] == [2, 2]
}

fn uri(path: &Path) -> Option<String> {
    let text = path.to_str()?.replace('\\', "/");
    let text = text.strip_prefix("//?/").unwrap_or(&text);
    let mut uri = if text.starts_with('/') { "file:".to_owned() } else { "file:/".to_owned() };
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b':' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(uri + "?mode=ro&immutable=1")
}

fn columns(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info('checkpoints')")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// A column as text, whatever it is stored as; none if there is nothing, or nothing readable.
fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
        ValueRef::Integer(number) => Some(number.to_string()),
        _ => None,
    })
}

fn value(row: &Row<'_>, index: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(index)? {
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned().into(),
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
    })
}

fn damaged(place: &str, error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the table `checkpoints` of `{place}` cannot be read")).because(error)
}

pub(super) fn place(database: &str, row: i64) -> String {
    format!("{database}, row {row}")
}
