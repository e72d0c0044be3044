//! A decorator that tells an observer about every call: where metrics come from.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle_core::high_water::HighWater;
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Defect, Fork, FramePage, Lease, LeaseRequest, Namespace, NewSession,
    ReadFrames, Removal, Removed, Result, Retries, SessionInfo, SessionKey, SessionPage, SessionQuery, Slot, Store,
};

/// One finished call to a store. Without ids: they belong into traces, not into metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The method, e.g. `append`.
    pub operation: &'static str,
    /// How long it took.
    pub duration: Duration,
    /// The code of its error, if it failed.
    pub error: Option<&'static str>,
    /// Frames written, read or removed.
    pub frames: u64,
    /// Bytes written, read or removed.
    pub bytes: u64,
}

/// Is told about every call. Called on the caller's task: be quick.
pub trait StoreObserver: fmt::Debug + Send + Sync + 'static {
    /// A call has ended.
    fn observed(&self, observation: Observation);
}

/// Tells an observer about every call to the store it wraps.
#[derive(Clone, Debug)]
pub struct MeteredStore<S> {
    store: S,
    observer: Arc<dyn StoreObserver>,
}

impl<S: Store> MeteredStore<S> {
    /// Wraps `store`.
    pub fn new(store: S, observer: Arc<dyn StoreObserver>) -> Self {
        Self { store, observer }
    }

    async fn observe<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>>,
        size: impl FnOnce(&T) -> (u64, u64),
    ) -> Result<T> {
        let start = Instant::now();
        let result = call.await;
        let (frames, bytes) = result.as_ref().map(size).unwrap_or_default();
        let error = result.as_ref().err().map(rekindle_core::Error::code);
        self.observer.observed(Observation { operation, duration: start.elapsed(), error, frames, bytes });
        result
    }
}

fn nothing<T>(_: &T) -> (u64, u64) {
    (0, 0)
}

#[async_trait]
impl<S: Store> Store for MeteredStore<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.observe("create", self.store.create(new), nothing).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.observe("open", self.store.open(session), nothing).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        let size = |_: &Appended| {
            let bytes = append.frames.iter().map(|frame| frame.stored_len() as u64).sum();
            (append.frames.len() as u64, bytes)
        };
        self.observe("append", self.store.append(append), size).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        let size = |page: &FramePage| {
            let bytes = page.slots.iter().map(|slot| match slot {
                Slot::Whole(frame) => frame.stored_len() as u64,
                Slot::Damaged(_) => 0,
            });
            (page.slots.len() as u64, bytes.sum())
        };
        self.observe("read", self.store.read(read), size).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.observe("list", self.store.list(query), nothing).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.observe("fork", self.store.fork(fork), nothing).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.observe("lease", self.store.lease(request), nothing).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.observe("remove", self.store.remove(removal), |removed| (removed.frames, removed.bytes)).await
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.store.check().await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.store.unlisted(namespace).await
    }

    fn retries(&self) -> Retries {
        self.store.retries()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.store.queue()
    }

    fn values(&self) -> Option<&dyn Values> {
        self.store.values()
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        self.store.orphans()
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        self.store.high_water()
    }
}
