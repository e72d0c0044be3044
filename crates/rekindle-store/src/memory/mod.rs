//! The memory store: everything in one map behind one lock. For tests, scripts and stateless
//! use; also the plainest reading of the contract.

mod queue;
mod values;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rekindle_core::codec::Frame;
use rekindle_core::queue::{Notice, Queue};
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Capabilities, Clock, Decided, Error, ErrorKind, Fork, FramePage, Lease,
    LeaseRequest, NewSession, PAGE_BYTES, ReadFrames, Removal, Removed, Result, Section, Seq, SessionInfo, SessionKey,
    SessionPage, SessionQuery, Slot, Store, Timestamp,
};

use crate::options::StoreOptions;

/// Keeps journals in memory. Clones share them; they are gone when the last clone is.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    sessions: Arc<Mutex<HashMap<SessionKey, Session>>>,
    queue: Arc<queue::Jobs>,
    values: Arc<values::All>,
}

#[derive(Debug)]
struct Session {
    info: SessionInfo,
    frames: HashMap<BranchId, BranchFrames>,
}

#[derive(Debug, Default)]
struct BranchFrames {
    history: Vec<Frame>,
    base: Vec<Frame>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(StoreOptions::new())
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(options: StoreOptions) -> Self {
        Self { clock: options.local_clock(), sessions: Arc::default(), queue: Arc::default(), values: Arc::default() }
    }

    /// The bytes of all frames, as other stores would write them.
    pub fn stored_bytes(&self) -> u64 {
        let sessions = self.lock();
        let frames = sessions.values().flat_map(|session| session.frames.values());
        frames.flat_map(|branch| branch.history.iter().chain(&branch.base)).map(|frame| frame.stored_len() as u64).sum()
    }

    // Nothing under the lock can fail half way, so a poisoned lock still guards a whole map.
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing(session: &SessionKey, operation: &'static str) -> Error {
    Error::not_found("there is no such session").during(operation).on(session)
}

impl Session {
    fn new(new: &NewSession, now: Timestamp) -> Self {
        let base = new.base.as_ref().map(|base| base.frames.clone()).unwrap_or_default();
        let frames = HashMap::from([
            (BranchId::main(), BranchFrames { history: Vec::new(), base }),
            (BranchId::inbox(), BranchFrames::default()),
        ]);
        Self { info: new.session_info(now), frames }
    }

    fn seen(&self, now: Timestamp) -> SessionInfo {
        SessionInfo { observed_at: now, ..self.info.clone() }
    }
}

impl BranchFrames {
    /// The index of the first frame that ends at `seq` or later.
    fn index_of(frames: &[Frame], seq: Seq) -> usize {
        frames.partition_point(|frame| frame.last < seq)
    }

    fn page(frames: &[Frame], read: &ReadFrames) -> FramePage {
        let (mut slots, mut bytes) = (Vec::new(), 0);
        let start = Self::index_of(frames, read.from);
        let end = frames.partition_point(|frame| frame.first <= read.through);
        let range = frames.get(start..end).unwrap_or_default();
        let ordered: Box<dyn Iterator<Item = &Frame>> =
            if read.newest_first { Box::new(range.iter().rev()) } else { Box::new(range.iter()) };
        for frame in ordered.filter(|frame| read.wants(frame.first, frame.last, frame.marks)) {
            if slots.len() == read.limit || bytes >= PAGE_BYTES {
                return FramePage { slots, more: true };
            }
            bytes += frame.stored_len();
            slots.push(Slot::Whole(frame.clone()));
        }
        FramePage { slots, more: false }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory")
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let now = self.clock.now();
        let mut sessions = self.lock();
        let key = &new.header.key;
        if sessions.contains_key(key) {
            let error = Error::new(ErrorKind::AlreadyExists, "the session exists already");
            return Err(error.during("create").on(key));
        }
        let session = Session::new(new, now);
        let info = session.seen(now);
        sessions.insert(key.clone(), session);
        Ok(info)
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let now = self.clock.now();
        self.lock().get(session).map(|found| found.seen(now)).ok_or_else(|| missing(session, "open"))
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        let now = self.clock.now();
        let mut sessions = self.lock();
        let session = sessions.get_mut(&append.session).ok_or_else(|| missing(&append.session, "append"))?;
        let other = append.other(&session.info.branches).cloned();
        let branch = session.info.branches.iter_mut().find(|info| info.branch == append.branch);
        let (Some(branch), Some(frames)) = (branch, session.frames.get_mut(&append.branch)) else {
            return Err(append.error(Error::not_found(format!("there is no branch `{}`", append.branch))));
        };
        let stored = |seq| {
            let frame = frames.history.get(BranchFrames::index_of(&frames.history, seq));
            Ok(frame.filter(|frame| frame.last == seq).map(|frame| frame.hash))
        };
        if let Decided::Repeated(appended) = append.decide(branch, other.as_ref(), now, stored)? {
            return Ok(appended);
        }
        frames.history.extend(append.frames.iter().cloned());
        branch.head = append.head();
        branch.last_wait = append.last_wait().unwrap_or(branch.last_wait);
        branch.updated_at = now;
        if let Some(status) = append.status {
            branch.status = status;
        }
        if let (Some(lease), Some(ttl)) = (&mut branch.lease, append.renew.filter(|_| append.fence.is_some())) {
            lease.expires_at = now.plus(ttl);
        }
        if let Some(change) = &append.describe {
            session.info.header.apply(change);
        }
        if let Some(sealed) = &append.sealed {
            session.info.header.sealed = Some(sealed.clone());
        }
        if append.branch.is_inbox() {
            self.queue.wake(&append.session, now);
            self.queue.tell(Notice::Inbox(append.session.clone()));
        }
        Ok(Appended { head: append.head() })
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        let sessions = self.lock();
        let session = sessions.get(&read.session).ok_or_else(|| missing(&read.session, "read"))?;
        session.info.branch(&read.branch).map_err(|error| error.during("read"))?;
        let frames = session.frames.get(&read.branch);
        Ok(match (frames, read.section) {
            (None, _) => FramePage { slots: Vec::new(), more: false },
            (Some(frames), Section::History) => BranchFrames::page(&frames.history, read),
            (Some(frames), Section::Base) => BranchFrames::page(&frames.base, read),
        })
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        let now = self.clock.now();
        Ok(SessionPage::select(query, self.lock().values().map(|session| session.seen(now))))
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        let now = self.clock.now();
        let mut sessions = self.lock();
        let session = sessions.get_mut(&fork.session).ok_or_else(|| missing(&fork.session, "fork"))?;
        if let Some(existing) = fork.decide(&session.info)? {
            return Ok(existing);
        }
        let info = fork.branch_info(now);
        session.info.branches.push(info.clone());
        let base = fork.base.as_ref().map(|base| base.frames.clone()).unwrap_or_default();
        session.frames.insert(fork.branch.clone(), BranchFrames { history: Vec::new(), base });
        Ok(info)
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        let now = self.clock.now();
        let mut sessions = self.lock();
        let session = sessions.get_mut(&request.session).ok_or_else(|| missing(&request.session, "lease"))?;
        request.decide(&mut session.info, now)
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        let now = self.clock.now();
        let mut sessions = self.lock();
        let key = removal.session();
        let Some(session) = sessions.get_mut(key) else {
            return match removal {
                Removal::History { .. } => Err(missing(key, "remove")),
                _ => Ok(Removed::default()),
            };
        };
        session.info.observed_at = now;
        if !removal.decide(&session.info, now)? {
            return Ok(Removed::default());
        }
        let count = |frames: &BranchFrames| {
            let all = frames.history.iter().chain(&frames.base);
            all.fold((0u64, 0u64), |(count, bytes), frame| (count + 1, bytes + frame.stored_len() as u64))
        };
        let total = |session: &Session| {
            session.frames.values().map(count).fold((0, 0), |(frames, bytes), (f, b)| (frames + f, bytes + b))
        };
        let before = total(session);
        let after = match removal {
            Removal::Session { .. } | Removal::SessionAt { .. } => {
                sessions.remove(key);
                self.queue.remove(key);
                (0, 0)
            }
            Removal::Branch { branch, .. } => {
                session.info.branches.retain(|info| info.branch != *branch);
                session.frames.remove(branch);
                total(session)
            }
            Removal::History { branch, base, .. } => {
                let frames = session.frames.entry(branch.clone()).or_default();
                frames.history.retain(|frame| frame.last > base.head.seq);
                frames.base.clone_from(&base.frames);
                if let Some(info) = session.info.branches.iter_mut().find(|info| info.branch == *branch) {
                    info.base = Some(base.head);
                }
                total(session)
            }
        };
        Ok(Removed { frames: before.0.saturating_sub(after.0), bytes: before.1.saturating_sub(after.1) })
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn values(&self) -> Option<&dyn Values> {
        Some(self)
    }
}
