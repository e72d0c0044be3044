//! Floors: what the machine, the disk and SQLite need for the same work without Rekindle.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::Result;

/// What one append to the raw file writes.
const BLOCK: usize = 4 << 10;
/// Rows in one transaction of plain SQLite.
const TRANSACTION_ROWS: usize = 100;

/// A file that blocks of 4 KB are appended to, each made durable.
#[derive(Debug)]
pub struct RawFile {
    file: File,
    block: [u8; BLOCK],
}

impl RawFile {
    /// A new file in `directory`.
    pub fn create(directory: &Path) -> Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(directory.join("raw"))?;
        Ok(Self { file, block: [0x5A; BLOCK] })
    }

    /// Appends a block and waits for the disk.
    pub fn append(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.file.write_all(&self.block)?;
        self.file.sync_data()?;
        Ok(start.elapsed())
    }
}

/// A table in a database of its own, with the settings the SQLite store uses.
#[derive(Debug)]
pub struct PlainTable {
    connection: Connection,
}

impl PlainTable {
    /// A new database in `directory`.
    pub fn create(directory: &Path) -> Result<Self> {
        let connection = Connection::open(directory.join("plain.db"))?;
        connection.pragma_update(None, "page_size", 8192)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 2_000)?;
        connection.pragma_update(None, "cache_size", -16_000)?;
        connection.execute_batch(
            "CREATE TABLE steps (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, body BLOB NOT NULL)",
        )?;
        Ok(Self { connection })
    }

    /// Inserts rows in transactions of 100, with a prepared statement.
    pub fn insert(&mut self, bodies: &[Vec<u8>]) -> Result<Duration> {
        self.insert_in(bodies, TRANSACTION_ROWS)
    }

    /// Inserts rows in transactions of so many, with a prepared statement.
    pub fn insert_in(&mut self, bodies: &[Vec<u8>], rows: usize) -> Result<Duration> {
        let start = Instant::now();
        for bodies in bodies.chunks(rows) {
            let transaction = self.connection.transaction()?;
            {
                let mut insert = transaction.prepare_cached("INSERT INTO steps (session, body) VALUES (?1, ?2)")?;
                for (session, body) in bodies.iter().enumerate() {
                    insert.execute(params![session as i64, body])?;
                }
            }
            transaction.commit()?;
        }
        Ok(start.elapsed())
    }

    /// Reads all rows and parses each as JSON; what was parsed is kept until the end, as a
    /// restored state is.
    pub fn read_and_parse(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut select = self.connection.prepare_cached("SELECT body FROM steps ORDER BY id")?;
        let mut rows = select.query([])?;
        let mut values: Vec<Value> = Vec::new();
        while let Some(row) = rows.next()? {
            values.push(serde_json::from_slice(row.get_ref(0)?.as_blob()?)?);
        }
        let elapsed = start.elapsed();
        drop(values);
        Ok(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tables_take_rows_and_give_them_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = PlainTable::create(directory.path()).unwrap();
        table.insert(&vec![b"{}".to_vec(); 250]).unwrap();
        let count: i64 = table.connection.query_row("SELECT count(*) FROM steps", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 250);
        table.read_and_parse().unwrap();
        table.insert(&[b"{".to_vec()]).unwrap();
        assert!(table.read_and_parse().is_err());
    }

    #[test]
    fn raw_appends_are_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let mut raw = RawFile::create(directory.path()).unwrap();
        raw.append().unwrap();
        raw.append().unwrap();
        assert_eq!(std::fs::metadata(directory.path().join("raw")).unwrap().len(), 2 * BLOCK as u64);
    }
}
