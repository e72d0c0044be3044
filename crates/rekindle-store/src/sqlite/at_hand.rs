//! Connections for what takes no longer than handing it to a thread and waiting for it would: a few rows by
//! their keys. They never wait for anybody.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rekindle_core::Result;
use rusqlite::Connection;

use super::schema::{self, Settings};

/// How many there are at most.
const MOST: usize = 2;
/// Whoever reads only so often does without.
const SELDOM: usize = 16;

/// Opens a connection that reads.
pub(super) type Open = fn(&Path, Settings) -> Result<Connection>;

#[derive(Debug)]
pub(super) struct AtHand {
    path: PathBuf,
    open: Open,
    settings: Settings,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    made: usize,
    asked: usize,
}

impl AtHand {
    pub(super) fn new(path: &Path, open: Open, settings: Settings) -> Self {
        Self { path: path.to_owned(), open, settings, idle: Mutex::default() }
    }

    /// What `work` gives; nothing if no connection is free.
    pub(super) fn try_read<T>(&self, work: impl FnOnce(&Connection) -> Option<T>) -> Option<T> {
        let connection = self.take()?;
        let found = work(&connection);
        self.lock().connections.push(connection);
        found
    }

    fn take(&self) -> Option<Connection> {
        {
            let mut idle = self.lock();
            idle.asked = idle.asked.saturating_add(1);
            if let Some(connection) = idle.connections.pop() {
                return Some(connection);
            }
            if idle.made == MOST || idle.asked < SELDOM {
                return None;
            }
            idle.made += 1;
        }
        let connection = (self.open)(&self.path, self.settings).ok()?;
        schema::never_wait(&connection).ok()?;
        Some(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
