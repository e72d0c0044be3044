//! What a worker tells of what it does.

use std::time::Duration;

use rekindle_core::record::RunOutcome;
use rekindle_core::{OwnerId, SessionKey};
use serde::{Serialize, Serializer};

/// Something a worker did or met, for logs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerEvent {
    /// It takes jobs from now on.
    Started {
        /// Its name.
        worker: OwnerId,
        /// How many jobs it runs at once.
        slots: u32,
    },
    /// It took a job.
    Claimed {
        /// The session.
        session: SessionKey,
        /// Which try it is since the session last got on, from 1.
        attempt: u32,
    },
    /// A run of a session ended.
    Ran {
        /// The session.
        session: SessionKey,
        /// How.
        outcome: RunOutcome,
        /// Why.
        reason: String,
    },
    /// There is nothing more to do for a session: its job is gone.
    Done {
        /// The session.
        session: SessionKey,
    },
    /// A session waits, for something to arrive or until a time.
    Waits {
        /// The session.
        session: SessionKey,
        /// For how long at most, if a time ends it.
        #[serde(serialize_with = "seconds")]
        after: Option<Duration>,
    },
    /// A job was given back to be taken again.
    GivenBack {
        /// The session.
        session: SessionKey,
        /// Not before so long.
        #[serde(serialize_with = "some_seconds")]
        after: Duration,
        /// Why.
        reason: String,
    },
    /// A session cannot be run until somebody does something about it.
    Held {
        /// The session.
        session: SessionKey,
        /// Why.
        reason: String,
    },
    /// A session was given up: no worker got on with it.
    GaveUp {
        /// The session.
        session: SessionKey,
        /// Why.
        reason: String,
    },
    /// A claim was somebody else's before its job was settled.
    Lost {
        /// The session.
        session: SessionKey,
    },
    /// The clock of this machine is wrong by the store's, and is corrected for runs.
    ClockOff {
        /// By how many seconds it must be moved.
        seconds: f64,
    },
    /// The store did not answer; it is asked again.
    StoreAway {
        /// What failed.
        error: String,
    },
    /// It takes no more jobs, and has its runs pause.
    Draining {
        /// How many are under way.
        running: usize,
    },
    /// It is over.
    Stopped,
}

fn some_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

fn seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

/// What a worker did in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerReport {
    /// Jobs it took.
    pub claimed: u64,
    /// Runs that succeeded or left their session open to the next message.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Runs that ended to wait.
    pub waiting: u64,
    /// Runs that were paused.
    pub paused: u64,
    /// Jobs that were given back.
    pub given_back: u64,
    /// Sessions that cannot be run until somebody does something about it.
    pub held: u64,
    /// Sessions that were given up.
    pub gave_up: u64,
    /// Claims that were somebody else's in the end.
    pub lost: u64,
}

impl WorkerReport {
    pub(super) fn note(&mut self, event: &WorkerEvent) {
        let count = match event {
            WorkerEvent::Claimed { .. } => &mut self.claimed,
            WorkerEvent::Ran { outcome, .. } => match outcome {
                RunOutcome::Idle | RunOutcome::Succeeded => &mut self.succeeded,
                RunOutcome::Failed => &mut self.failed,
                RunOutcome::Cancelled => &mut self.cancelled,
                RunOutcome::Waiting => &mut self.waiting,
                RunOutcome::Paused => &mut self.paused,
            },
            WorkerEvent::GivenBack { .. } => &mut self.given_back,
            WorkerEvent::Held { .. } => &mut self.held,
            WorkerEvent::GaveUp { .. } => &mut self.gave_up,
            WorkerEvent::Lost { .. } => &mut self.lost,
            _ => return,
        };
        *count += 1;
    }
}
