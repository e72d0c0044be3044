//! The contract between workers and a store: which sessions should run, when, and who has taken
//! them.
//!
//! A queue is an index, never the truth. Who may write to a session is decided by its lease alone,
//! and what was done stands in its journal; a job that is claimed twice, lost or left over costs a
//! look at the session, nothing more.
//!
//! * A session has at most one [`Job`].
//! * A claim is held for a while and renewed; what a dead worker held becomes ready by itself.
//! * What arrives in a session's inbox makes its job ready *in the same write* ([`Job::wake`]), so
//!   no answer, signal or message can be recorded without anybody being woken.
//! * A job that was woken while somebody had it is not forgotten when it is settled: it is ready
//!   again at once.

mod job;
mod request;

use async_trait::async_trait;

pub use job::{Claim, Counts, Job, JobState, KeyLimit, NewJob, When};
pub use request::{
    Beat, Beaten, ClaimRequest, Claimed, Enqueued, Held, JobPage, JobQuery, MAX_CLAIMS, Notice, QueueInfo, SettleJob,
    Settled, Settlement, WorkerInfo,
};

use crate::error::Result;
use crate::id::{Namespace, SessionKey};

/// Jobs for workers, kept by a store next to its sessions.
///
/// # Contract
///
/// Each clause names the test of `rekindle-testkit` that checks it.
///
/// * **Durable and atomic**, as the store itself (`jobs_survive_reopening`).
/// * **One at a time.** A job is never given to two workers while a claim is live
///   (`a_job_is_claimed_once`, `many_workers_share_the_jobs`); one whose claim ran out is given to the
///   next (`a_claim_runs_out`, `a_renewed_claim_stays`).
/// * **In order.** Of the jobs that are ready, those of higher priority first, then those that were
///   ready first (`priority_goes_first`).
/// * **Within limits.** Claims of one agent or of one key never exceed what was said
///   (`limits_hold`).
/// * **Nothing is missed.** An append to a session's inbox wakes its job in the same write
///   (`the_inbox_wakes`), and a job woken while it was claimed is ready again once it is settled
///   (`woken_while_claimed`).
/// * **Gone with its session.** Removing a session removes its job (`removed_with_the_session`).
/// * **Safe to repeat.** Every call (`enqueue` counts once more as a wake).
/// * **Cancellation.** A call that is dropped is carried out or not, and no job is lost by it
///   (`a_dropped_call_loses_no_job`).
#[async_trait]
pub trait Queue: Send + Sync {
    /// Makes a job for a session, or makes the one it has ready again, with what is said now.
    /// `NotFound` if there is no such session.
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued>;

    /// Takes the job of a session away, whoever has it; whether there was one.
    async fn dequeue(&self, session: &SessionKey) -> Result<bool>;

    /// Takes jobs that are ready.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed>;

    /// A worker lives: renews the claims it names and keeps it on the list of workers, or takes it
    /// off that list.
    async fn beat(&self, beat: &Beat) -> Result<Beaten>;

    /// What became of a claimed job.
    async fn settle(&self, settle: &SettleJob) -> Result<Settled>;

    /// Lists jobs, in the order of their sessions' ids.
    async fn jobs(&self, query: &JobQuery) -> Result<JobPage>;

    /// Every queue of a namespace that has jobs, by name.
    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>>;

    /// The workers of a namespace that were heard of within their time, by name.
    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>>;

    /// Listens for what happens from now on.
    async fn listen(&self) -> Result<Box<dyn Notices>>;
}

/// What happens in a store, as it happens. A hint: one may be missed, so look now and then anyway.
#[async_trait]
pub trait Notices: Send {
    /// Waits for the next one. May be dropped at any time.
    async fn next(&mut self) -> Notice;
}
