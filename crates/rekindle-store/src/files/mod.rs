//! The file store: a directory that people can read with a pager.
//!
//! ```text
//! rekindle.json                          the layout's version
//! sessions/<namespace>/<session>/
//!     session.json                       header, branches, leases: one checked line
//!     session.copy                       the same, compressed, for when that is damaged
//!     lock                               held around each call, across processes
//!     branches/<branch>/
//!         00000000000000000001.jsonl     a segment: one frame per line
//!         base-<seq>-<hash>.jsonl        what stands for history that was removed
//!         quarantine/                    unfinished writes that were cut off
//!     quarantine/                        damaged `session.json`s that were replaced
//! sessions/<namespace>/index.jsonl       speeds up listing; may be deleted at any time
//! values/<namespace>/<kind>/<key>.json    a small value: one checked line
//! values/<namespace>/<kind>/lock          held around each change of a value, across processes
//! trash/                                 what is being removed
//! ```
//!
//! A commit is one write and one sync of the last segment: what an append changes besides
//! adding frames (status, lease, header) stands in the line's `store` field. `session.json` is
//! a snapshot; lines behind the heads it records say what changed since.

mod branch;
#[doc(hidden)]
pub mod disk;
mod index;
mod layout;
mod lines;
mod manifest;
mod operations;
mod page;
mod real;
mod scan;
mod seek;
mod session;
mod trim;
mod values;
mod worker;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Clock, Error, Fork, FramePage, Lease, LeaseRequest, Moment, NewSession,
    ReadFrames, Removal, Removed, Result, SessionInfo, SessionKey, SessionPage, SessionQuery, Store,
};

use self::disk::Disk;
use self::index::Index;
use self::layout::Layout;
pub(crate) use self::layout::MARKER;
use self::real::RealDisk;
use self::session::Session;
use self::values::Folders;
use self::worker::Workers;
use crate::options::StoreOptions;
use crate::system::system_ids;

/// A segment ends once it holds this many bytes.
const SEGMENT_BYTES: u64 = 8 << 20;

/// A line holds at most 99,999,999 bytes, and base64 makes three bytes four.
const LARGEST_FRAME: usize = 70 << 20;

/// How many sessions are kept open. Each takes a file for its lock and one for each branch that
/// was written to; together they stay below the thousand that systems commonly allow.
const OPEN_SESSIONS: usize = 128;

/// Keeps journals as lines of JSON in a directory. Clones share everything.
///
/// Several processes may use the directory at once, on a file system with working advisory
/// locks. Opening a session reads its last segment (8 MiB at most, unless one commit is
/// larger); appending costs one write and one `fdatasync`, however long the history is.
///
/// Listing looks at every session of the namespace: one small read and one `stat` per branch
/// for those that did not change since they were last listed, a read of the last segment for
/// the others. A session whose `session.json` is damaged is read from its copy; if both are, it is
/// listed by its name, with what is wrong with it, and cannot be opened.
///
/// ```
/// use rekindle_store::{FileStore, StoreOptions};
/// let directory = tempfile::tempdir()?;
/// let store = FileStore::open(directory.path().join("journals"), StoreOptions::new())?;
/// # let _ = store;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileStore {
    core: Arc<Core>,
    workers: Arc<Workers>,
}

/// What the worker threads share.
#[derive(Debug)]
struct Core {
    layout: Arc<Layout>,
    clock: Arc<dyn Clock>,
    sessions: Mutex<Sessions>,
    index: Mutex<Index>,
    folders: Folders,
}

/// The sessions that are kept open, and when each was last used.
#[derive(Debug, Default)]
struct Sessions {
    open: HashMap<SessionKey, (u64, Arc<Mutex<Session>>)>,
    clock: u64,
}

impl FileStore {
    /// Opens the store in `directory`, which is made if it is not there and may be.
    pub fn open(directory: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        let disk = RealDisk::below(directory.as_ref());
        Self::open_on(Arc::new(disk), directory, options, SEGMENT_BYTES)
    }

    /// Opens a store on another disk, or with segments of another size: for tests.
    #[doc(hidden)]
    pub fn open_on(
        disk: Arc<dyn Disk>,
        directory: impl AsRef<Path>,
        options: StoreOptions,
        segment_bytes: u64,
    ) -> Result<Self> {
        let layout = Layout {
            disk,
            root: directory.as_ref().to_owned(),
            writable: !options.read_only,
            segment_bytes,
            ids: system_ids()?,
        };
        layout.prepare(options.create).map_err(|error| error.during("open"))?;
        let core = Core {
            layout: Arc::new(layout),
            clock: options.local_clock(),
            sessions: Mutex::default(),
            index: Mutex::default(),
            folders: Folders::default(),
        };
        Ok(Self { core: Arc::new(core), workers: Arc::default() })
    }

    /// Runs `work` on a session, on the thread that serves it.
    async fn on<T: Send + 'static>(
        &self,
        key: &SessionKey,
        operation: &'static str,
        work: impl FnOnce(&mut Session, Moment) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (core, session) = (self.core.clone(), key.clone());
        let done = self.workers.run(key, move || core.with(&session, work)).await;
        done.map_err(|error| error.during(operation).on(key))
    }

    /// As [`FileStore::on`], for what writes.
    async fn change<T: Send + 'static>(
        &self,
        key: &SessionKey,
        operation: &'static str,
        work: impl FnOnce(&mut Session, Moment) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.core.layout.writable {
            let error = Error::invalid("the store was opened to read only").hint("open it to read and write");
            return Err(error.during(operation).on(key));
        }
        self.on(key, operation, work).await
    }
}

impl Core {
    fn with<T>(&self, key: &SessionKey, work: impl FnOnce(&mut Session, Moment) -> Result<T>) -> Result<T> {
        let session = self.session(key);
        let mut session = session.lock().unwrap_or_else(|poisoned| {
            // Whatever was being changed is read anew.
            let mut session = poisoned.into_inner();
            *session = Session::new(self.layout.clone(), key.clone());
            session
        });
        work(&mut session, Moment::of(&*self.clock))
    }

    fn session(&self, key: &SessionKey) -> Arc<Mutex<Session>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.clock += 1;
        let used = sessions.clock;
        if let Some((last_used, session)) = sessions.open.get_mut(key) {
            *last_used = used;
            return session.clone();
        }
        if sessions.open.len() >= OPEN_SESSIONS {
            let oldest = sessions.open.iter().min_by_key(|(_, (last_used, _))| *last_used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| sessions.open.remove(&oldest));
        }
        let session = Arc::new(Mutex::new(Session::new(self.layout.clone(), key.clone())));
        sessions.open.insert(key.clone(), (used, session.clone()));
        session
    }

    /// The session if it is kept open, else one that is not kept.
    fn session_briefly(&self, key: &SessionKey) -> Arc<Mutex<Session>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match sessions.open.get(key) {
            Some((_, session)) => session.clone(),
            None => Arc::new(Mutex::new(Session::new(self.layout.clone(), key.clone()))),
        }
    }
}

#[async_trait]
impl Store for FileStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("files").with_durable().with_multi_process().with_max_frame_bytes(LARGEST_FRAME)
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let request = new.clone();
        self.change(&new.header.key, "create", move |session, now| session.create(&request, now)).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.on(session, "open", Session::open).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        let request = append.clone();
        let appended = self.change(&append.session, "append", move |session, now| session.append(&request, now)).await;
        appended.map_err(|error| append.error(error))
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        let request = read.clone();
        self.on(&read.session, "read", move |session, _| session.read(&request)).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        let (core, request) = (self.core.clone(), query.clone());
        let listed = self.workers.run(&query.namespace, move || core.list(&request)).await;
        listed.map_err(|error| error.during("list"))
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        let request = fork.clone();
        self.change(&fork.session, "fork", move |session, now| session.fork(&request, now)).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        let key = request.session.clone();
        let request = request.clone();
        self.change(&key, "lease", move |session, now| session.lease(&request, now)).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        let key = removal.session().clone();
        let removal = removal.clone();
        self.change(&key, "remove", move |session, now| session.remove(&removal, now)).await
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
