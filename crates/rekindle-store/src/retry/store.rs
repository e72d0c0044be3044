//! A decorator that makes calls again when the server of a store does not answer.

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::high_water::HighWater;
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Enqueued, JobPage, JobQuery, NewJob, Notices, Queue, QueueInfo, SettleJob,
    Settled, WorkerInfo,
};
use rekindle_core::values::{Change, Changed, ValueKey, ValuePage, ValueQuery, Values};
use rekindle_core::{
    Append, Appended, BranchInfo, Capabilities, Defect, ErrorKind, Fork, FramePage, Lease, LeaseRequest, Namespace,
    NewSession, ReadFrames, Removal, Removed, Result, Retries, SessionInfo, SessionKey, SessionPage, SessionQuery,
    Store,
};

use super::{RetryPolicy, Retrying};

/// Makes calls again while the server of the store it wraps is away.
///
/// Calls are repeated that recognise what an attempt whose reply was lost has done. These pass through as they are:
///
/// * `remove` and `dequeue` go by name. Between two attempts somebody may have created a session, a branch or a job of
///   that name, which the second attempt would take away.
/// * `claim` would take other jobs, and leave the first ones held for nothing. Workers repeat it by themselves.
/// * `listen` is begun again by whoever listens.
#[derive(Debug)]
pub struct RetryStore<S> {
    store: S,
    retrying: Retrying,
}

impl<S: Store> RetryStore<S> {
    /// Wraps `store` with a policy.
    pub(crate) fn new(store: S, policy: RetryPolicy) -> Self {
        Self { store, retrying: Retrying::new(policy) }
    }
}

#[async_trait]
impl<S: Store> Store for RetryStore<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let mut attempts = 0;
        self.retrying
            .run(|| {
                attempts += 1;
                let first = attempts == 1;
                async move {
                    let refused = match self.store.create(new).await {
                        Err(error) if !first && *error.kind() == ErrorKind::AlreadyExists => error,
                        other => return other,
                    };
                    // Created by an attempt whose reply was lost, or by somebody else.
                    let found = self.store.open(&new.header.key).await?;
                    let (ours, theirs) = (&new.header, &found.header);
                    match (&ours.incarnation, ours.genesis) == (&theirs.incarnation, theirs.genesis) {
                        true => Ok(found),
                        false => Err(refused),
                    }
                }
            })
            .await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        self.retrying.run(|| self.store.open(session)).await
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.retrying.run(|| self.store.append(append)).await
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.retrying.run(|| self.store.read(read)).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.retrying.run(|| self.store.list(query)).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.retrying.run(|| self.store.fork(fork)).await
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        self.retrying.run(|| self.store.lease(request)).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.store.remove(removal).await
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.retrying.run(|| self.store.check()).await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.retrying.run(|| self.store.unlisted(namespace)).await
    }

    fn retries(&self) -> Retries {
        self.retrying.seen()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.store.queue().is_some().then_some(self)
    }

    fn values(&self) -> Option<&dyn Values> {
        self.store.values().is_some().then_some(self)
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        self.store.high_water()
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        self.store.orphans()
    }
}

impl<S: Store> RetryStore<S> {
    fn inner_queue(&self) -> &dyn Queue {
        self.store.queue().expect("handed out only if the store has one")
    }

    fn inner_values(&self) -> &dyn Values {
        self.store.values().expect("handed out only if the store has some")
    }
}

#[async_trait]
impl<S: Store> Queue for RetryStore<S> {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        self.retrying.run(|| self.inner_queue().enqueue(new)).await
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        self.inner_queue().dequeue(session).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        self.inner_queue().claim(request).await
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        self.retrying.run(|| self.inner_queue().beat(beat)).await
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        self.retrying.run(|| self.inner_queue().settle(settle)).await
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        self.retrying.run(|| self.inner_queue().jobs(query)).await
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        self.retrying.run(|| self.inner_queue().queues(namespace)).await
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        self.retrying.run(|| self.inner_queue().workers(namespace)).await
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        self.inner_queue().listen().await
    }
}

#[async_trait]
impl<S: Store> Values for RetryStore<S> {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        self.retrying.run(|| self.inner_values().get(key)).await
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        self.retrying.run(|| self.inner_values().get_many(keys)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.retrying.run(|| self.inner_values().change(change)).await
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        self.retrying.run(|| self.inner_values().list(query)).await
    }
}
