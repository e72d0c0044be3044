//! The queue. All keys of a namespace's queue share a slot, so every call is one script; only the
//! inbox is in another slot, that of its session. On one server the script that writes the inbox
//! wakes the job too. In a cluster the session is named as pending first, then the inbox is written,
//! then the job is woken; what stays pending is woken by the next claim.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::queue::{
    Beat, Beaten, ClaimRequest, Claimed, Enqueued, Job, JobPage, JobQuery, NewJob, Notices, Queue, QueueInfo,
    SettleJob, Settled, WorkerInfo,
};
use rekindle_core::{Append, Error, Namespace, Result, SessionId, SessionKey, Timestamp};

use super::jobs::{job, job_text};
use super::link::Call;
use super::notices::Listener;
use super::scripts::{self, Script};
use super::session::{TRIES, contended, missing};
use super::{RedisStore, value};
use crate::system::system_ids;

/// After this long, whoever was writing an inbox is taken to be gone.
const PENDING: Duration = Duration::from_secs(5);
/// How many jobs are fetched at once.
const CHUNK: usize = 256;

impl RedisStore {
    /// What follows the frames of an append to an inbox.
    pub(super) fn inbox_notice(&self, session: &SessionKey) -> [Bytes; 3] {
        let notice = format!("i{}\0{}", session.namespace, session.id);
        [session.id.to_string().into(), self.link.keys.channel().into(), notice.into()]
    }

    /// Appends to an inbox and wakes the job, which stands in another slot.
    pub(super) async fn append_in_cluster(
        &self,
        append: &Append,
        script: &Script,
        call: &Call,
        now: Option<Timestamp>,
    ) -> Result<bool> {
        let queue = self.link.keys.queue(&append.session.namespace);
        // Of its own: that somebody else has finished says nothing about this write.
        let name = format!("{}\0{:032x}", append.session.id, u128::from_be_bytes(system_ids()?.nonce()));
        let announce = Call::writing(queue.clone()).arg(name.clone());
        self.link.run_at(&scripts::ANNOUNCE, &announce, now).await?;
        let appended = value::number(self.link.run_at(script, call, now).await?)? == 1;
        // Also if it was refused: it may be the repetition of one that was carried out.
        let wake = Call::writing(queue).args(self.inbox_notice(&append.session)).arg(name);
        self.link.run_at(&scripts::WAKE, &wake, now).await?;
        Ok(appended)
    }

    /// Takes the job of a session away; whether there was one.
    pub(super) async fn discard_job(&self, session: &SessionKey) -> Result<bool> {
        for _ in 0..TRIES {
            let (_, before) = self.find_job(session).await?;
            let Some(before) = before else { return Ok(false) };
            if self.swap(session, Some(&before), None, false).await? == Swapped::Done {
                return Ok(true);
            }
        }
        Err(contended("dequeue", session))
    }

    /// The time, and the text of a session's job.
    async fn find_job(&self, session: &SessionKey) -> Result<(Timestamp, Option<String>)> {
        let call = Call::reading(self.link.keys.queue(&session.namespace)).arg(session.id.to_string());
        let mut values = value::texts(self.link.run(&scripts::JOB, &call).await?)?.into_iter();
        let (Some(now), Some(text)) = (values.next(), values.next()) else {
            return Err(Error::corrupt("the server answered with something else than a job"));
        };
        Ok((Timestamp(value::parsed(&now)?), Some(text).filter(|text| !text.is_empty())))
    }

    async fn swap(
        &self,
        session: &SessionKey,
        before: Option<&str>,
        after: Option<&Job>,
        must_exist: bool,
    ) -> Result<Swapped> {
        let queue = self.link.keys.queue(&session.namespace);
        let here = must_exist && self.link.is_single();
        let keys = queue.into_iter().chain(here.then(|| self.link.keys.session(session).info()));
        let call = Call::writing(keys)
            .arg(session.id.to_string())
            .arg(before.unwrap_or_default().to_owned())
            .arg(after.map(job_text).unwrap_or_default())
            .arg(u8::from(here).to_string())
            // Also if the job goes: a limit may have room for another one.
            .arg(self.link.keys.channel());
        Ok(match value::number(self.link.run(&scripts::SWAP, &call).await?)? {
            1 => Swapped::Done,
            2 => Swapped::NoSession,
            _ => Swapped::Changed,
        })
    }

    /// Jobs in the order of their sessions' ids, from after one on, and where to go on.
    async fn jobs_after(&self, namespace: &Namespace, after: Option<&str>) -> Result<(Vec<Job>, Option<String>)> {
        let [jobs, ids, ..] = self.link.keys.queue(namespace);
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut command = redis::cmd("ZRANGE");
        command.arg(ids).arg(from).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(CHUNK);
        let ids = value::texts(self.link.query(&command).await?)?;
        let Some(last) = ids.last().cloned() else { return Ok((Vec::new(), None)) };
        let texts = self.link.query(redis::cmd("HMGET").arg(jobs).arg(&ids)).await?;
        let pairs = ids.iter().zip(value::list(texts)?);
        // One may have gone meanwhile.
        let found = pairs.filter(|(_, text)| *text != redis::Value::Nil);
        let found: Result<_> = found.map(|(id, text)| job(namespace, id, &value::text(text)?)).collect();
        Ok((found?, Some(last)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Swapped {
    Done,
    Changed,
    NoSession,
}

#[async_trait]
impl Queue for RedisStore {
    async fn enqueue(&self, new: &NewJob) -> Result<Enqueued> {
        new.check()?;
        self.writable("enqueue")?;
        let session = &new.session;
        if !self.link.is_single() && self.find(session).await?.is_none() {
            return Err(missing(session, "enqueue"));
        }
        for _ in 0..TRIES {
            let (now, before) = self.find_job(session).await?;
            let existing =
                before.as_ref().map(|text| job(&session.namespace, session.id.as_str(), text)).transpose()?;
            let enqueued = Job::enqueue(existing, new, now);
            match self.swap(session, before.as_deref(), Some(&enqueued.job), true).await? {
                Swapped::Done => return Ok(enqueued),
                Swapped::NoSession => return Err(missing(session, "enqueue")),
                Swapped::Changed => {}
            }
        }
        Err(contended("enqueue", session))
    }

    async fn dequeue(&self, session: &SessionKey) -> Result<bool> {
        self.writable("dequeue")?;
        self.discard_job(session).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        self.writable("claim")?;
        let now = self.link.told_time();
        let call = Call::writing(self.link.keys.queue(&request.namespace))
            .arg(request.worker.to_string())
            .arg(self.link.later(now, request.hold))
            .arg(request.most.to_string())
            .arg(PENDING.as_micros().to_string())
            .args(wanted(request));
        let mut values = value::texts(self.link.run_at(&scripts::CLAIM, &call, now).await?)?.into_iter();
        let (Some(now), Some(next)) = (values.next(), values.next()) else {
            return Err(Error::corrupt("the server answered with something else than claims"));
        };
        let mut claimed = Claimed { jobs: Vec::new(), next: None, now: Timestamp(value::parsed(&now)?) };
        if !next.is_empty() {
            claimed.next = Some(Timestamp(value::parsed(&next)?));
        }
        while let (Some(id), Some(text)) = (values.next(), values.next()) {
            claimed.jobs.push(job(&request.namespace, &id, &text)?);
        }
        Ok(claimed)
    }

    async fn beat(&self, beat: &Beat) -> Result<Beaten> {
        self.writable("beat")?;
        let now = self.link.told_time();
        let worker = &beat.worker;
        let known = match beat.ends {
            true => String::new(),
            false => serde_json::to_string(worker)
                .map_err(|error| Error::invalid("the worker cannot be written").because(error).during("beat"))?,
        };
        // A worker's claims are all of its namespace.
        let (held, foreign): (Vec<_>, Vec<_>) =
            beat.held.iter().partition(|held| held.session.namespace == worker.namespace);
        let claims = held.iter().flat_map(|held| [held.session.id.to_string(), held.number.to_string()]);
        let call = Call::writing(self.link.keys.queue(&worker.namespace))
            .arg(worker.worker.to_string())
            .arg(self.link.later(now, beat.hold))
            .arg(known)
            .arg(held.len().to_string())
            .args(claims.map(Bytes::from));
        let mut values = value::texts(self.link.run_at(&scripts::BEAT, &call, now).await?)?.into_iter();
        let now = values.next().ok_or_else(|| Error::corrupt("the server answered without its time"))?;
        let lost = values.map(|id| Ok(SessionKey::new(worker.namespace.clone(), SessionId::new(id)?)));
        let lost = lost.chain(foreign.iter().map(|held| Ok(held.session.clone()))).collect::<Result<_>>()?;
        Ok(Beaten { lost, now: Timestamp(value::parsed(&now)?) })
    }

    async fn settle(&self, settle: &SettleJob) -> Result<Settled> {
        self.writable("settle")?;
        let session = &settle.session;
        for _ in 0..TRIES {
            let (now, before) = self.find_job(session).await?;
            let Some(text) = before else { return Ok(Settled::Lost) };
            let found = job(&session.namespace, session.id.as_str(), &text)?;
            let (after, settled) = found.settle(settle, now);
            if settled == Settled::Lost {
                return Ok(settled);
            }
            if self.swap(session, Some(&text), after.as_ref(), false).await? == Swapped::Done {
                return Ok(settled);
            }
        }
        Err(contended("settle", session))
    }

    async fn jobs(&self, query: &JobQuery) -> Result<JobPage> {
        query.check()?;
        let mut page = JobPage { jobs: Vec::new(), next: None, now: self.link.now().await? };
        let mut after = query.after.as_ref().map(ToString::to_string);
        loop {
            let (found, last) = self.jobs_after(&query.namespace, after.as_deref()).await?;
            if last.is_none() {
                return Ok(page);
            }
            after = last;
            for job in found.into_iter().filter(|job| query.wants(job, page.now)) {
                if page.jobs.len() == query.limit {
                    page.next = page.jobs.last().map(|job| job.session.id.clone());
                    return Ok(page);
                }
                page.jobs.push(job);
            }
        }
    }

    async fn queues(&self, namespace: &Namespace) -> Result<Vec<QueueInfo>> {
        let now = self.link.now().await?;
        let mut queues = std::collections::BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let (found, last) = self.jobs_after(namespace, after.as_deref()).await?;
            if last.is_none() {
                return Ok(queues.into_values().collect());
            }
            after = last;
            for job in found {
                let name = job.queue.clone();
                queues.entry(name.clone()).or_insert_with(|| QueueInfo::new(name)).add(&job, now);
            }
        }
    }

    async fn workers(&self, namespace: &Namespace) -> Result<Vec<WorkerInfo>> {
        let now = self.link.now().await?;
        let [.., workers] = self.link.keys.queue(namespace);
        let mut texts = value::texts(self.link.query(redis::cmd("HGETALL").arg(workers)).await?)?.into_iter();
        let mut found = Vec::new();
        while let (Some(_), Some(text)) = (texts.next(), texts.next()) {
            found.push(worker(&text)?);
        }
        found.retain(|worker: &WorkerInfo| worker.until > now);
        found.sort_by(|one, other| one.worker.cmp(&other.worker));
        Ok(found)
    }

    async fn listen(&self) -> Result<Box<dyn Notices>> {
        Ok(Box::new(Listener::new(&self.link).await?))
    }
}

/// The queues, agents and limits of a request, each list behind its length.
fn wanted(request: &ClaimRequest) -> Vec<Bytes> {
    let mut list = vec![request.queues.len().to_string()];
    list.extend(request.queues.iter().map(ToString::to_string));
    list.push(request.agents.as_ref().map_or_else(|| "any".to_owned(), |agents| agents.len().to_string()));
    list.extend(request.agents.iter().flatten().cloned());
    list.push(request.agent_limits.len().to_string());
    list.extend(request.agent_limits.iter().flat_map(|(agent, most)| [agent.clone(), most.to_string()]));
    list.into_iter().map(Bytes::from).collect()
}

fn worker(text: &str) -> Result<WorkerInfo> {
    let wrong = || Error::corrupt("what is known of a worker cannot be read");
    let (seen, rest) = text.split_once(' ').ok_or_else(wrong)?;
    let (until, known) = rest.split_once(' ').ok_or_else(wrong)?;
    let mut worker: WorkerInfo = serde_json::from_str(known).map_err(|error| wrong().because(error))?;
    worker.seen_at = Timestamp(value::parsed(seen)?);
    worker.until = Timestamp(value::parsed(until)?);
    Ok(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_workers() {
        let info = r#"{"worker":"w","queues":["default"],"agents":["a"],"capacity":4,"running":1,"draining":false,"seen_at":1,"until":2}"#;
        rekindle_fuzz::fuzz!("redis-worker").seeds([format!("7 8 {info}")]).text(|text| {
            let _ = worker(text);
        });
    }
}
