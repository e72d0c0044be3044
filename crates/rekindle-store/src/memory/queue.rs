//! The queue of the memory store: the plainest reading of its contract.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Counts, Enqueued, Job, JobPage, JobQuery, NewJob, Notice, Notices, Queue,
    QueueInfo, SettleJob, Settled, WorkerInfo,
};
use rekindle_core::{Namespace, OwnerId, Result, SessionKey, Timestamp};
use tokio::sync::broadcast;

use super::{MemoryStore, missing};

/// Notices that may wait for a slow listener before it is told to look at everything.
const WAITING: usize = 1_024;

/// Jobs and workers.
#[derive(Debug)]
pub(super) struct Jobs {
    inner: Mutex<Inner>,
    notices: broadcast::Sender<Notice>,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: BTreeMap<SessionKey, Job>,
    workers: BTreeMap<(Namespace, OwnerId), WorkerInfo>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { inner: Mutex::default(), notices: broadcast::channel(WAITING).0 }
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever listens.
    pub(super) fn tell(&self, notice: Notice) {
        // That nobody listens is no failure.
        let _ = self.notices.send(notice);
    }

    /// Something arrived for a session.
    pub(super) fn wake(&self, session: &SessionKey, now: Timestamp) {
        if let Some(job) = self.lock().jobs.get_mut(session) {
            job.wake(now);
            self.tell(Notice::Ready);
        }
    }

    /// A session is gone, or its job should be.
    pub(super) fn remove(&self, session: &SessionKey) -> bool {
        self.lock().jobs.remove(session).is_some()
    }
}

impl Inner {
    fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Vec<Job> {
        let mut counts = Counts::default();
        let claimed = self.jobs.values().filter(|job| job.session.namespace == request.namespace);
        claimed.filter(|job| job.is_claimed(now)).for_each(|job| counts.add(job));
        let mut ready: Vec<&mut Job> =
            self.jobs.values_mut().filter(|job| request.wants(job) && is_ready(job, now)).collect();
        ready.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.ready_at, job.session.clone()));
        let mut taken = Vec::new();
        for job in ready {
            if taken.len() == request.most {
                break;
            }
            if counts.allow(job, request) {
                counts.add(job);
                job.take(request, now);
                taken.push(job.clone());
            }
        }
        taken
    }
}

fn is_ready(job: &Job, now: Timestamp) -> bool {
    job.ready_at.is_some_and(|at| at <= now)
}

#[async_trait]
impl Queue for MemoryStore {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        new.check()?;
        let now = self.clock.now();
        // Held, so that the session cannot go meanwhile.
        let sessions = self.lock();
        if !sessions.contains_key(&new.session) {
            return Err(missing(&new.session, "enqueue"));
        }
        let mut inner = self.queue.lock();
        let existing = inner.jobs.remove(&new.session);
        let enqueued = Job::enqueue(existing, new, now);
        inner.jobs.insert(new.session.clone(), enqueued.job.clone());
        self.queue.tell(Notice::Ready);
        Ok(enqueued)
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        Ok(self.queue.remove(session))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        let now = self.clock.now();
        let mut inner = self.queue.lock();
        let jobs = inner.claim(request, now);
        let coming = inner.jobs.values().filter(|job| request.wants(job)).filter_map(|job| job.ready_at);
        let next = coming.filter(|at| *at > now).min();
        Ok(Claimed { jobs, next, now })
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        let now = self.clock.now();
        let mut inner = self.queue.lock();
        let mut lost = Vec::new();
        for held in &beat.held {
            let job = inner.jobs.get_mut(&held.session).filter(|job| {
                let claim = job.claim.as_ref();
                claim.is_some_and(|claim| claim.worker == beat.worker.worker && claim.number == held.number)
            });
            match job {
                Some(job) => job.ready_at = Some(now.plus(beat.hold)),
                None => lost.push(held.session.clone()),
            }
        }
        let key = (beat.worker.namespace.clone(), beat.worker.worker.clone());
        if beat.ends {
            inner.workers.remove(&key);
        } else {
            let worker = WorkerInfo { seen_at: now, until: now.plus(beat.hold), ..beat.worker.clone() };
            inner.workers.insert(key, worker);
            inner.workers.retain(|_, worker| worker.until > now);
        }
        Ok(Beaten { lost, now })
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        let now = self.clock.now();
        let mut inner = self.queue.lock();
        let Some(job) = inner.jobs.remove(&settle.session) else { return Ok(Settled::Lost) };
        let (job, settled) = job.settle(settle, now);
        if let Some(job) = job {
            inner.jobs.insert(settle.session.clone(), job);
        }
        self.queue.tell(Notice::Ready);
        Ok(settled)
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        query.check()?;
        let now = self.clock.now();
        let inner = self.queue.lock();
        let mut jobs: Vec<Job> =
            inner.jobs.values().filter(|job| query.wants(job, now)).take(query.limit + 1).cloned().collect();
        let more = jobs.len() > query.limit;
        jobs.truncate(query.limit);
        let next = jobs.last().filter(|_| more).map(|job| job.session.id.clone());
        Ok(JobPage { jobs, next, now })
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        let now = self.clock.now();
        let mut queues: BTreeMap<_, QueueInfo> = BTreeMap::new();
        for job in self.queue.lock().jobs.values().filter(|job| job.session.namespace == *namespace) {
            queues.entry(job.queue.clone()).or_insert_with(|| QueueInfo::new(job.queue.clone())).add(job, now);
        }
        Ok(queues.into_values().collect())
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        let now = self.clock.now();
        let inner = self.queue.lock();
        let alive = inner.workers.values().filter(|worker| worker.namespace == *namespace && worker.until > now);
        Ok(alive.cloned().collect())
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        Ok(Box::new(MemoryNotices(self.queue.notices.subscribe())))
    }
}

struct MemoryNotices(broadcast::Receiver<Notice>);

#[async_trait]
impl Notices for MemoryNotices {
    async fn next(&mut self) -> Notice {
        match self.0.recv().await {
            Ok(notice) => notice,
            Err(broadcast::error::RecvError::Lagged(_)) => Notice::Anything,
            // The store is gone; nothing will happen any more.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
