//! News of other connections and processes: SQLite tells nobody, but knows cheaply whether anything
//! was committed.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::Result;
use rekindle_core::queue::{Notice, Notices};
use rusqlite::Connection;

use super::failure::database_error;
use super::jobs;
use super::schema::{self, Settings};

/// How often to look.
const EVERY: Duration = Duration::from_millis(50);

/// Looks whether the database changed, with a connection of its own.
pub(super) struct DatabaseNotices {
    connection: Mutex<Connection>,
    version: i64,
    count: i64,
}

impl fmt::Debug for DatabaseNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseNotices").field("count", &self.count).finish_non_exhaustive()
    }
}

impl DatabaseNotices {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connection = schema::open_reader(path, Settings::default())?;
        let failed = |error| database_error(path, error);
        let (version, count) = (version(&connection).map_err(failed)?, jobs::news(&connection).map_err(failed)?);
        Ok(Self { connection: Mutex::new(connection), version, count })
    }

    /// Whether there is anything to look at.
    fn changed(&mut self) -> rusqlite::Result<bool> {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        let version = version(connection)?;
        if version == self.version {
            return Ok(false);
        }
        let count = jobs::news(connection)?;
        let changed = count != self.count;
        (self.version, self.count) = (version, count);
        Ok(changed)
    }
}

/// Changes whenever another connection has committed.
fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

#[async_trait]
impl Notices for DatabaseNotices {
    async fn next(&mut self) -> Notice {
        loop {
            tokio::time::sleep(EVERY).await;
            // What cannot be read now may have changed.
            if self.changed().unwrap_or(true) {
                return Notice::Anything;
            }
        }
    }
}
