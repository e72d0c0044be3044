//! Enqueueing: whatever fails on the way, doing it again completes it, and it counts once.

use std::sync::Arc;

use rekindle::operations::{self, Enqueue, JobInput};
use rekindle::{Agent, Engine, ErrorKind, Json, Status};
use rekindle_models::{Script, ScriptedModel};
use rekindle_store::{Fault, FaultPlan, FaultyStore};

use crate::kit::{
    Kind, LEASE, Place, header, job, job_of, key, noting, on_each_store, open_gate, put, until_over, working,
};
use crate::support::messages;

on_each_store! {
    a_crash_at_any_point_loses_and_repeats_nothing
    a_worker_that_loses_its_store_at_any_point_repeats_nothing
}

async fn a_crash_at_any_point_loses_and_repeats_nothing(place: Place) {
    let agent = || Agent::builder("guide", ScriptedModel::new(Script::new("m").text("one"))).build().unwrap();
    let plan = Arc::new(FaultPlan::default());
    let faulty = Engine::over(Arc::new(FaultyStore::new(place.store(), Arc::clone(&plan)))).unwrap();
    let engine = place.engine();
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        for call in 0.. {
            let (of_agent, of_flow) = (format!("agent-{fault:?}-{call}"), format!("flow-{fault:?}-{call}"));
            let jobs = [
                Enqueue::new(header(&engine, &of_agent, "guide"), "maria").message("first"),
                job(&engine, &of_flow, "flow", of_flow.as_str()),
            ];
            let mut failed = 0;
            for job in &jobs {
                plan.fail_once_at(call, fault);
                failed += usize::from(operations::enqueue(&faulty, job).await.is_err());
                plan.heal();
                operations::enqueue(&faulty, job).await.unwrap();
            }
            let ledger = place.ledger();
            let worker = place.worker().work(agent()).work(noting("flow", &ledger, &open_gate()));
            working(worker.until_idle()).end().await;
            let said = messages(&engine, &jobs[0].session).await;
            assert_eq!(said.len(), 2, "{fault:?} at call {call}");
            assert_eq!(ledger.count(&of_flow), 1, "{fault:?} at call {call}");
            if failed == 0 {
                // A session, an inbox: there is nothing more that could fail.
                assert_eq!(call, 2);
                break;
            }
        }
    }
}

async fn a_worker_that_loses_its_store_at_any_point_repeats_nothing(place: Place) {
    let engine = place.engine();
    for call in 0..6 {
        let id = format!("s{call}");
        put(&engine, &id, "flow", id.as_str()).await;
        let plan = Arc::new(FaultPlan::default());
        let store = Arc::new(FaultyStore::new(place.store(), Arc::clone(&plan)));
        let faulty = Engine::over(store).unwrap().with_lease(LEASE);
        let ledger = place.ledger();
        plan.fail_once_at(call, Fault::ReplyLost);
        let hand = working(rekindle::worker::Worker::builder(faulty).work(noting("flow", &ledger, &open_gate())));
        until_over(&engine, &id, Status::Succeeded).await;
        hand.stop().await;
        assert_eq!(ledger.count(&id), 1, "call {call}");
    }
}

#[tokio::test]
async fn a_store_without_a_queue_says_which_have_one() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(&format!("file:{}", folder.path().display())).unwrap();
    let refused = operations::enqueue(&engine, &job(&engine, "a", "flow", "x")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported);
    assert!(refused.next_step().contains("sqlite:"), "{}", refused.next_step());
    assert!(engine.open_session("a").await.is_err(), "nothing was made");
    for refused in [operations::queues(&engine).await.map(drop), operations::workers(&engine).await.map(drop)] {
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let worker =
        rekindle::worker::Worker::builder(engine).work(noting("f", &crate::support::Ledger::new("x"), &open_gate()));
    assert_eq!(*worker.build().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn what_could_never_run_is_refused() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    engine.create("idle").await.unwrap();
    let nothing = operations::enqueue(&engine, &Enqueue::existing(key(&engine, "idle"), "maria")).await.unwrap_err();
    assert_eq!(*nothing.kind(), ErrorKind::NotResumable);
    let nobody = operations::enqueue(&engine, &Enqueue::existing(key(&engine, "typo"), "maria")).await.unwrap_err();
    assert_eq!(*nobody.kind(), ErrorKind::NotFound);
    let huge = Json::from("x".repeat(5 << 20).as_str());
    let huge = Enqueue::new(header(&engine, "huge", "flow"), "maria").input(JobInput::Input(huge));
    let refused = operations::enqueue(&engine, &huge).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Limit { .. }), "{refused}");
    assert!(engine.open_session("huge").await.is_err(), "nothing was made");
    let mut never = job(&engine, "never", "flow", "x");
    never.key = Some(rekindle::core::queue::KeyLimit { key: "k".to_owned(), most: 0 });
    assert_eq!(*operations::enqueue(&engine, &never).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(engine.open_session("never").await.is_err(), "nothing was made");
}

#[tokio::test]
async fn a_job_can_be_taken_out() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    put(&engine, "a", "flow", "x").await;
    assert!(operations::dequeue(&engine, &key(&engine, "a")).await.unwrap());
    assert!(!operations::dequeue(&engine, &key(&engine, "a")).await.unwrap());
    assert!(job_of(&engine, "a").await.is_none());
    // Its input is still there: whoever puts it in again goes on with that.
    operations::enqueue(&engine, &Enqueue::existing(key(&engine, "a"), "maria")).await.unwrap();
    let ledger = place.ledger();
    working(place.worker().work(noting("flow", &ledger, &open_gate())).until_idle()).end().await;
    assert_eq!(ledger.lines(), ["x"]);
}

#[tokio::test]
async fn a_session_that_does_not_say_what_runs_it_can_be_told() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    engine.create("a").await.unwrap();
    let input = JobInput::Input(Json::from("x"));
    let job = Enqueue::existing(key(&engine, "a"), "maria").agent("flow").input(input);
    operations::enqueue(&engine, &job).await.unwrap();
    let ledger = place.ledger();
    working(place.worker().work(noting("flow", &ledger, &open_gate())).until_idle()).end().await;
    assert_eq!(ledger.lines(), ["x"]);
}
