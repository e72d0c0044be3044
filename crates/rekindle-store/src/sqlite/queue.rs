//! The queue of the SQLite store: each change is one transaction of the writer.

use async_trait::async_trait;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Counts, Enqueued, Job, JobPage, JobQuery, NewJob, Notices, Queue, QueueInfo,
    SettleJob, Settled, WorkerInfo,
};
use rekindle_core::{Clock, Error, Namespace, Result, SessionKey, Timestamp};
use rusqlite::Connection;

use super::SqliteStore;
use super::failure::Outcome;
use super::jobs::{self, Look};
use super::notices::DatabaseNotices;
use super::rows::{find_session, missing};
use super::writer::{Call, Scope};

#[async_trait]
impl Queue for SqliteStore {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        new.check()?;
        let (key, new) = (&new.session, new.clone());
        self.write(Call::new("enqueue", key, 0, move |scope| enqueue(scope, &new))).await
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        let key = session.clone();
        self.write(Call::new("dequeue", session, 0, move |scope| Ok(jobs::remove(&scope.connection, &key)?))).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        // Looking costs no lock, and there is mostly nothing.
        let wanted = request.clone();
        let seen = self.read_with("claim", None, move |snapshot, clock| look(snapshot, &wanted, clock.now())).await?;
        if !seen.found || request.most == 0 {
            return Ok(Claimed { jobs: Vec::new(), next: seen.next, now: seen.now });
        }
        let request = request.clone();
        self.write(Call::on_jobs("claim", move |scope| claim(scope, &request))).await
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        let beat = beat.clone();
        self.write(Call::on_jobs("beat", move |scope| self::beat(scope, &beat))).await
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        let (key, settle) = (&settle.session, settle.clone());
        self.write(Call::new("settle", key, 0, move |scope| self::settle(scope, &settle))).await
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        query.check()?;
        let query = query.clone();
        let list = move |snapshot: &Connection, clock: &dyn Clock| {
            let now = clock.now();
            let mut jobs = jobs::list(snapshot, &query, now)?;
            let more = jobs.len() > query.limit;
            jobs.truncate(query.limit);
            let next = jobs.last().filter(|_| more).map(|job| job.session.id.clone());
            Ok(JobPage { jobs, next, now })
        };
        self.read_with("list jobs", None, list).await
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        let namespace = namespace.clone();
        let list = move |snapshot: &Connection, clock: &dyn Clock| Ok(jobs::queues(snapshot, &namespace, clock.now())?);
        self.read_with("list queues", None, list).await
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        let namespace = namespace.clone();
        let list = move |snapshot: &Connection, clock: &dyn Clock| {
            let details = jobs::workers(snapshot, &namespace, clock.now())?;
            // What a newer program says of itself is none of ours to judge.
            Ok(details.iter().filter_map(|detail| serde_json::from_str(detail).ok()).collect())
        };
        self.read_with("list workers", None, list).await
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        Ok(Box::new(DatabaseNotices::open(&self.0.path)?))
    }
}

fn enqueue(scope: &mut Scope, new: &NewJob) -> Outcome<Enqueued> {
    let (now, connection) = (scope.clock.now(), &scope.connection);
    if find_session(connection, &new.session, now.into())?.is_none() {
        return Err(missing(&new.session, "enqueue").into());
    }
    let enqueued = Job::enqueue(jobs::find(connection, &new.session)?, new, now);
    jobs::put(connection, &enqueued.job)?;
    jobs::tell(connection)?;
    Ok(enqueued)
}

/// What a look at the jobs showed.
struct Seen {
    found: bool,
    next: Option<Timestamp>,
    now: Timestamp,
}

fn look(connection: &Connection, request: &ClaimRequest, now: Timestamp) -> Outcome<Seen> {
    let mut found = false;
    jobs::each(connection, Look::Ready, &request.namespace, now, |job| {
        found = request.wants(&job);
        !found
    })?;
    Ok(Seen { found, next: next(connection, request, now)?, now })
}

/// When the next job that is wanted becomes ready by itself.
fn next(connection: &Connection, request: &ClaimRequest, now: Timestamp) -> Outcome<Option<Timestamp>> {
    let mut next = None;
    jobs::each(connection, Look::Coming, &request.namespace, now, |job| {
        if request.wants(&job) {
            next = job.ready_at;
        }
        next.is_none()
    })?;
    Ok(next)
}

fn claim(scope: &mut Scope, request: &ClaimRequest) -> Outcome<Claimed> {
    let (now, connection) = (scope.clock.now(), &scope.connection);
    let mut counts = Counts::default();
    jobs::each(connection, Look::Claimed, &request.namespace, now, |job| {
        counts.add(&job);
        true
    })?;
    let mut taken = Vec::new();
    jobs::each(connection, Look::Ready, &request.namespace, now, |mut job| {
        if request.wants(&job) && counts.allow(&job, request) {
            counts.add(&job);
            job.take(request, now);
            taken.push(job);
        }
        taken.len() < request.most
    })?;
    for job in &taken {
        jobs::put(connection, job)?;
    }
    Ok(Claimed { jobs: taken, next: next(connection, request, now)?, now })
}

fn beat(scope: &mut Scope, beat: &Beat) -> Outcome<Beaten> {
    let (now, connection) = (scope.clock.now(), &scope.connection);
    let mut lost = Vec::new();
    for held in &beat.held {
        let found = jobs::find(connection, &held.session)?.filter(|job| {
            job.claim.as_ref().is_some_and(|claim| claim.worker == beat.worker.worker && claim.number == held.number)
        });
        match found {
            Some(mut job) => {
                job.ready_at = Some(now.plus(beat.hold));
                jobs::put(connection, &job)?;
            }
            None => lost.push(held.session.clone()),
        }
    }
    if beat.ends {
        jobs::remove_worker(connection, &beat.worker)?;
        return Ok(Beaten { lost, now });
    }
    let worker = WorkerInfo { seen_at: now, until: now.plus(beat.hold), ..beat.worker.clone() };
    let detail = serde_json::to_string(&worker)
        .map_err(|error| Error::invalid("the worker's description cannot be written").because(error))?;
    jobs::put_worker(connection, &worker, &detail)?;
    Ok(Beaten { lost, now })
}

fn settle(scope: &mut Scope, settle: &SettleJob) -> Outcome<Settled> {
    let (now, connection) = (scope.clock.now(), &scope.connection);
    let Some(job) = jobs::find(connection, &settle.session)? else { return Ok(Settled::Lost) };
    let (job, settled) = job.settle(settle, now);
    match (&job, &settled) {
        (_, Settled::Lost) => return Ok(settled),
        (Some(job), _) => jobs::put(connection, job)?,
        (None, _) => drop(jobs::remove(connection, &settle.session)?),
    }
    // A limit may have room again, or the job may be for somebody else now.
    jobs::tell(connection)?;
    Ok(settled)
}
