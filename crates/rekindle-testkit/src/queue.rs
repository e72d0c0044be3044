//! The conformance suite of the [`Queue`] contract, over any store that keeps jobs. See
//! [`queue_conformance!`](crate::queue_conformance!).

// A conformance test is an assertion from its first line to its last.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::queue::{
    Beat, ClaimRequest, Claimed, Held, Job, JobQuery, JobState, KeyLimit, NewJob, Notice, Queue, SettleJob, Settled,
    Settlement, When, WorkerInfo,
};
use rekindle_core::record::InboxMessage;
use rekindle_core::{
    BranchId, Journal, Json, MessageId, Namespace, OwnerId, QueueName, Record, Removal, SessionHeader, SessionId,
    SessionKey, Store, Target, Timestamp,
};

use crate::dropped::{answer, at_every_await, cut};
use crate::fixture::{Harness, key};

const HOLD: Duration = Duration::from_secs(30);

/// Runs every test of the queue contract over a store. The second argument makes a new, empty
/// [`Fixture`](crate::Fixture) each time it is called.
#[macro_export]
macro_rules! queue_conformance {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn harness() -> $crate::Harness {
                $crate::Harness::new(($fixture)(), $crate::CodecKind::Default)
            }
            $crate::queue_tests! {
                jobs_survive_reopening
                a_job_is_claimed_once
                many_workers_share_the_jobs
                a_claim_runs_out
                a_renewed_claim_stays
                priority_goes_first
                limits_hold
                the_inbox_wakes
                woken_while_claimed
                removed_with_the_session
                settlements_say_what_comes_next
                attempts_count_until_it_gets_on
                enqueueing_again_says_it_anew
                a_worker_takes_what_it_wants
                namespaces_do_not_mix
                lists_and_counts
                workers_come_and_go
                whoever_listens_is_told
                any_legal_name
                what_is_not_there
                a_dropped_call_loses_no_job
            }
        }
    };
}

/// One `#[tokio::test]` for each named test. For [`queue_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! queue_tests {
    ($($test:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            $crate::queue::$test(&harness()).await;
        })*
    };
}

fn queue(store: &Arc<dyn Store>) -> &dyn Queue {
    store.queue().expect("the store keeps jobs")
}

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn ask(worker: &str, most: usize) -> ClaimRequest {
    ClaimRequest::new(owner(worker), Namespace::default(), most, HOLD)
}

async fn claim(store: &Arc<dyn Store>, worker: &str, most: usize) -> Vec<Job> {
    queue(store).claim(&ask(worker, most)).await.unwrap().jobs
}

fn ids(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.session.id.as_str()).collect()
}

fn settling(job: &Job, settlement: Settlement) -> SettleJob {
    let claim = job.claim.clone().expect("it was claimed");
    let (session, wakes) = (job.session.clone(), job.wakes);
    SettleJob { session, worker: claim.worker, number: claim.number, wakes, settlement }
}

async fn settle(store: &Arc<dyn Store>, job: &Job, settlement: Settlement) -> Settled {
    queue(store).settle(&settling(job, settlement)).await.unwrap()
}

async fn the_job(store: &Arc<dyn Store>, id: &str) -> Option<Job> {
    let query = JobQuery { session: Some(SessionId::new(id).unwrap()), ..JobQuery::new(Namespace::default()) };
    queue(store).jobs(&query).await.unwrap().jobs.pop()
}

/// A session with a job that is ready.
async fn enqueued(harness: &Harness, journal: &Journal, id: &str) -> Job {
    harness.session(journal, id).await;
    queue(journal.store()).enqueue(&NewJob::new(key(id))).await.unwrap().job
}

async fn send(journal: &Journal, id: &str) {
    let info = journal.open(&key(id)).await.unwrap();
    let head = info.branch(&BranchId::inbox()).unwrap().head;
    let message = MessageId::generate(journal.ids(), Timestamp(1));
    let record: Record = InboxMessage::new(message, Json::from("hello")).into();
    journal.append(&Target::new(key(id), BranchId::inbox(), head), &[record]).await.unwrap();
}

fn held(job: &Job) -> Held {
    Held { session: job.session.clone(), number: job.claims }
}

fn worker(name: &str) -> WorkerInfo {
    WorkerInfo {
        worker: owner(name),
        namespace: Namespace::default(),
        queues: vec![QueueName::default()],
        agents: Some(vec!["guide".into()]),
        slots: 4,
        running: 1,
        draining: false,
        version: "1.2.3".into(),
        started_at: Timestamp(7),
        seen_at: Timestamp(0),
        until: Timestamp(0),
    }
}

fn beat(name: &str, held: Vec<Held>) -> Beat {
    Beat { worker: worker(name), held, hold: HOLD, ends: false }
}

/// What was enqueued and claimed is there for whoever opens the store next.
pub async fn jobs_survive_reopening(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let new = NewJob {
        queue: QueueName::new("night").unwrap(),
        priority: -3,
        agent: Some("guide".into()),
        key: Some(KeyLimit { key: "customer 42".into(), most: 2 }),
        ..NewJob::new(key("a"))
    };
    let made = queue(journal.store()).enqueue(&new).await.unwrap();
    assert!(!made.repeated);
    let claimed = claim(journal.store(), "w1", 5).await.pop().unwrap();
    let again = harness.store().await;
    let found = the_job(&again, "a").await.unwrap();
    assert_eq!(found, claimed);
    assert_eq!((found.queue.as_str(), found.priority, found.attempts, found.claims), ("night", -3, 1, 1));
    assert_eq!((found.agent.as_deref(), found.key.unwrap().most), (Some("guide"), 2));
    assert_eq!(found.enqueued_at, made.job.enqueued_at);
}

/// Nobody gets a job while another worker's claim is live.
pub async fn a_job_is_claimed_once(harness: &Harness) {
    let journal = harness.journal().await;
    enqueued(harness, &journal, "a").await;
    let store = journal.store();
    let other = harness.store().await;
    assert_eq!(ids(&claim(store, "w1", 10).await), ["a"]);
    assert!(claim(store, "w1", 10).await.is_empty(), "not even whoever has it");
    assert!(claim(&other, "w2", 10).await.is_empty());
    assert!(claim(&other, "w2", 0).await.is_empty());
}

/// Many workers at once: each job goes to exactly one.
pub async fn many_workers_share_the_jobs(harness: &Harness) {
    let journal = harness.journal().await;
    for number in 0..60 {
        enqueued(harness, &journal, &format!("s{number:02}")).await;
    }
    let mut tasks = Vec::new();
    for number in 0..6 {
        let store = harness.store().await;
        tasks.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let jobs = claim(&store, &format!("w{number}"), 3).await;
                if jobs.is_empty() {
                    return mine;
                }
                mine.extend(jobs.into_iter().map(|job| job.session.id.to_string()));
            }
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    // A claimant may have been told that there is nothing while another held the rows.
    all.extend(claim(journal.store(), "last", 60).await.iter().map(|job| job.session.id.to_string()));
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!((all.len(), distinct.len()), (60, 60));
}

/// What a dead worker had goes to the next, and the dead one can do nothing about it.
pub async fn a_claim_runs_out(harness: &Harness) {
    let journal = harness.journal().await;
    enqueued(harness, &journal, "a").await;
    let store = journal.store();
    let first = claim(store, "w1", 1).await.pop().unwrap();
    let none = queue(store).claim(&ask("w2", 1)).await.unwrap();
    assert_eq!(none.next, Some(none.now.plus(HOLD)), "it is known when it runs out");
    harness.clock.advance(HOLD + Duration::from_micros(1));
    let second = claim(store, "w2", 1).await.pop().unwrap();
    assert_eq!((second.claims, second.attempts), (2, 2));
    assert_eq!(settle(store, &first, Settlement::Done).await, Settled::Lost);
    assert_eq!(queue(store).beat(&beat("w1", vec![held(&first)])).await.unwrap().lost, [key("a")]);
    assert_eq!(settle(store, &second, Settlement::Done).await, Settled::Done);
    assert_eq!(settle(store, &second, Settlement::Done).await, Settled::Lost);
    assert!(the_job(store, "a").await.is_none());
}

/// A worker that gives signs of life keeps what it names, and nothing else.
pub async fn a_renewed_claim_stays(harness: &Harness) {
    let journal = harness.journal().await;
    enqueued(harness, &journal, "a").await;
    enqueued(harness, &journal, "b").await;
    let store = journal.store();
    let jobs = claim(store, "w1", 2).await;
    for _ in 0..3 {
        harness.clock.advance(HOLD / 2);
        let named = vec![held(jobs.iter().find(|job| job.session == key("a")).unwrap())];
        assert!(queue(store).beat(&beat("w1", named)).await.unwrap().lost.is_empty());
    }
    assert_eq!(ids(&claim(store, "w2", 2).await), ["b"]);
}

/// Higher priority first, then what was ready first.
pub async fn priority_goes_first(harness: &Harness) {
    let journal = harness.journal().await;
    for (id, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)] {
        harness.session(&journal, id).await;
        let new = NewJob { priority, ..NewJob::new(key(id)) };
        queue(journal.store()).enqueue(&new).await.unwrap();
        harness.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(ids(&claim(journal.store(), "w1", 3).await), ["b", "e", "a"]);
    assert_eq!(ids(&claim(journal.store(), "w1", 3).await), ["c", "d"]);
}

/// Limits of agents and keys count over all workers, also within one claim.
pub async fn limits_hold(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    for (id, agent, customer) in
        [("a", "slow", None), ("b", "slow", None), ("c", "slow", None), ("k1", "x", Some("k")), ("k2", "x", Some("k"))]
    {
        harness.session(&journal, id).await;
        let limit = customer.map(|customer: &str| KeyLimit { key: customer.into(), most: 1 });
        let new = NewJob { agent: Some(agent.into()), key: limit, ..NewJob::new(key(id)) };
        queue(store).enqueue(&new).await.unwrap();
        harness.clock.advance(Duration::from_millis(1));
    }
    let ask = |worker| ClaimRequest { agent_limits: BTreeMap::from([("slow".to_owned(), 2)]), ..ask(worker, 10) };
    let first = queue(store).claim(&ask("w1")).await.unwrap().jobs;
    assert_eq!(ids(&first), ["a", "b", "k1"]);
    assert!(queue(store).claim(&ask("w2")).await.unwrap().jobs.is_empty());
    settle(store, &first[0], Settlement::Done).await;
    settle(store, &first[2], Settlement::Later { ready_at: None }).await;
    let second = queue(store).claim(&ask("w2")).await.unwrap().jobs;
    assert_eq!(ids(&second), ["c", "k2"]);
    // What a dead worker had does not count for ever.
    harness.clock.advance(HOLD + Duration::from_micros(1));
    assert_eq!(queue(store).claim(&ask("w3")).await.unwrap().jobs.len(), 3);
}

/// What is appended to the inbox makes the job ready, whatever it waited for.
pub async fn the_inbox_wakes(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    for id in ["parked", "timed"] {
        enqueued(harness, &journal, id).await;
    }
    let far = Timestamp(u64::MAX / 4);
    for job in claim(store, "w1", 2).await {
        let ready_at = (job.session.id.as_str() == "timed").then_some(far);
        let Settled::Kept(kept) = settle(store, &job, Settlement::Later { ready_at }).await else { panic!("kept") };
        assert_eq!((kept.ready_at, kept.claim, kept.attempts), (ready_at, None, 0));
    }
    assert!(claim(store, "w1", 2).await.is_empty());
    send(&journal, "parked").await;
    assert_eq!(ids(&claim(store, "w1", 2).await), ["parked"]);
    send(&journal, "timed").await;
    assert_eq!(ids(&claim(store, "w1", 2).await), ["timed"]);
    // A session without a job stays without one.
    harness.session(&journal, "plain").await;
    send(&journal, "plain").await;
    assert!(the_job(store, "plain").await.is_none());
}

/// What arrives while a worker has the job is not lost when it settles.
pub async fn woken_while_claimed(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    for (id, settlement) in [("done", Settlement::Done), ("later", Settlement::Later { ready_at: None })] {
        enqueued(harness, &journal, id).await;
        let job = claim(store, "w1", 1).await.pop().unwrap();
        send(&journal, id).await;
        assert!(claim(store, "w2", 1).await.is_empty(), "it is still claimed");
        let settled = settle(store, &job, settlement.clone()).await;
        assert!(matches!(settled, Settled::Kept(_)), "{settled:?}");
        let again = claim(store, "w2", 1).await.pop().unwrap();
        assert_eq!((again.session.id.as_str(), again.attempts, again.wakes), (id, 1, job.wakes + 1));
        settle(store, &again, settlement).await;
        assert!(claim(store, "w2", 1).await.is_empty());
    }
    enqueued(harness, &journal, "again").await;
    let again = || Settlement::Again { after: Duration::from_secs(3_600), counts: true, note: "no model".into() };
    let job = claim(store, "w1", 1).await.pop().unwrap();
    send(&journal, "again").await;
    settle(store, &job, again()).await;
    let job = claim(store, "w1", 1).await.pop().unwrap();
    assert_eq!((job.session.id.as_str(), job.attempts), ("again", 2));
    settle(store, &job, again()).await;
    assert!(claim(store, "w1", 1).await.is_empty());
}

/// A job does not outlive its session, nor come back with the next of that name.
pub async fn removed_with_the_session(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    enqueued(harness, &journal, "a").await;
    enqueued(harness, &journal, "b").await;
    store.remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert!(the_job(store, "a").await.is_none());
    harness.session(&journal, "a").await;
    send(&journal, "a").await;
    assert_eq!(ids(&claim(store, "w1", 9).await), ["b"]);
    assert!(queue(store).dequeue(&key("b")).await.unwrap());
    assert!(!queue(store).dequeue(&key("b")).await.unwrap());
}

/// When a job is ready next.
pub async fn settlements_say_what_comes_next(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    enqueued(harness, &journal, "a").await;
    let job = claim(store, "w1", 1).await.pop().unwrap();
    let again = Settlement::Again { after: Duration::from_secs(5), counts: true, note: "no model".into() };
    settle(store, &job, again).await;
    let waiting = the_job(store, "a").await.unwrap();
    assert_eq!((waiting.note.as_str(), waiting.attempts), ("no model", 1));
    let Claimed { jobs, next, now } = queue(store).claim(&ask("w1", 1)).await.unwrap();
    assert!(jobs.is_empty());
    assert_eq!(next, Some(now.plus(Duration::from_secs(5))));
    harness.clock.advance(Duration::from_secs(5));
    let job = claim(store, "w1", 1).await.pop().unwrap();
    let at = job.ready_at.unwrap().plus(Duration::from_secs(3_600));
    settle(store, &job, Settlement::Later { ready_at: Some(at) }).await;
    assert_eq!(queue(store).claim(&ask("w1", 1)).await.unwrap().next, Some(at));
    // Another worker's number settles nothing.
    let other = SettleJob { number: 99, ..settling(&job, Settlement::Done) };
    assert_eq!(queue(store).settle(&other).await.unwrap(), Settled::Lost);
    assert!(the_job(store, "a").await.is_some());
}

/// Attempts count claims since the job last got on.
pub async fn attempts_count_until_it_gets_on(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    enqueued(harness, &journal, "a").await;
    let again = |counts| Settlement::Again { after: Duration::ZERO, counts, note: String::new() };
    for attempt in 1..=3 {
        let job = claim(store, "w1", 1).await.pop().unwrap();
        assert_eq!(job.attempts, attempt);
        settle(store, &job, again(true)).await;
    }
    let job = claim(store, "w1", 1).await.pop().unwrap();
    settle(store, &job, again(false)).await;
    let job = claim(store, "w1", 1).await.pop().unwrap();
    assert_eq!(job.attempts, 4, "an attempt that did not count");
    let Settled::Kept(kept) = settle(store, &job, Settlement::Progress).await else { panic!("it stays claimed") };
    assert_eq!((kept.attempts, kept.claim.clone()), (0, job.claim.clone()));
    harness.clock.advance(HOLD + Duration::from_micros(1));
    assert_eq!(claim(store, "w2", 1).await.pop().unwrap().attempts, 1);
}

/// Enqueueing what is there changes what is said, and makes it ready unless a worker has it.
pub async fn enqueueing_again_says_it_anew(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    harness.session(&journal, "a").await;
    let later = NewJob { when: When::In(Duration::from_secs(60)), ..NewJob::new(key("a")) };
    queue(store).enqueue(&later).await.unwrap();
    assert!(claim(store, "w1", 1).await.is_empty());
    let sooner = NewJob { priority: 9, ..NewJob::new(key("a")) };
    assert!(queue(store).enqueue(&sooner).await.unwrap().repeated);
    let job = claim(store, "w1", 1).await.pop().unwrap();
    assert_eq!(job.priority, 9);
    let claimed = queue(store).enqueue(&NewJob::new(key("a"))).await.unwrap().job;
    assert_eq!((claimed.claim.clone(), claimed.ready_at), (job.claim.clone(), job.ready_at));
    assert!(matches!(settle(store, &job, Settlement::Done).await, Settled::Kept(_)), "it was asked for again");
    assert_eq!(ids(&claim(store, "w1", 1).await), ["a"]);
}

/// Queues and agents a worker does not serve are left to others.
pub async fn a_worker_takes_what_it_wants(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    for (id, name, agent) in [("a", "default", Some("x")), ("b", "night", Some("y")), ("c", "default", None)] {
        harness.session(&journal, id).await;
        let name = QueueName::new(name).unwrap();
        let new = NewJob { queue: name, agent: agent.map(str::to_owned), ..NewJob::new(key(id)) };
        queue(store).enqueue(&new).await.unwrap();
        harness.clock.advance(Duration::from_millis(1));
    }
    let night = ClaimRequest { queues: vec![QueueName::new("night").unwrap()], ..ask("w1", 9) };
    let nobody = ClaimRequest { agents: Some(vec!["z".into()]), ..ask("w1", 9) };
    let agents = ClaimRequest { agents: Some(vec!["x".into(), "y".into()]), ..ask("w1", 9) };
    assert!(queue(store).claim(&nobody).await.unwrap().jobs.is_empty());
    assert_eq!(ids(&queue(store).claim(&night).await.unwrap().jobs), ["b"]);
    assert_eq!(ids(&queue(store).claim(&agents).await.unwrap().jobs), ["a"]);
    assert_eq!(ids(&claim(store, "w2", 9).await), ["c"]);
}

/// Jobs and workers of other namespaces are not seen.
pub async fn namespaces_do_not_mix(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    let other = Namespace::new("other").unwrap();
    let theirs = SessionKey::new(other.clone(), SessionId::new("a").unwrap());
    journal.create(SessionHeader::new(theirs.clone())).await.unwrap();
    queue(store).enqueue(&NewJob::new(theirs.clone())).await.unwrap();
    queue(store).beat(&beat("w1", Vec::new())).await.unwrap();
    assert!(claim(store, "w1", 1).await.is_empty());
    assert!(queue(store).queues(&Namespace::default()).await.unwrap().is_empty());
    assert!(queue(store).workers(&other).await.unwrap().is_empty());
    let request = ClaimRequest { namespace: other, ..ask("w2", 1) };
    assert_eq!(queue(store).claim(&request).await.unwrap().jobs[0].session, theirs);
}

/// Pages of jobs, and what is in each queue.
pub async fn lists_and_counts(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    for id in ["a", "b", "c", "d"] {
        enqueued(harness, &journal, id).await;
        harness.clock.advance(Duration::from_millis(1));
    }
    let taken = claim(store, "w1", 2).await;
    settle(store, &taken[1], Settlement::Later { ready_at: None }).await;
    harness.session(&journal, "e").await;
    let later = NewJob { when: When::In(HOLD), ..NewJob::new(key("e")) };
    queue(store).enqueue(&later).await.unwrap();
    let counts = queue(store).queues(&Namespace::default()).await.unwrap().pop().unwrap();
    assert_eq!((counts.ready, counts.scheduled, counts.parked, counts.claimed), (2, 1, 1, 1));
    assert_eq!(counts.oldest_ready, the_job(store, "c").await.unwrap().ready_at);
    for (state, expected) in [
        (JobState::Ready, vec!["c", "d"]),
        (JobState::Scheduled, vec!["e"]),
        (JobState::Parked, vec!["b"]),
        (JobState::Claimed, vec!["a"]),
    ] {
        let query = JobQuery { state: Some(state), ..JobQuery::new(Namespace::default()) };
        assert_eq!(ids(&queue(store).jobs(&query).await.unwrap().jobs), expected, "{state:?}");
    }
    let mut query = JobQuery { limit: 2, ..JobQuery::new(Namespace::default()) };
    let mut all = Vec::new();
    loop {
        let page = queue(store).jobs(&query).await.unwrap();
        assert!(page.jobs.len() <= 2);
        all.extend(page.jobs.iter().map(|job| job.session.id.to_string()));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(all, ["a", "b", "c", "d", "e"]);
    assert!(queue(store).jobs(&JobQuery { limit: 1_001, ..query }).await.is_err());
}

/// Workers are listed as long as they give signs of life.
pub async fn workers_come_and_go(harness: &Harness) {
    let store = harness.store().await;
    queue(&store).beat(&beat("w1", Vec::new())).await.unwrap();
    harness.clock.advance(HOLD / 2);
    let now = queue(&store).beat(&beat("w2", Vec::new())).await.unwrap().now;
    let all = queue(&store).workers(&Namespace::default()).await.unwrap();
    assert_eq!(all.iter().map(|worker| worker.worker.as_str()).collect::<Vec<_>>(), ["w1", "w2"]);
    assert_eq!(all[1], WorkerInfo { seen_at: now, until: now.plus(HOLD), ..worker("w2") });
    harness.clock.advance(HOLD * 3 / 4);
    let alive = queue(&store).workers(&Namespace::default()).await.unwrap();
    assert_eq!(alive.iter().map(|worker| worker.worker.as_str()).collect::<Vec<_>>(), ["w2"]);
    queue(&store).beat(&Beat { ends: true, ..beat("w2", Vec::new()) }).await.unwrap();
    assert!(queue(&store).workers(&Namespace::default()).await.unwrap().is_empty());
}

/// Whoever listens hears of a message and of a job, from any handle.
pub async fn whoever_listens_is_told(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let listener = harness.store().await;
    let mut notices = queue(&listener).listen().await.unwrap();
    send(&journal, "a").await;
    let heard = until(&mut *notices, |notice| matches!(notice, Notice::Inbox(_) | Notice::Anything)).await;
    assert!(matches!(&heard, Notice::Anything) || heard == Notice::Inbox(key("a")), "{heard:?}");
    queue(journal.store()).enqueue(&NewJob::new(key("a"))).await.unwrap();
    until(&mut *notices, |notice| matches!(notice, Notice::Ready | Notice::Anything)).await;
}

async fn until(notices: &mut dyn rekindle_core::queue::Notices, wanted: impl Fn(&Notice) -> bool) -> Notice {
    let heard = async {
        loop {
            let notice = notices.next().await;
            if wanted(&notice) {
                return notice;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("it is told in time")
}

/// Names are data, however strange.
pub async fn any_legal_name(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    let names = ["🦀".repeat(64), "'; DROP TABLE jobs; --".to_owned(), "{a}:b*c\\".to_owned(), "%_".to_owned()];
    for name in &names {
        harness.session(&journal, name).await;
        let new = NewJob {
            queue: QueueName::new(name).unwrap(),
            agent: Some(name.clone()),
            key: Some(KeyLimit { key: name.clone(), most: 1 }),
            ..NewJob::new(key(name))
        };
        queue(store).enqueue(&new).await.unwrap();
        let request = ClaimRequest {
            queues: vec![new.queue.clone()],
            agents: Some(vec![name.clone()]),
            ..ClaimRequest::new(owner(name), Namespace::default(), 9, HOLD)
        };
        let job = queue(store).claim(&request).await.unwrap().jobs.pop().unwrap();
        assert_eq!(job.session, key(name));
        settle(store, &job, Settlement::Later { ready_at: None }).await;
        send(&journal, name).await;
        assert_eq!(the_job(store, name).await.unwrap().wakes, 1);
    }
    let queues = queue(store).queues(&Namespace::default()).await.unwrap();
    assert_eq!(queues.len(), names.len());
}

/// What cannot be done is an error, and leaves nothing.
pub async fn what_is_not_there(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    let error = queue(store).enqueue(&NewJob::new(key("a"))).await.unwrap_err();
    assert_eq!(error.code(), "RK0003", "{error}");
    harness.session(&journal, "a").await;
    let zero = NewJob { key: Some(KeyLimit { key: "k".into(), most: 0 }), ..NewJob::new(key("a")) };
    assert_eq!(queue(store).enqueue(&zero).await.unwrap_err().code(), "RK0001");
    assert!(queue(store).claim(&ask("w1", 1_000)).await.is_err());
    assert!(the_job(store, "a").await.is_none());
}

/// Returns true if the job of a session is among those claimed, once.
fn gives(claimed: &[Job], id: &str) -> bool {
    claimed.iter().filter(|job| job.session == key(id)).count() == 1
}

/// A call that is dropped at any await is carried out or not, can be repeated, and loses no job.
pub async fn a_dropped_call_loses_no_job(harness: &Harness) {
    let journal = harness.journal().await;
    let store = journal.store();
    at_every_await(async |polls| {
        let id = format!("enqueue-{polls}");
        harness.session(&journal, &id).await;
        let done = cut(polls, queue(store).enqueue(&NewJob::new(key(&id)))).await;
        answer("enqueue", queue(store).enqueue(&NewJob::new(key(&id)))).await.unwrap();
        assert!(gives(&answer("claim", claim(store, "a", 9)).await, &id), "{polls}");
        let removed = cut(polls, queue(store).dequeue(&key(&id))).await;
        // A server may carry a dropped call out a moment later: then the job is there again.
        for _ in 0..100 {
            answer("dequeue", queue(store).dequeue(&key(&id))).await.unwrap();
            if the_job(store, &id).await.is_none() {
                return done.is_some() && removed.is_some();
            }
        }
        panic!("{polls}: the job does not go")
    })
    .await;
    at_every_await(async |polls| {
        let id = format!("claim-{polls}");
        enqueued(harness, &journal, &id).await;
        let done = cut(polls, queue(store).claim(&ask("a", 1))).await;
        // One of the two has it; when the time is over, exactly one other gets it.
        answer("claim", claim(store, "a", 9)).await;
        harness.clock.advance(HOLD);
        let mut got = answer("claim", claim(store, "b", 9)).await;
        assert!(gives(&got, &id), "{polls}");
        got.retain(|job| job.session == key(&id));
        assert!(!gives(&answer("claim", claim(store, "c", 9)).await, &id), "{polls}");
        let beat = Beat { worker: worker("b"), held: vec![held(&got[0])], hold: HOLD, ends: false };
        let beaten = cut(polls, queue(store).beat(&beat)).await;
        assert!(answer("beat", queue(store).beat(&beat)).await.unwrap().lost.is_empty(), "{polls}");
        let settling = settling(&got[0], Settlement::Done);
        let settled = cut(polls, queue(store).settle(&settling)).await;
        answer("settle", queue(store).settle(&settling)).await.unwrap();
        assert!(the_job(store, &id).await.is_none(), "{polls}");
        done.is_some() && beaten.is_some() && settled.is_some()
    })
    .await;
    at_every_await(async |polls| {
        let query = JobQuery::new(Namespace::default());
        let looks = [
            cut(polls, queue(store).jobs(&query)).await.is_some(),
            cut(polls, queue(store).queues(&Namespace::default())).await.is_some(),
            cut(polls, queue(store).workers(&Namespace::default())).await.is_some(),
            cut(polls, queue(store).listen()).await.is_some(),
        ];
        looks.iter().all(|done| *done)
    })
    .await;
    enqueued(harness, &journal, "last").await;
    assert_eq!(ids(&answer("claim", claim(store, "d", 9)).await), ["last"]);
}
