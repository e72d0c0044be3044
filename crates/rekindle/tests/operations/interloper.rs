//! A store in which somebody else is quicker: between what an operation read and what it writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rekindle::codec::Codec;
use rekindle::record::RegisterSet;
use rekindle::{
    Append, Appended, BranchInfo, Capabilities, Clock, Fork, FramePage, IdSource, Journal, Json, Lease, LeaseRequest,
    NewSession, OwnerId, ReadFrames, RegisterKey, Removal, Removed, Result, SessionInfo, SessionKey, SessionPage,
    SessionQuery, Store, StoreExt as _, Target,
};
use rekindle_store::MemoryStore;

#[derive(Debug)]
pub struct Interloper {
    store: Arc<MemoryStore>,
    journal: Journal,
    next: AtomicU8,
}

const LEASE: u8 = 1;
const APPEND: u8 = 2;

impl Interloper {
    pub fn new(store: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(store);
        let journal = Journal::new(store.clone(), Codec::new(), clock, IdSource::seeded([9; 32]));
        Self { store, journal, next: AtomicU8::new(0) }
    }

    pub fn take_lease_before_next_append(&self) {
        self.next.store(LEASE, Ordering::SeqCst);
    }

    pub fn append_before_next_append(&self) {
        self.next.store(APPEND, Ordering::SeqCst);
    }

    async fn step_in(&self, append: &Append) -> Result<()> {
        match self.next.swap(0, Ordering::SeqCst) {
            LEASE => {
                let owner = OwnerId::new("interloper")?;
                self.store.acquire(&append.session, &append.branch, &owner, Duration::from_secs(9)).await?;
            }
            APPEND => {
                let head = self.store.open(&append.session).await?.branch(&append.branch)?.head;
                let target = Target::new(append.session.clone(), append.branch.clone(), head);
                let set = RegisterSet::new(RegisterKey::new("interloper")?, Json::null());
                self.journal.append(&target, &[set.into()]).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Interloper {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.store.create(new).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.store.open(session).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        if !append.branch.is_inbox() {
            self.step_in(append).await?;
        }
        self.store.append(append).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.store.read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.store.list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.store.fork(fork).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.store.lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.store.remove(removal).await
    }
}
