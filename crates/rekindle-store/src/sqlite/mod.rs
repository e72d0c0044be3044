//! The SQLite store: one database file, the embedded default.
//!
//! One thread writes and commits in groups, a few threads read; async callers hand them work and
//! wait. Several processes may use the same file: the write lock of SQLite orders them.

mod append;
mod change;
mod failure;
mod list;
mod reader;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod worker;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::codec::Frame;
use rekindle_core::{
    Append, Appended, Base, BranchInfo, Capabilities, Clock, Error, ErrorKind, Fork, FramePage, Lease, LeaseRequest,
    NewSession, ReadFrames, Removal, Removed, Result, Seq, SessionInfo, SessionKey, SessionPage, SessionQuery, Store,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::failure::Outcome;
use self::reader::ReadJob;
use self::rows::FrameRow;
use self::schema::Settings;
use self::worker::{Worker, stopped};
use self::writer::{Call, Job, Scope, Writer};
use crate::options::StoreOptions;

/// Keeps journals in one SQLite database.
///
/// Clones share the connections. When the last one is dropped, what was handed over is finished
/// and the threads end.
///
/// ```
/// use rekindle_store::{SqliteStore, StoreOptions};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("rekindle.db");
/// let store = SqliteStore::open(&path, StoreOptions::new())?;
/// # drop(store);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    // Readers go first: the last connection to close copies the log into the database, and only
    // the writer may.
    readers: Worker<ReadJob>,
    writer: Option<Worker<Box<dyn Job>>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read_only = self.0.writer.is_none();
        f.debug_struct("SqliteStore").field("path", &self.0.path).field("read_only", &read_only).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the database at `path`; creates it if the options allow.
    ///
    /// The database belongs to Rekindle alone: one that another program made is refused.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Self::open_with(path.as_ref(), options, Settings::default())
    }

    fn open_with(path: &Path, options: StoreOptions, settings: Settings) -> Result<Self> {
        Inner::open(path, options, settings).map(|inner| Self(Arc::new(inner))).map_err(|error| error.during("open store"))
    }

    async fn write<T: Send + 'static>(&self, request: Request<T>) -> Result<T> {
        let Request { operation, session, .. } = &request;
        let Some(writer) = &self.0.writer else {
            let message = format!("the store was opened read-only: {}", self.0.path.display());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .during(operation)
                .on(session)
                .hint("open the store for writing"));
        };
        let gone = |error: Error| error.during(operation).on(session);
        let (reply, answer) = oneshot::channel();
        let (operation, session) = (*operation, session.clone());
        let call = Call {
            operation,
            session: session.clone(),
            bytes: request.bytes,
            guarded: request.guarded,
            frees_space: request.frees_space,
            work: request.work,
            reply,
            outcome: None,
        };
        writer.send(Box::new(call), &self.0.path).await.map_err(gone)?;
        answer.await.unwrap_or_else(|_| Err(gone(stopped(&self.0.path))))
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection, &dyn Clock) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let (path, clock) = (self.0.path.clone(), self.0.clock.clone());
        let job: ReadJob = Box::new(move |connection| {
            let outcome = reader::on_snapshot(connection, |snapshot| work(snapshot, &*clock));
            let _ = reply.send(outcome.map_err(|failure| failure.into_error(&path).during(operation)));
        });
        self.0.readers.send(job, &self.0.path).await.map_err(|error| error.during(operation))?;
        answer.await.unwrap_or_else(|_| Err(stopped(&self.0.path).during(operation)))
    }
}
