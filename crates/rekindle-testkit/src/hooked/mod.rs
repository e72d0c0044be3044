//! A decorator for tests: passes every call of a store, its queue and its values on, with a hook before and
//! after each.

mod calls;
mod stopping;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::high_water::HighWater;
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Defect, Error, ErrorKind, Fork, FramePage, Lease, LeaseRequest,
    NewSession, ReadFrames, Removal, Removed, Result, Retries, SessionInfo, SessionKey, SessionPage, SessionQuery,
    Store,
};

pub use calls::Call;
pub use stopping::{Stop, Stopping};

/// Code that runs around the calls of a [`Hooked`] store. Each method may be left out.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Runs before a call. An error is returned in place of making it.
    async fn before(&self, call: Call<'_>) -> Result<()> {
        let _ = call;
        Ok(())
    }

    /// Runs after a call. An error takes the place of its answer; a call that failed keeps its own.
    async fn after(&self, call: Call<'_>) -> Result<()> {
        let _ = call;
        Ok(())
    }

    /// Changes a page of frames on its way to the caller.
    fn page(&self, read: &ReadFrames, page: FramePage) -> FramePage {
        let _ = read;
        page
    }
}

/// The hook that does nothing.
impl Hook for () {}

#[async_trait]
impl<H: Hook> Hook for Arc<H> {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        (**self).before(call).await
    }

    async fn after(&self, call: Call<'_>) -> Result<()> {
        (**self).after(call).await
    }

    fn page(&self, read: &ReadFrames, page: FramePage) -> FramePage {
        (**self).page(read, page)
    }
}

/// A store whose calls go through a hook, those of its queue and its values among them. High-water marks are
/// passed on as they are.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use rekindle_core::{Result, SessionQuery, Store};
/// use rekindle_store::MemoryStore;
/// use rekindle_testkit::{Call, Hook, Hooked};
///
/// /// Counts lists.
/// #[derive(Default)]
/// struct Lists(AtomicU64);
///
/// #[async_trait::async_trait]
/// impl Hook for Lists {
///     async fn before(&self, call: Call<'_>) -> Result<()> {
///         if matches!(call, Call::List(_)) {
///             self.0.fetch_add(1, Ordering::SeqCst);
///         }
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let store = Hooked::new(Arc::new(MemoryStore::default()), Lists::default());
/// store.list(&SessionQuery::new("default".parse()?)).await?;
/// assert_eq!(store.hook().0.load(Ordering::SeqCst), 1);
/// # Ok(())
/// # }
/// ```
pub struct Hooked<H> {
    store: Arc<dyn Store>,
    values: Option<Arc<dyn Values>>,
    hook: H,
}

impl<H: Hook> Hooked<H> {
    /// Puts `hook` around the calls of `store`.
    pub fn new(store: Arc<dyn Store>, hook: H) -> Self {
        Self { store, values: None, hook }
    }

    /// Keeps values elsewhere than in the store.
    #[must_use]
    pub fn with_values(mut self, values: Arc<dyn Values>) -> Self {
        self.values = Some(values);
        self
    }

    /// The hook.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    async fn call<T>(&self, call: Call<'_>, answer: impl Future<Output = Result<T>>) -> Result<T> {
        self.hook.before(call).await?;
        let answer = answer.await;
        let after = self.hook.after(call).await;
        let answer = answer?;
        after.map(|()| answer)
    }

    fn inner_values(&self) -> Option<&dyn Values> {
        self.values.as_deref().or_else(|| self.store.values())
    }
}

fn none(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the store keeps no {what}"))
}

impl<H> fmt::Debug for Hooked<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("store", &self.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl<H: Hook> Store for Hooked<H> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.call(Call::Create(new), self.store.create(new)).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.call(Call::Open(session), self.store.open(session)).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.call(Call::Append(append), self.store.append(append)).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        let page = self.call(Call::Read(read), self.store.read(read)).await?;
        Ok(self.hook.page(read, page))
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.call(Call::List(query), self.store.list(query)).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.call(Call::Fork(fork), self.store.fork(fork)).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.call(Call::Lease(request), self.store.lease(request)).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.call(Call::Remove(removal), self.store.remove(removal)).await
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.call(Call::Check, self.store.check()).await
    }

    fn retries(&self) -> Retries {
        self.store.retries()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.store.queue().map(|_| self as &dyn Queue)
    }

    fn values(&self) -> Option<&dyn Values> {
        self.inner_values().map(|_| self as &dyn Values)
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        self.store.orphans()
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        self.store.high_water()
    }
}
