//! The calls of a hooked store, and those of its values and its queue.

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Enqueued, JobPage, JobQuery, NewJob, Notices, Queue, QueueInfo, SettleJob,
    Settled, WorkerInfo,
};
use rekindle_core::values::{Change, Changed, ValueKey, ValuePage, ValueQuery, Values};
use rekindle_core::{
    Append, Fork, LeaseRequest, Namespace, NewSession, ReadFrames, Removal, Result, SessionKey, SessionQuery,
};

use super::{Hook, Hooked, none};

/// A call of a store, its values or its queue, with its request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Call<'a> {
    Create(&'a NewSession),
    Open(&'a SessionKey),
    Append(&'a Append),
    Read(&'a ReadFrames),
    List(&'a SessionQuery),
    Fork(&'a Fork),
    Lease(&'a LeaseRequest),
    Remove(&'a Removal),
    Check,
    GetValue(&'a ValueKey),
    GetValues(&'a [ValueKey]),
    ChangeValue(&'a Change),
    ListValues(&'a ValueQuery),
    Enqueue(&'a NewJob),
    Dequeue(&'a SessionKey),
    Claim(&'a ClaimRequest),
    Beat(&'a Beat),
    Settle(&'a SettleJob),
    Jobs(&'a JobQuery),
    Queues(&'a Namespace),
    Workers(&'a Namespace),
    Listen,
}

impl Call<'_> {
    /// Returns whether the call may change what is stored.
    pub fn is_write(&self) -> bool {
        use Call::*;
        match self {
            Create(_) | Append(_) | Fork(_) | Lease(_) | Remove(_) | ChangeValue(_) | Enqueue(_) | Dequeue(_)
            | Claim(_) | Beat(_) | Settle(_) => true,
            Open(_) | Read(_) | List(_) | Check | GetValue(_) | GetValues(_) | ListValues(_) | Jobs(_) | Queues(_)
            | Workers(_) | Listen => false,
        }
    }
}

#[async_trait]
impl<H: Hook> Values for Hooked<H> {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let values = self.inner_values().ok_or_else(|| none("values"))?;
        self.call(Call::GetValue(key), values.get(key)).await
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        let values = self.inner_values().ok_or_else(|| none("values"))?;
        self.call(Call::GetValues(keys), values.get_many(keys)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let values = self.inner_values().ok_or_else(|| none("values"))?;
        self.call(Call::ChangeValue(change), values.change(change)).await
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        let values = self.inner_values().ok_or_else(|| none("values"))?;
        self.call(Call::ListValues(query), values.list(query)).await
    }
}

impl<H: Hook> Hooked<H> {
    fn inner_queue(&self) -> Result<&dyn Queue> {
        self.store.queue().ok_or_else(|| none("jobs"))
    }
}

#[async_trait]
impl<H: Hook> Queue for Hooked<H> {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        self.call(Call::Enqueue(new), self.inner_queue()?.enqueue(new)).await
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        self.call(Call::Dequeue(session), self.inner_queue()?.dequeue(session)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        self.call(Call::Claim(request), self.inner_queue()?.claim(request)).await
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        self.call(Call::Beat(beat), self.inner_queue()?.beat(beat)).await
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        self.call(Call::Settle(settle), self.inner_queue()?.settle(settle)).await
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        self.call(Call::Jobs(query), self.inner_queue()?.jobs(query)).await
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        self.call(Call::Queues(namespace), self.inner_queue()?.queues(namespace)).await
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        self.call(Call::Workers(namespace), self.inner_queue()?.workers(namespace)).await
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        self.call(Call::Listen, self.inner_queue()?.listen()).await
    }
}
