//! What is asked of a queue, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::{Job, JobState};
use crate::error::{Error, Result};
use crate::id::{Namespace, OwnerId, QueueName, SessionId, SessionKey};
use crate::session::MAX_PAGE;
use crate::time::Timestamp;

/// The most jobs one call may claim.
pub const MAX_CLAIMS: usize = 256;

/// What enqueueing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The job.
    pub job: Job,
    /// Whether the session had one before.
    pub repeated: bool,
}

/// Asks for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: OwnerId,
    /// In which namespace.
    pub namespace: Namespace,
    /// From these queues; none means any.
    pub queues: Vec<QueueName>,
    /// Of these agents only; nothing means any, jobs without one included.
    pub agents: Option<Vec<String>>,
    /// At most so many claimed jobs of an agent at once, over all workers.
    pub agent_limits: BTreeMap<String, u32>,
    /// How many at most, up to [`MAX_CLAIMS`].
    pub most: usize,
    /// For how long, unless renewed.
    pub hold: Duration,
}

impl ClaimRequest {
    /// For any job of a namespace.
    pub fn new(worker: OwnerId, namespace: Namespace, most: usize, hold: Duration) -> Self {
        Self { worker, namespace, queues: Vec::new(), agents: None, agent_limits: BTreeMap::new(), most, hold }
    }

    /// An error if it asks for more than allowed.
    pub fn check(&self) -> Result<()> {
        match self.most > MAX_CLAIMS {
            true => Err(Error::limit("claims at once", self.most as u64, MAX_CLAIMS as u64).during("claim")),
            false => Ok(()),
        }
    }

    /// Whether the worker would take such a job; time and limits do not count.
    pub fn wants(&self, job: &Job) -> bool {
        job.session.namespace == self.namespace
            && (self.queues.is_empty() || self.queues.contains(&job.queue))
            && self.agents.as_ref().is_none_or(|agents| job.agent.as_ref().is_some_and(|name| agents.contains(name)))
    }
}

/// Jobs a worker got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The jobs, in the order they should begin.
    pub jobs: Vec<Job>,
    /// When the next job it wants becomes ready, if any will by itself and none is ready now. What
    /// is ready but held back by a limit does not count.
    pub next: Option<Timestamp>,
    /// The store's time of this answer.
    pub now: Timestamp,
}

/// A claim a worker believes to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The session.
    pub session: SessionKey,
    /// The number of the claim.
    pub number: u64,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The worker as others see it; `seen_at` and `until` are the store's to say.
    pub worker: WorkerInfo,
    /// The claims to renew.
    pub held: Vec<Held>,
    /// For how long from now.
    pub hold: Duration,
    /// The worker stops: it leaves the list.
    pub ends: bool,
}

/// What a sign of life found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beaten {
    /// Claims that are somebody else's by now, or nobody's.
    pub lost: Vec<SessionKey>,
    /// The store's time of this answer.
    pub now: Timestamp,
}

/// A worker as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its name, unique to the process.
    pub worker: OwnerId,
    /// Whose jobs it takes.
    pub namespace: Namespace,
    /// From these queues; none means any.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// Of these agents; nothing means any.
    #[serde(default)]
    pub agents: Option<Vec<String>>,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many it runs now.
    pub running: u32,
    /// Whether it takes no more jobs because it is about to stop.
    #[serde(default)]
    pub draining: bool,
    /// The version of its program.
    #[serde(default)]
    pub version: String,
    /// When it started, by the store's clock as far as it knew.
    pub started_at: Timestamp,
    /// When it was last heard of.
    #[serde(default)]
    pub seen_at: Timestamp,
    /// When it counts as gone, unless heard of again.
    #[serde(default)]
    pub until: Timestamp,
}

/// What became of a claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// There is nothing more to do; unless it was woken meanwhile, the job goes.
    Done,
    /// It waits, until a time or until something arrives.
    Later {
        /// The time.
        ready_at: Option<Timestamp>,
    },
    /// It was not finished here.
    Again {
        /// Not before so long, unless something arrives.
        after: Duration,
        /// Whether this was an attempt that failed.
        counts: bool,
        /// Why, for people.
        note: String,
    },
    /// It got on: attempts before do not count any more. The claim stays.
    Progress,
}

/// Settles a claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleJob {
    /// The session.
    pub session: SessionKey,
    /// The worker that claimed it.
    pub worker: OwnerId,
    /// The number of the claim.
    pub number: u64,
    /// How often the job had been woken when its inbox was last looked into.
    pub wakes: u64,
    /// What became of it.
    pub settlement: Settlement,
}

/// What settling did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The job is gone.
    Done,
    /// The job as it is now.
    Kept(Job),
    /// The claim was not this worker's any more; nothing was changed.
    Lost,
}

/// Which jobs to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobQuery {
    /// In this namespace.
    pub namespace: Namespace,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<JobState>,
    /// Of this session.
    pub session: Option<SessionId>,
    /// After this session.
    pub after: Option<SessionId>,
    /// How many at most, up to [`MAX_PAGE`].
    pub limit: usize,
}

impl JobQuery {
    /// The first hundred jobs of a namespace.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, queue: None, state: None, session: None, after: None, limit: 100 }
    }

    /// An error if the page is larger than allowed.
    pub fn check(&self) -> Result<()> {
        match self.limit > MAX_PAGE {
            true => Err(Error::limit("page size", self.limit as u64, MAX_PAGE as u64).during("list jobs")),
            false => Ok(()),
        }
    }

    /// Whether a job is among those asked for.
    pub fn wants(&self, job: &Job, now: Timestamp) -> bool {
        job.session.namespace == self.namespace
            && self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| state == job.state(now))
            && self.session.as_ref().is_none_or(|session| *session == job.session.id)
            && self.after.as_ref().is_none_or(|after| job.session.id > *after)
    }
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins, if there is one.
    pub next: Option<SessionId>,
    /// The store's time of this answer.
    pub now: Timestamp,
}

/// What is in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// Its name.
    pub queue: QueueName,
    /// Jobs that any worker may take.
    pub ready: u64,
    /// Jobs that become ready at a time.
    pub scheduled: u64,
    /// Jobs that wait for something to arrive.
    pub parked: u64,
    /// Jobs that a worker has.
    pub claimed: u64,
    /// Since when the oldest ready job is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ready: Option<Timestamp>,
}

impl QueueInfo {
    /// An empty queue.
    pub fn new(queue: QueueName) -> Self {
        Self { queue, ready: 0, scheduled: 0, parked: 0, claimed: 0, oldest_ready: None }
    }

    /// Counts a job.
    pub fn add(&mut self, job: &Job, now: Timestamp) {
        let state = job.state(now);
        let count = match state {
            JobState::Ready => &mut self.ready,
            JobState::Scheduled => &mut self.scheduled,
            JobState::Parked => &mut self.parked,
            JobState::Claimed => &mut self.claimed,
        };
        *count += 1;
        if state == JobState::Ready {
            self.oldest_ready = self.oldest_ready.into_iter().chain(job.ready_at).min();
        }
    }
}

/// Something happened in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A job became ready.
    Ready,
    /// Something is in the inbox of a session.
    Inbox(SessionKey),
    /// Anything may have happened: look at everything.
    Anything,
}
