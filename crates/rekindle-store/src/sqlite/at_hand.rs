//! Connections for what takes no longer than handing it to a thread and waiting for it would: a few rows by
//! their keys. Where somebody holds a lock they give up.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rekindle_core::Result;
use rusqlite::Connection;

use super::schema::Settings;

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
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    made: usize,
    asked: usize,
}

impl AtHand {
    pub(super) fn new(path: &Path, open: Open) -> Self {
        Self { path: path.to_owned(), open, idle: Mutex::default() }
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
        let made = (self.open)(&self.path, Settings { patience: Duration::ZERO }).ok();
        if made.is_none() {
            let mut idle = self.lock();
            (idle.made, idle.asked) = (idle.made - 1, 0);
        }
        made
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_hand(open: Open) -> AtHand {
        AtHand::new(Path::new("nowhere"), open)
    }

    #[test]
    fn there_are_few_and_only_for_whoever_reads_often() {
        let at_hand = at_hand(|_, _| Ok(Connection::open_in_memory().unwrap()));
        let seldom = (0..SELDOM - 1).filter_map(|_| at_hand.try_read(|_| Some(()))).count();
        assert_eq!(seldom, 0);
        let nested = at_hand.try_read(|_| at_hand.try_read(|_| Some(at_hand.try_read(|_| Some(())))));
        assert_eq!(nested, Some(None), "two are in use");
        assert_eq!(at_hand.try_read(|_| Some(())), Some(()), "and come back");
    }

    #[test]
    fn what_cannot_be_opened_is_tried_again_later() {
        let at_hand = at_hand(|_, _| Err(rekindle_core::Error::invalid("not now")));
        for _ in 0..10 * SELDOM {
            assert_eq!(at_hand.try_read(|_| Some(())), None);
        }
        assert_eq!(at_hand.lock().made, 0);
    }
}
