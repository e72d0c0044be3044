//! The SQLite store: one database file, the embedded default.
//!
//! One thread writes and commits in groups, a few threads read; async callers hand them work and
//! wait, but for opening a session, which is done at once. Several processes may use the same file: the
//! write lock of SQLite orders them.

mod append;
mod at_hand;
mod change;
mod check;
mod entry;
mod failure;
mod frames;
mod holder;
mod index;
mod jobs;
mod list;
mod notices;
mod queue;
mod reader;
mod readers;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod values;
mod watch;
mod worker;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::codec::Frame;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, Base, BranchInfo, Capabilities, Clock, Defect, Error, ErrorKind, Fork, FramePage, Lease,
    LeaseRequest, Moment, Namespace, NewSession, ReadFrames, Removal, Removed, Result, Seq, SessionInfo, SessionKey,
    SessionPage, SessionQuery, Store,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::at_hand::{AtHand, Open};
use self::failure::Outcome;
use self::frames::FrameRow;
use self::readers::{READERS, ReadJob, Readers};
use self::schema::Settings;
use self::worker::{Worker, stopped};
use self::writer::{Call, Job, Writer, context};
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
    readers: Readers,
    at_hand: AtHand,
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
        Inner::open(path, options, settings)
            .map(|inner| Self(Arc::new(inner)))
            .map_err(|error| error.during("open store"))
    }

    async fn write<T: Send + 'static>(&self, mut call: Call<T>) -> Result<T> {
        let (operation, session, path) = (call.operation, call.session.clone(), &self.0.path);
        let context = |error: Error| context(error, operation, session.as_ref());
        let Some(writer) = &self.0.writer else {
            let message = format!("the store was opened read-only: {}", path.display());
            return Err(context(Error::new(ErrorKind::Unsupported, message).hint(schema::MAKE_WRITABLE)));
        };
        let answer = call.answer();
        writer.send(Box::new(call), path).await.map_err(context)?;
        answer.await.unwrap_or_else(|_| Err(context(stopped(path))))
    }

    /// A session, found at once; nothing if anything stands against that, whatever it is.
    fn found_at_once(&self, session: &SessionKey) -> Option<SessionInfo> {
        // One statement, so there is nothing that would have to fit together.
        self.0.at_hand.try_read(|connection| reader::open(connection, session, Moment::of(&*self.0.clock)).ok())
    }

    async fn read_with<T: Send + 'static>(
        &self,
        operation: &'static str,
        session: Option<&SessionKey>,
        work: impl FnOnce(&Connection, &dyn Clock) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let context = |error: Error| context(error, operation, session);
        let (reply, answer) = oneshot::channel();
        let (path, clock) = (self.0.path.clone(), self.0.clock.clone());
        let job: ReadJob = Box::new(move |connection| {
            if reply.is_closed() {
                return;
            }
            let outcome = reader::on_snapshot(connection, |snapshot| work(snapshot, &*clock));
            // A caller that no longer waits is none of the reader's business.
            let _ = reply.send(outcome.map_err(|failure| failure.into_error(&path)));
        });
        self.0.readers.send(job, &self.0.path).map_err(context)?;
        answer.await.unwrap_or_else(|_| Err(stopped(&self.0.path))).map_err(context)
    }
}

impl Inner {
    fn open(path: &Path, options: StoreOptions, settings: Settings) -> Result<Self> {
        let path = schema::locate(path, &options)?;
        let writer = match options.read_only {
            true => None,
            false => {
                let connection = schema::open_writer(&path, &options, settings)?;
                let writer = Writer::new(connection, path.clone(), options.local_clock(), settings);
                Some(Worker::start("rekindle-sqlite-writer", move |jobs| writer.serve(jobs))?)
            }
        };
        let open: Open = if options.read_only { schema::open_read_only } else { schema::open_reader };
        let at_hand = AtHand::new(&path, open);
        let readers = Readers::start((0..READERS).map(|_| open(&path, settings)).collect::<Result<_>>()?)?;
        Ok(Self { path, clock: options.local_clock(), readers, at_hand, writer })
    }
}

/// Rows share pages of 8 KB: what is a third smaller often costs half.
const COMPRESS_FROM: usize = 1 << 10;

fn capabilities() -> Capabilities {
    Capabilities::new("sqlite").with_durable().with_multi_process().with_compress_from(COMPRESS_FROM)
}

fn check_frames(frames: &[Frame]) -> Result<()> {
    let limit = capabilities().max_frame_bytes;
    for frame in frames {
        if frame.stored_len() > limit {
            return Err(Error::limit("frame bytes", frame.stored_len() as u64, limit as u64));
        }
        let records = frame.last.0.saturating_sub(frame.first.0);
        if records >= u64::from(u32::MAX) {
            return Err(Error::limit("records per frame", records, u64::from(u32::MAX)));
        }
        if frame.last > Seq::MAX {
            return Err(Error::limit("record number", frame.last.0, Seq::MAX.0));
        }
    }
    Ok(())
}

/// The rows of a base, if there is one.
fn base_rows(base: Option<&Base>) -> Result<Vec<FrameRow>> {
    let frames = base.map(|base| &base.frames[..]).unwrap_or_default();
    check_frames(frames)?;
    Ok(FrameRow::all(frames))
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let key = &new.header.key;
        let rows = base_rows(new.base.as_ref()).map_err(|error| error.during("create").on(key))?;
        let (new, bytes) = (new.clone(), FrameRow::bytes(&rows));
        let call = Call::new("create", key, bytes, move |scope| change::create(scope, &new, &rows));
        self.write(call).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        if let Some(found) = self.found_at_once(session) {
            return Ok(found);
        }
        let key = session.clone();
        self.read_with("open", Some(session), move |snapshot, clock| reader::open(snapshot, &key, Moment::of(clock)))
            .await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        check_frames(&append.frames).map_err(|error| append.error(error))?;
        let rows = FrameRow::all(&append.frames);
        let bytes = FrameRow::bytes(&rows);
        let (key, append) = (&append.session, append.clone());
        // Only a change of the header can be refused after the head was moved.
        let guarded = append.describe.is_some() || append.sealed.is_some();
        let call = Call::new("append", key, bytes, move |scope| append::append(scope, &append, &rows));
        self.write(if guarded { call } else { call.unguarded() }).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        let request = read.clone();
        let (page, repairable) =
            self.read_with("read", Some(&read.session), move |snapshot, _| reader::read(snapshot, &request)).await?;
        if repairable && self.0.writer.is_some() {
            let request = read.clone();
            let call = Call::new("read", &read.session, 0, move |scope| reader::repair(&scope.connection, &request));
            // The page is right whether or not the next one will be found faster.
            let _ = self.write(call).await;
        }
        Ok(page)
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        let query = query.clone();
        self.read_with("list", None, move |snapshot, clock| list::list(snapshot, &query, Moment::of(clock))).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        let key = &fork.session;
        let rows = base_rows(fork.base.as_ref()).map_err(|error| error.during("fork").on(key))?;
        let (fork, bytes) = (fork.clone(), FrameRow::bytes(&rows));
        let call = Call::new("fork", key, bytes, move |scope| change::fork(scope, &fork, &rows));
        self.write(call).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        let (key, request) = (&request.session, request.clone());
        self.write(Call::new("lease", key, 0, move |scope| change::lease(scope, &request))).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        let key = removal.session();
        let base = match removal {
            Removal::History { base, .. } => Some(base),
            _ => None,
        };
        let rows = base_rows(base).map_err(|error| error.during("remove").on(key))?;
        let (removal, bytes) = (removal.clone(), FrameRow::bytes(&rows));
        let call = Call::new("remove", key, bytes, move |scope| change::remove(scope, &removal, &rows));
        self.write(call.freeing_space()).await
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.read_with("check", None, |snapshot, _| check::defects(snapshot)).await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        let namespace = namespace.clone();
        self.read_with("list", None, move |snapshot, _| check::unlisted(snapshot, &namespace)).await
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
