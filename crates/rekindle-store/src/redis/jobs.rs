//! A job as text, and back: thirteen texts with a zero byte between them, as `queue.lua` reads them.
//! No text but the last may contain one.

use std::fmt;

use rekindle_core::queue::{Claim, Job, KeyLimit};
use rekindle_core::{Error, Namespace, Result, SessionId, SessionKey, Timestamp};

use super::value::parsed;

/// A job as it is stored.
pub(super) fn job_text(job: &Job) -> String {
    let shown = |value: Option<&dyn fmt::Display>| value.map(|value| value.to_string()).unwrap_or_default();
    let key = job.key.as_ref();
    let claim = job.claim.as_ref();
    [
        job.queue.to_string(),
        job.priority.to_string(),
        job.agent.clone().unwrap_or_default(),
        key.map(|key| key.key.clone()).unwrap_or_default(),
        shown(key.map(|key| &key.most as _)),
        job.enqueued_at.0.to_string(),
        shown(job.ready_at.as_ref().map(|at| &at.0 as _)),
        shown(claim.map(|claim| &claim.worker as _)),
        shown(claim.map(|claim| &claim.number as _)),
        job.claims.to_string(),
        job.attempts.to_string(),
        job.wakes.to_string(),
        job.note.clone(),
    ]
    .join("\0")
}

/// The job of a session.
pub(super) fn job(namespace: &Namespace, id: &str, text: &str) -> Result<Job> {
    let wrong = |what: &str| Error::corrupt(format!("{what} of a job cannot be read"));
    let parts: Vec<&str> = text.splitn(13, '\0').collect();
    let [queue, priority, agent, key, most, enqueued, ready, worker, number, claims, attempts, wakes, note] = parts[..]
    else {
        return Err(wrong("the text"));
    };
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let key = match key {
        "" => None,
        key => Some(KeyLimit { key: key.to_owned(), most: most.parse().map_err(|_| wrong("the limit"))? }),
    };
    let claim = match worker {
        "" => None,
        worker => Some(Claim { worker: worker.parse()?, number: parsed(number)? }),
    };
    Ok(Job {
        session: SessionKey::new(namespace.clone(), SessionId::new(id)?),
        queue: queue.parse()?,
        priority: priority.parse().map_err(|_| wrong("the priority"))?,
        agent: some(agent),
        key,
        enqueued_at: Timestamp(parsed(enqueued)?),
        ready_at: if ready.is_empty() { None } else { Some(Timestamp(parsed(ready)?)) },
        claim,
        claims: parsed(claims)?,
        attempts: attempts.parse().map_err(|_| wrong("the attempts"))?,
        wakes: parsed(wakes)?,
        note: note.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rekindle_core::QueueName;

    #[test]
    fn jobs_round_trip_and_nonsense_is_refused() {
        let plain = Job {
            session: SessionId::new("a").unwrap().into(),
            queue: QueueName::default(),
            priority: -3,
            agent: None,
            key: None,
            enqueued_at: Timestamp(7),
            ready_at: None,
            claim: None,
            claims: 0,
            attempts: 0,
            wakes: 2,
            note: String::new(),
        };
        let full = Job {
            agent: Some("writer".into()),
            key: Some(KeyLimit { key: "cu/st 1".into(), most: 3 }),
            ready_at: Some(Timestamp::MAX),
            claim: Some(Claim { worker: "w 1".parse().unwrap(), number: 9 }),
            note: "a\0b\0".into(),
            ..plain.clone()
        };
        for expected in [plain, full] {
            assert_eq!(job(&expected.session.namespace, "a", &job_text(&expected)).unwrap(), expected);
        }
        for text in ["", "\0\0", &"\0".repeat(12), &"x\0".repeat(12)] {
            assert!(job(&Namespace::default(), "a", text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn fuzzed_jobs() {
        let seeds = ["default|-3||||7|8|||1|2|3|note", "default|0|payer|customer|2|7||worker|4|1|2|3|a|b"];
        let seeds = seeds.map(|seed| seed.replace('|', "\0"));
        let namespace = Namespace::new("n").unwrap();
        rekindle_fuzz::fuzz!("redis-job").seeds(seeds).text(|text| {
            let read = job(&namespace, "a", text).ok()?;
            assert_eq!(job(&namespace, "a", &job_text(&read)).ok(), Some(read));
            Some(())
        });
    }
}
