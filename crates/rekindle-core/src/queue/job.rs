//! Jobs, and the rules every backend shares.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::{ClaimRequest, Enqueued, SettleJob, Settled, Settlement};
use crate::error::{Error, Result};
use crate::id::{MAX_ID_BYTES, OwnerId, QueueName, SessionKey};
use crate::time::Timestamp;

/// How many jobs with the same key may be claimed at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimit {
    /// The key, e.g. a customer.
    pub key: String,
    /// At most so many at once, over all workers.
    pub most: u32,
}

/// When a job becomes ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// After a while, by the store's clock.
    In(Duration),
    /// At a time, by the store's clock.
    At(Timestamp),
}

impl When {
    /// The time meant, if it is `now`.
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::In(delay) => now.plus(delay),
            Self::At(at) => at,
        }
    }
}

/// A job to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The session to run.
    pub session: SessionKey,
    /// The queue.
    pub queue: QueueName,
    /// Higher goes first; zero is usual.
    pub priority: i32,
    /// What runs it: workers may take the jobs of some agents only.
    pub agent: Option<String>,
    /// Shares a limit with the other jobs of the same key.
    pub key: Option<KeyLimit>,
    /// When it becomes ready.
    pub when: When,
}

impl NewJob {
    /// A job in the queue `default`, ready at once.
    pub fn new(session: SessionKey) -> Self {
        Self { session, queue: QueueName::default(), priority: 0, agent: None, key: None, when: When::Now }
    }

    /// An error if it names something no store keeps.
    pub fn check(&self) -> Result<()> {
        let texts = [("agent", self.agent.as_deref()), ("key", self.key.as_ref().map(|key| key.key.as_str()))];
        for (what, text) in texts {
            if let Some(text) = text
                && (text.is_empty() || text.len() > MAX_ID_BYTES || text.contains('\0'))
            {
                let message = format!("the {what} of a job has 1 to {MAX_ID_BYTES} bytes and no zero byte");
                return Err(Error::invalid(message).during("enqueue").on(&self.session));
            }
        }
        if self.key.as_ref().is_some_and(|key| key.most == 0) {
            let message = "a limit of zero would never let the job run";
            return Err(Error::invalid(message).during("enqueue").on(&self.session));
        }
        Ok(())
    }
}

/// Who has taken a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The worker.
    pub worker: OwnerId,
    /// Which claim of this job it is: a later one has a larger number.
    pub number: u64,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Any worker may take it.
    Ready,
    /// It becomes ready at a time.
    Scheduled,
    /// It waits for something to arrive.
    Parked,
    /// A worker has it.
    Claimed,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Scheduled, Self::Parked, Self::Claimed];

    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::Parked => "parked",
            Self::Claimed => "claimed",
        }
    }
}

/// A session that workers should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The session.
    pub session: SessionKey,
    /// The queue.
    pub queue: QueueName,
    /// Higher goes first.
    pub priority: i32,
    /// What runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Shares a limit with the other jobs of the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyLimit>,
    /// When it was first made.
    pub enqueued_at: Timestamp,
    /// From when on a worker may take it: for a claimed one, when the claim runs out. Never, if it
    /// waits for something to arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// Who has it, or had it until the claim ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// How often it was claimed in all.
    pub claims: u64,
    /// How often it was claimed since it last got on.
    pub attempts: u32,
    /// How often it was woken in all.
    pub wakes: u64,
    /// Why it was given back last, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Job {
    /// The job as it is made at `now`.
    pub fn new(new: &NewJob, now: Timestamp) -> Self {
        Self {
            session: new.session.clone(),
            queue: new.queue.clone(),
            priority: new.priority,
            agent: new.agent.clone(),
            key: new.key.clone(),
            enqueued_at: now,
            ready_at: Some(new.when.from(now)),
            claim: None,
            claims: 0,
            attempts: 0,
            wakes: 0,
            note: String::new(),
        }
    }

    /// Whether a worker has it at `now`.
    pub fn is_claimed(&self, now: Timestamp) -> bool {
        self.claim.is_some() && self.ready_at.is_some_and(|until| until > now)
    }

    /// What it is doing at `now`.
    pub fn state(&self, now: Timestamp) -> JobState {
        match self.ready_at {
            None => JobState::Parked,
            Some(at) if at <= now => JobState::Ready,
            Some(_) if self.claim.is_some() => JobState::Claimed,
            Some(_) => JobState::Scheduled,
        }
    }

    /// Takes over what is said anew: the job is ready when that says so, unless a worker has it.
    pub fn enqueue_again(&mut self, new: &NewJob, now: Timestamp) {
        self.queue = new.queue.clone();
        self.priority = new.priority;
        self.agent.clone_from(&new.agent);
        self.key.clone_from(&new.key);
        self.wakes += 1;
        if !self.is_claimed(now) {
            self.ready_at = Some(new.when.from(now));
            self.claim = None;
            self.attempts = 0;
            self.note.clear();
        }
    }

    /// What enqueueing `new` leads to, given the job as it is.
    pub fn enqueue(existing: Option<Self>, new: &NewJob, now: Timestamp) -> Enqueued {
        match existing {
            Some(mut job) => {
                job.enqueue_again(new, now);
                Enqueued { job, repeated: true }
            }
            None => Enqueued { job: Self::new(new, now), repeated: false },
        }
    }

    /// Something arrived for the session. If a worker has the job, it learns of it when it settles.
    pub fn wake(&mut self, now: Timestamp) {
        self.wakes += 1;
        if !self.is_claimed(now) {
            self.ready_at = Some(self.ready_at.map_or(now, |at| at.min(now)));
        }
    }

    /// Gives the job to a worker.
    pub fn take(&mut self, request: &ClaimRequest, now: Timestamp) {
        self.claims += 1;
        self.attempts = self.attempts.saturating_add(1);
        self.claim = Some(Claim { worker: request.worker.clone(), number: self.claims });
        self.ready_at = Some(now.plus(request.hold));
    }

    /// Carries out a settlement: what becomes of the job, and what to answer.
    pub fn settle(mut self, settle: &SettleJob, now: Timestamp) -> (Option<Self>, Settled) {
        if self.claim.as_ref().is_none_or(|claim| claim.number != settle.number || claim.worker != settle.worker) {
            return (Some(self), Settled::Lost);
        }
        let woken = self.wakes != settle.wakes;
        match &settle.settlement {
            Settlement::Done if !woken => return (None, Settled::Done),
            Settlement::Later { ready_at } if !woken => self.give_back(*ready_at, 0),
            Settlement::Done | Settlement::Later { .. } => self.give_back(Some(now), 0),
            Settlement::Again { after, counts, note } => {
                let attempts = if *counts { self.attempts } else { self.attempts.saturating_sub(1) };
                self.note.clone_from(note);
                self.give_back(Some(if woken { now } else { now.plus(*after) }), attempts);
            }
            Settlement::Progress => self.attempts = 0,
        }
        (Some(self.clone()), Settled::Kept(self))
    }

    fn give_back(&mut self, ready_at: Option<Timestamp>, attempts: u32) {
        self.ready_at = ready_at;
        self.claim = None;
        self.attempts = attempts;
    }
}

/// How many jobs of each agent and of each key are claimed: what limits look at.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    agents: BTreeMap<String, u32>,
    keys: BTreeMap<String, u32>,
}

impl Counts {
    /// Counts a claimed job.
    pub fn add(&mut self, job: &Job) {
        if let Some(agent) = &job.agent {
            *self.agents.entry(agent.clone()).or_default() += 1;
        }
        if let Some(key) = &job.key {
            *self.keys.entry(key.key.clone()).or_default() += 1;
        }
    }

    /// Whether one more may be claimed.
    pub fn allow(&self, job: &Job, request: &ClaimRequest) -> bool {
        let agent = job.agent.as_ref().is_none_or(|agent| {
            let claimed = self.agents.get(agent).copied().unwrap_or_default();
            request.agent_limits.get(agent).is_none_or(|most| claimed < *most)
        });
        let key = job.key.as_ref().is_none_or(|key| self.keys.get(&key.key).copied().unwrap_or_default() < key.most);
        agent && key
    }
}
