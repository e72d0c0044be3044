//! The store.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::orphans::Orphans;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, Base, BranchInfo, Capabilities, Defect, Error, ErrorKind, Fork, FramePage, IdSource, Lease,
    LeaseRequest, Namespace, NewSession, ReadFrames, Removal, Removed, Result, Retries, Section, SessionInfo,
    SessionKey, SessionPage, SessionQuery, Store,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::bucket::Bucket;
use super::cache::Cache;
use super::change::Entry;
use super::clock::{Now, Started, StoreClock};
use super::index::{Line, Marks, Roots};
use super::layout::Folder;
use super::read::Outcome;
use super::state::State;
use crate::options::StoreOptions;
use crate::system::{SystemClock, system_ids};

/// How many sessions are remembered.
const SESSIONS: usize = 256;
/// How many indexes of segments are remembered.
const INDEXES: usize = 64;
/// How many segments are remembered, of 4 MB at most.
const SEGMENTS: usize = 4;
/// How many chunks of lists are remembered.
const CHUNKS: usize = 16;
/// How often a page is read again because its objects were merged meanwhile.
const READS: usize = 4;
/// How many changes wait in the log before they are merged.
const COMPACT_EVERY: u64 = 64;
/// How long what stands behind a known head is read without a look.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// A look is two requests, and so is the renewal of a lease.
const IDLE_POLL: Duration = Duration::from_secs(5);
/// A frame is sent in one request, which must end before its timeout.
const LARGEST_FRAME: usize = 64 << 20;

/// What is remembered of one session.
pub(super) type SessionSlot = Arc<Mutex<Option<Arc<State>>>>;
/// The turn of one caller with a session: nobody else of this process changes or reads its log meanwhile.
pub(super) struct Turn {
    pub(super) store: Arc<Inner>,
    pub(super) folder: Folder,
    pub(super) slot: OwnedMutexGuard<Option<Arc<State>>>,
}

type ChunkSlot = Arc<Mutex<Option<Arc<Vec<Line>>>>>;
type IndexSlot = Arc<Mutex<Option<Arc<Vec<Entry>>>>>;

/// Keeps journals as objects in a bucket: S3, Google Cloud Storage, Azure, or a local directory.
///
/// Any number of processes may use one bucket at once. An append is one conditional write and one
/// small read; see `docs/stores/objects.md` for what everything else costs. Clones share what they
/// remember.
#[derive(Clone)]
pub struct ObjectsStore(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// Itself, for tasks that outlive a caller.
    this: Weak<Self>,
    pub(super) bucket: Bucket,
    pub(super) ids: IdSource,
    pub(super) writable: bool,
    pub(super) compact_every: u64,
    /// Snapshots are made behind changes, not as a part of them.
    pub(super) in_background: bool,
    /// The sessions of which a snapshot is being made in the background.
    compacting: std::sync::Mutex<HashSet<Folder>>,
    /// The age that what is known of a session may have where nothing is decided by it.
    staleness: Duration,
    /// When each session was last looked at.
    looked: Cache<Folder, Started>,
    clock: StoreClock,
    sessions: Cache<Folder, SessionSlot>,
    pub(super) indexes: Cache<String, IndexSlot>,
    /// Segments that were read whole: they never change.
    pub(super) segments: Cache<String, Bytes>,
    /// The roots of indexes, the chunks of them that were read, and the marks of this process.
    pub(super) roots: Roots,
    pub(super) chunks: Cache<String, ChunkSlot>,
    pub(super) marks: Marks,
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
        Self::make(bucket, options, COMPACT_EVERY, true)
    }

    /// A store with another number of changes between snapshots, which are made as a part of changes, so that
    /// every request has its place.
    #[doc(hidden)]
    pub fn with_compaction(bucket: Bucket, options: StoreOptions, compact_every: u64) -> Result<Self> {
        Self::make(bucket, options, compact_every, false)
    }

    /// A store with another number of changes between snapshots.
    #[doc(hidden)]
    pub fn with_background_compaction(bucket: Bucket, options: StoreOptions, compact_every: u64) -> Result<Self> {
        Self::make(bucket, options, compact_every, true)
    }

    fn make(bucket: Bucket, options: StoreOptions, compact_every: u64, in_background: bool) -> Result<Self> {
        let clock = match options.clock {
            Some(clock) => StoreClock::Given(clock),
            None if bucket.is_local() => StoreClock::Given(Arc::new(SystemClock)),
            None => StoreClock::Service(Mutex::default()),
        };
        let ids = system_ids()?;
        Ok(Self(Arc::new_cyclic(|this| Inner {
            this: this.clone(),
            bucket,
            ids,
            writable: !options.read_only,
            compact_every: compact_every.max(1),
            in_background,
            compacting: std::sync::Mutex::default(),
            staleness: options.staleness,
            looked: Cache::new(SESSIONS),
            clock,
            // One whose turn is under way stays: there is one turn of a session at a time.
            sessions: Cache::keeping(SESSIONS, |slot| Arc::strong_count(slot) > 1),
            indexes: Cache::new(INDEXES),
            segments: Cache::new(SEGMENTS),
            roots: Roots::default(),
            chunks: Cache::new(CHUNKS),
            marks: Marks::default(),
        })))
    }
}

impl Inner {
    pub(super) fn slot(&self, folder: &Folder) -> SessionSlot {
        self.sessions.get_or_make(folder, Arc::default)
    }

    pub(super) fn compacting(&self) -> MutexGuard<'_, HashSet<Folder>> {
        self.compacting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn now(&self) -> Result<Now> {
        let store = self.shared()?;
        apart(async move { store.clock.now(&store.bucket, store.ids.nonce()).await }).await
    }

    pub(super) fn shared(&self) -> Result<Arc<Self>> {
        self.this.upgrade().ok_or_else(closed)
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(Error::invalid("the store was opened to read only").hint("open it to read and write")),
        }
    }

    /// Runs `work` in the next turn of a session, on a task of its own. A caller that goes away before its turn has
    /// done nothing; one that goes away later leaves the work to its end, and what was read stays in the cache. So a
    /// call that is cancelled again and again still gets further each time.
    pub(super) async fn in_turn<T, W>(&self, folder: &Folder, work: impl FnOnce(Turn) -> W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let slot = self.slot(folder).lock_owned().await;
        apart(work(Turn { store: self.shared()?, folder: folder.clone(), slot })).await
    }

    /// The state of a session, as old as it may be at most.
    pub(super) async fn current(&self, folder: &Folder) -> Result<Arc<State>> {
        let staleness = self.staleness;
        let work =
            move |mut turn: Turn| async move { turn.store.current_in(&turn.folder, &mut turn.slot, staleness).await };
        self.in_turn(folder, work).await
    }

    /// The state of a session now.
    pub(super) async fn look(&self, folder: &Folder) -> Result<Arc<State>> {
        let work =
            |mut turn: Turn| async move { turn.store.current_in(&turn.folder, &mut turn.slot, Duration::ZERO).await };
        self.in_turn(folder, work).await
    }

    async fn current_in(
        &self,
        folder: &Folder,
        slot: &mut Option<Arc<State>>,
        staleness: Duration,
    ) -> Result<Arc<State>> {
        if let Some(state) = slot
            && self.was_looked_at(folder, staleness)
        {
            state.check_folder(folder)?;
            return Ok(state.clone());
        }
        let looked = Started::now();
        let state = match slot {
            Some(state) => {
                self.refresh(folder, state).await?;
                state.clone()
            }
            None => self.load(folder).await?,
        };
        // Names that do not exist are not worth remembering.
        *slot = (state.head != 0).then(|| state.clone());
        self.looked.put(folder, looked);
        state.check_folder(folder)?;
        Ok(state)
    }

    fn was_looked_at(&self, folder: &Folder, within: Duration) -> bool {
        self.looked.get(folder).is_some_and(|looked| looked.age() < within)
    }

    /// The state as it is remembered, if that is enough for the page: what stands behind a head never changes. That it
    /// was removed or pruned by another process shows a little later.
    async fn known(&self, folder: &Folder, read: &ReadFrames) -> Option<Arc<State>> {
        if !self.was_looked_at(folder, KNOWN_FOR) {
            return None;
        }
        let state = self.slot(folder).lock().await.clone()?;
        let info = state.info.as_ref().filter(|info| info.header.key == read.session)?;
        let head = info.branch(&read.branch).ok()?.head;
        (read.section == Section::History && read.through <= head.seq).then_some(state)
    }

    async fn read_page(&self, read: &ReadFrames) -> Result<FramePage> {
        let folder = Folder::of(&read.session);
        for attempt in 1.. {
            let known = if attempt == 1 { self.known(&folder, read).await } else { None };
            let state = match known {
                Some(state) => state,
                None => self.current(&folder).await?,
            };
            state.session(&read.session, "read")?.branch(&read.branch)?;
            if let Outcome::Page(page) = self.page(&folder, &state, read, attempt >= READS).await? {
                return Ok(page);
            }
        }
        Ok(FramePage { slots: Vec::new(), more: false })
    }
}

/// Runs `work` on a task of its own, to its end also if the caller goes away.
async fn apart<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(closed()),
    })
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
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
        let all = Capabilities::new("objects").with_durable().with_multi_process().with_max_frame_bytes(LARGEST_FRAME);
        if self.0.bucket.is_local() { all } else { all.with_idle_poll(IDLE_POLL) }
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
            let info = state.session(session, "open")?;
            Ok::<_, Error>(self.0.now().await?.seen(info))
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

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.0.not_listed(namespace).await.map_err(|error| error.during("list"))
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

    fn retries(&self) -> Retries {
        self.0.bucket.retries()
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        Some(self)
    }
}
