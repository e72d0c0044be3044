//! Answers, expiry and cancelling at the same time: whichever is recorded first counts, and nobody is
//! told that an answer was accepted which does not count. Times by the store's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rekindle::core::record::{Record, WaitCloseReason, WaitExpired};
use rekindle::core::{Entry, Hash, Seq};
use rekindle::operations::{self, Answer};
use rekindle::tool::Approval;
use rekindle::{BranchId, Clock, Engine, ErrorKind, Session, Timestamp, WaitId};
use rekindle_testkit::ManualClock;

use crate::world::{World, payer, resume};

const MINUTE: Duration = Duration::from_secs(60);

fn approval(approve_on_expiry: bool) -> Approval {
    Approval { expires_after: Some(MINUTE), approve_on_expiry, ..Approval::default() }
}

async fn open(engine: &Engine, session: &Session) -> (WaitId, Option<Hash>) {
    let shown = operations::show(engine, session.key()).await.unwrap();
    (shown.waits[0].opened.wait.clone(), shown.waits[0].opened.digest)
}

async fn records(engine: &Engine, session: &Session, branch: &BranchId) -> Vec<Record> {
    let entries = engine.journal().read(session.key(), branch, Seq(1), 1_000).await.unwrap();
    let batches = entries.into_iter().map(|entry| match entry {
        Entry::Batch(batch) => batch.records,
        Entry::Damaged(damage) => panic!("{damage:?}"),
    });
    batches.flatten().collect()
}

async fn closed(engine: &Engine, session: &Session) -> Vec<WaitCloseReason> {
    let records = records(engine, session, &BranchId::main()).await;
    let closed = records.iter().filter_map(|record| match record {
        Record::WaitClosed(closed) => Some(closed.reason),
        _ => None,
    });
    closed.collect()
}

async fn answers(engine: &Engine, session: &Session) -> usize {
    let records = records(engine, session, &BranchId::inbox()).await;
    records.iter().filter(|record| matches!(record, Record::InboxAnswer(_))).count()
}

#[tokio::test]
async fn an_answer_that_arrives_after_the_expiry_was_recorded_is_refused() {
    let (world, interloper) = World::with_interloper();
    let (session, agent) = (world.session("s").await, payer(approval(true)));
    agent.run_once("pay", &session).await.unwrap();
    let (wait, _) = open(&world.engine, &session).await;
    let held = interloper.hold_next(true);
    let (engine, key) = (world.engine.clone(), session.key().clone());
    let no = Answer::reject(wait, "maria", "too much");
    let answer = tokio::spawn(async move { operations::answer(&engine, &key, &no).await });
    held.reached().await;
    world.clock.advance(MINUTE);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
    held.release();
    let refused = answer.await.unwrap().unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::WaitClosed, "{refused}");
    assert!(refused.message().contains("expired"), "{refused}");
    assert_eq!(
        (closed(&world.engine, &session).await, answers(&world.engine, &session).await),
        (vec![WaitCloseReason::Expired], 0)
    );
}

#[tokio::test]
async fn an_answer_that_arrives_after_a_cancel_is_refused() {
    let (world, interloper) = World::with_interloper();
    let (session, agent) = (world.session("s").await, payer(approval(true)));
    agent.run_once("pay", &session).await.unwrap();
    let (wait, digest) = open(&world.engine, &session).await;
    let held = interloper.hold_next(true);
    let (engine, key) = (world.engine.clone(), session.key().clone());
    let yes = Answer::approve(wait, digest, "maria");
    let answer = tokio::spawn(async move { operations::answer(&engine, &key, &yes).await });
    held.reached().await;
    let options = operations::ControlOptions::new("bob", "enough");
    operations::cancel(&world.engine, session.key(), &options).await.unwrap();
    held.release();
    let refused = answer.await.unwrap().unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::WaitClosed, "{refused}");
    assert!(refused.message().contains("cancelled"), "{refused}");
    assert_eq!(answers(&world.engine, &session).await, 0);
}

#[tokio::test]
async fn an_answer_that_was_accepted_counts_although_the_run_saw_the_wait_expire() {
    let (world, interloper) = World::with_interloper();
    let (session, agent) = (world.session("s").await, payer(approval(true)));
    agent.run_once("pay", &session).await.unwrap();
    let (wait, _) = open(&world.engine, &session).await;
    // Judged before the time has come, and on its way.
    let answer_held = interloper.hold_next(true);
    let (engine, key) = (world.engine.clone(), session.key().clone());
    let no = Answer::reject(wait, "maria", "too much");
    let answer = tokio::spawn(async move { operations::answer(&engine, &key, &no).await });
    answer_held.reached().await;
    world.clock.advance(MINUTE);
    let expiry_held = interloper.hold_next(false);
    let handle = agent.resume(&session).await.unwrap();
    let report = tokio::spawn(handle.report());
    expiry_held.reached().await;
    // The answer is there first; the run, which read the inbox before, must not overlook it.
    answer_held.release();
    assert!(answer.await.unwrap().unwrap().decided);
    expiry_held.release();
    report.await.unwrap().unwrap();
    assert_eq!(closed(&world.engine, &session).await, [WaitCloseReason::Answered]);
    let said = world.texts(&session, &operations::At::Latest).await;
    assert!(!said.iter().any(|text| text.contains("paid 5")), "{said:?}");
}

/// The clock of a machine that is off, and that can be set.
#[derive(Debug)]
struct Off {
    store: Arc<ManualClock>,
    by: AtomicI64,
}

impl Clock for Off {
    fn now(&self) -> Timestamp {
        Timestamp(self.store.now().0.saturating_add_signed(self.by.load(Ordering::SeqCst)))
    }
}

const HOURS: i64 = 2 * 3_600_000_000;

fn off(world: &World, by: i64) -> Engine {
    world.engine.clone().with_clock(Arc::new(Off { store: Arc::clone(&world.clock), by: by.into() }))
}

#[tokio::test]
async fn a_machine_whose_clock_is_ahead_expires_nothing_early() {
    let world = World::memory();
    let (session, agent) = (world.session("s").await, payer(approval(true)));
    agent.run_once("pay", &session).await.unwrap();
    for by in [HOURS, -HOURS] {
        let engine = off(&world, by);
        let session = engine.open_session("s").await.unwrap();
        let report = agent.resume(&session).await.unwrap().report().await.unwrap();
        assert_eq!(report.waits.len(), 1, "{}", report.reason);
        assert!(!operations::waits(&engine, engine.namespace()).await.unwrap().waits[0].wait.expired);
    }
    world.clock.advance(MINUTE);
    let engine = off(&world, -HOURS);
    let session = engine.open_session("s").await.unwrap();
    let report = agent.resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "It is paid.", "by the store's clock its time has come");
}

#[tokio::test]
async fn an_answer_is_in_time_by_the_stores_clock() {
    for by in [HOURS, -HOURS] {
        let world = World::memory();
        let (session, agent) = (world.session("s").await, payer(approval(false)));
        agent.run_once("pay", &session).await.unwrap();
        let engine = off(&world, by);
        let (wait, digest) = open(&engine, &session).await;
        let yes = Answer::approve(wait.clone(), digest, "maria");
        let given = operations::answer(&engine, session.key(), &yes).await.unwrap();
        assert!(given.decided, "{given:?}");
        // Read late, and by a machine whose clock is right.
        world.clock.advance(2 * MINUTE);
        assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
        assert_eq!(closed(&world.engine, &session).await, [WaitCloseReason::Answered]);
    }
}

#[tokio::test]
async fn an_answer_after_the_time_has_come_is_refused_whatever_the_local_clock_says() {
    let world = World::memory();
    let (session, agent) = (world.session("s").await, payer(approval(true)));
    agent.run_once("pay", &session).await.unwrap();
    world.clock.advance(MINUTE);
    let engine = off(&world, -HOURS);
    let (wait, _) = open(&engine, &session).await;
    let late = operations::answer(&engine, session.key(), &Answer::reject(wait, "maria", "no")).await.unwrap_err();
    assert_eq!(*late.kind(), ErrorKind::WaitClosed, "{late}");
}

#[tokio::test]
async fn a_machine_whose_clock_is_ahead_deletes_nothing_early() {
    let world = World::memory();
    let (session, hour) = (world.session("s").await, Duration::from_secs(3_600));
    let engine = off(&world, HOURS);
    let delete = async || operations::delete_inactive(&engine, engine.namespace(), hour, false).await.unwrap().plan;
    assert!(delete().await.delete.is_empty());
    world.clock.advance(hour + MINUTE);
    assert_eq!(delete().await.delete, [session.key().clone()], "by the store's clock it is old enough");
}

/// The process died between the record of the expiry and what follows from it.
#[tokio::test]
async fn a_run_that_died_behind_the_expiry_goes_on_with_the_default() {
    for world in [World::memory(), World::sqlite()] {
        let (session, agent) = (world.session("s").await, payer(approval(true)));
        agent.run_once("pay", &session).await.unwrap();
        let (wait, _) = open(&world.engine, &session).await;
        world.clock.advance(MINUTE);
        let expired = WaitExpired { wait: wait.clone(), extra: Default::default() };
        world.leave_behind(&session, &[expired.into()]).await;
        let no = Answer::reject(wait, "maria", "too much");
        let late = operations::answer(&world.engine, session.key(), &no).await.unwrap_err();
        assert_eq!(*late.kind(), ErrorKind::WaitClosed, "{late}");
        assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
        assert_eq!(closed(&world.engine, &session).await, [WaitCloseReason::Expired]);
    }
}
