//! A decorator that fails on purpose: before a call, so that nothing happened, or after it, so
//! that it happened and the caller does not know. For tests of everything above a store.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rekindle_core::high_water::HighWater;
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Defect, Error, ErrorKind, Fork, FramePage, Lease, LeaseRequest,
    Namespace, NewSession, ReadFrames, Removal, Removed, Result, Retries, SessionInfo, SessionKey, SessionPage,
    SessionQuery, Store,
};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not carried out: the store is full.
    Full,
    /// The call is not carried out: the store cannot be reached.
    Unreachable,
    /// The call is carried out, but the reply is lost.
    ReplyLost,
}

/// Decides which calls go wrong. Shared between the test and the store it breaks.
#[derive(Debug, Default)]
pub struct FaultPlan {
    calls: AtomicU64,
    at: Mutex<Option<(u64, Fault, bool)>>,
}

impl FaultPlan {
    /// The mutating call with that number, counted from 0 since the last reset, goes wrong once.
    pub fn fail_once_at(&self, call: u64, fault: Fault) {
        self.set(Some((call, fault, false)));
    }

    /// All mutating calls from that number on go wrong: the process is as good as dead.
    pub fn fail_from(&self, call: u64, fault: Fault) {
        self.set(Some((call, fault, true)));
    }

    /// Nothing goes wrong any more, and counting starts again.
    pub fn heal(&self) {
        self.set(None);
    }

    /// How many mutating calls were made since the last reset.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn set(&self, plan: Option<(u64, Fault, bool)>) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        self.calls.store(0, Ordering::SeqCst);
    }

    fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let plan = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        plan.filter(|(at, _, onward)| call == *at || (*onward && call > *at)).map(|(_, fault, _)| fault)
    }
}

/// Breaks calls to the store it wraps according to a plan.
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    store: S,
    plan: Arc<FaultPlan>,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps `store`.
    pub fn new(store: S, plan: Arc<FaultPlan>) -> Self {
        Self { store, plan }
    }

    async fn call<T>(&self, operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let error = |kind, message: &'static str| Err(Error::new(kind, message).during(operation));
        match self.plan.next() {
            None => call.await,
            Some(Fault::Full) => error(ErrorKind::PersistFailed, "injected: no space left"),
            Some(Fault::Unreachable) => error(ErrorKind::StoreUnavailable, "injected: cannot be reached"),
            Some(Fault::ReplyLost) => {
                call.await?;
                error(ErrorKind::StoreUnavailable, "injected: the reply was lost")
            }
        }
    }
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.call("create", self.store.create(new)).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.store.open(session).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.call("append", self.store.append(append)).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.store.read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.store.list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.call("fork", self.store.fork(fork)).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.call("lease", self.store.lease(request)).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.call("remove", self.store.remove(removal)).await
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
