//! The store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::codec::Frame;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, Base, BranchInfo, Capabilities, Error, Fork, FramePage, IdSource, Lease, LeaseRequest,
    NewSession, ReadFrames, Removal, Removed, Result, SessionInfo, SessionKey, SessionPage, SessionQuery, Store,
    Timestamp,
};
use tokio::sync::Mutex;

use super::bucket::Bucket;
use super::cache::Cache;
use super::change::Entry;
use super::clock::{Side, StoreClock};
use super::layout::Folder;
use super::read::Outcome;
use super::state::State;
use crate::options::StoreOptions;
use crate::system::{SystemClock, system_ids};

/// How many sessions are remembered.
const SESSIONS: usize = 256;
/// How many indexes of segments are remembered.
const INDEXES: usize = 64;
/// How often a page is read again because its objects were merged meanwhile.
const READS: usize = 4;
/// How many changes wait in the log before they are merged.
const COMPACT_EVERY: u64 = 64;
/// A frame is sent in one request, which must end before its timeout.
const LARGEST_FRAME: usize = 64 << 20;

/// What is remembered of one session.
pub(super) type SessionSlot = Arc<Mutex<Option<Arc<State>>>>;
type IndexSlot = Arc<Mutex<Option<Arc<Vec<Entry>>>>>;

/// Keeps journals as objects in a bucket: S3, Google Cloud Storage, Azure, or a local directory.
///
/// Any number of processes may use one bucket at once. An append is one conditional write and one
/// small read; see `docs/stores/objects.md` for what everything else costs. Clones share what they
/// remember.
#[derive(Clone)]
pub struct ObjectsStore(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) bucket: Bucket,
    pub(super) ids: IdSource,
    pub(super) writable: bool,
    pub(super) compact_every: u64,
    clock: StoreClock,
    sessions: Cache<Folder, SessionSlot>,
    pub(super) indexes: Cache<String, IndexSlot>,
}

impl fmt::Debug for ObjectsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectsStore").field("bucket", &self.0.bucket).finish_non_exhaustive()
    }
}

impl ObjectsStore {
    /// Opens the bucket that `url` names; see [`Bucket::open`].
    pub fn open(url: &str, options: StoreOptions) -> Result<Self> {
        let bucket = Bucket::open(url, &options).map_err(|error| error.during("open store"))?;
        Self::over(bucket, options)
    }

    /// A store over a bucket. Without a clock of its own in `options`, leases go by the clock of
    /// the service.
    pub fn over(bucket: Bucket, options: StoreOptions) -> Result<Self> {
        Self::with_compaction(bucket, options, COMPACT_EVERY)
    }

    /// The same, with another number of changes between snapshots.
    #[doc(hidden)]
    pub fn with_compaction(bucket: Bucket, options: StoreOptions, compact_every: u64) -> Result<Self> {
        let clock = match options.clock {
            Some(clock) => StoreClock::Given(clock),
            None if bucket.is_local() => StoreClock::Given(Arc::new(SystemClock)),
            None => StoreClock::Service(Mutex::default()),
        };
        Ok(Self(Arc::new(Inner {
            bucket,
            ids: system_ids()?,
            writable: !options.read_only,
            compact_every: compact_every.max(1),
            clock,
            sessions: Cache::new(SESSIONS),
            indexes: Cache::new(INDEXES),
        })))
    }
}

impl Inner {
    pub(super) fn slot(&self, folder: &Folder) -> SessionSlot {
        self.sessions.get_or_make(folder, Arc::default)
    }

    pub(super) async fn now(&self, side: Side) -> Result<Timestamp> {
        self.clock.now(&self.bucket, self.ids.nonce(), side).await
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(Error::invalid("the store was opened to read only").hint("open it to read and write")),
        }
    }

    /// The state of a session now.
    pub(super) async fn current(&self, folder: &Folder) -> Result<Arc<State>> {
        let slot = self.slot(folder);
        let mut slot = slot.lock().await;
        let mut state = match slot.take() {
            Some(mut state) => {
                self.refresh(folder, &mut state).await?;
                state
            }
            None => self.load(folder).await?,
        };
        // Names that do not exist are not worth remembering.
        if state.head != 0 {
            *slot = Some(state.clone());
        }
        Ok(std::mem::take(&mut state))
    }

    async fn read_page(&self, read: &ReadFrames) -> Result<FramePage> {
        let folder = Folder::of(&read.session);
        for attempt in 1.. {
            let state = self.current(&folder).await?;
            state.session(&read.session, "read")?.branch(&read.branch)?;
            if let Outcome::Page(page) = self.page(&folder, &state, read, attempt >= READS).await? {
                return Ok(page);
            }
        }
        Ok(FramePage { slots: Vec::new(), more: false })
    }
}

fn check_frames(frames: &[Frame]) -> Result<()> {
    match frames.iter().map(Frame::stored_len).find(|len| *len > LARGEST_FRAME) {
        Some(len) => Err(Error::limit("frame bytes", len as u64, LARGEST_FRAME as u64)),
        None => Ok(()),
    }
}

fn check_base(base: Option<&Base>) -> Result<()> {
    base.map_or(Ok(()), |base| check_frames(&base.frames))
}

#[async_trait]
impl Store for ObjectsStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("objects").with_durable().with_multi_process().with_max_frame_bytes(LARGEST_FRAME)
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let created = async {
            check_base(new.base.as_ref())?;
            self.0.create(new).await
        };
        created.await.map_err(|error| error.during("create").on(&new.header.key))
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let seen = async {
            let state = self.0.current(&Folder::of(session)).await?;
            state.seen(session, "open", self.0.now(Side::Other).await?)
        };
        seen.await.map_err(|error| error.during("open").on(session))
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        check_frames(&append.frames).map_err(|error| append.error(error))?;
        self.0.commit(append).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        self.0.read_page(read).await.map_err(|error| error.during("read").on(&read.session))
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        self.0.sessions(query).await.map_err(|error| error.during("list"))
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        check_base(fork.base.as_ref()).map_err(|error| error.during("fork").on(&fork.session))?;
        self.0.commit(fork).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.0.commit(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        let removed = async {
            if let Removal::History { base, .. } = removal {
                check_frames(&base.frames)?;
            }
            self.0.remove(removal).await
        };
        removed.await.map_err(|error| error.during("remove").on(removal.session()))
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
