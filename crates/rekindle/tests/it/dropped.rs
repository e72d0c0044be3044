//! Futures of the engine that are dropped at each of their awaits: no event is lost, the run ends as it should, and
//! whatever was begun can be gone on with.

use std::sync::Arc;

use rekindle::core::record::RunOutcome;
use rekindle::core::{Record, Seq};
use rekindle::operations::{Enqueue, JobInput};
use rekindle::tool::{ToolError, tool};
use rekindle::worker::{CancellationToken, Worker};
use rekindle::{
    Agent, Engine, ErrorKind, Event, Message, Result, ResumeOptions, RunReport, Session, SessionHeader, Status,
    async_trait, operations,
};
use rekindle_models::{Call, Script, ScriptedModel};
use rekindle_testkit::{Call as StoreCall, Hook, Hooked, Stop, Stopping, answer, at_every_await, cut};
use serde_json::json;

use crate::support::{Kind, Ledger, Of, World, records, state};

/// Has every call of a store take several polls, before and after it is made.
struct Slow;

#[async_trait]
impl Hook for Slow {
    async fn before(&self, _: StoreCall<'_>) -> Result<()> {
        pause().await;
        Ok(())
    }

    async fn after(&self, _: StoreCall<'_>) -> Result<()> {
        pause().await;
        Ok(())
    }
}

async fn pause() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

fn slow_engine(world: &World) -> Engine {
    world.engine_over(Arc::new(Hooked::new(world.store(), Slow)))
}

/// An agent that notes two things in the ledger and says so.
fn agent(ledger: &Ledger) -> Agent {
    let ledger = ledger.clone();
    let note = tool("note", "Notes.", move |call, of: Of| {
        let ledger = ledger.clone();
        async move {
            ledger.write(&format!("{} {}", of.what, call.idempotency_key()));
            Ok::<_, ToolError>("noted")
        }
    });
    let script = Script::new("m")
        .calls([Call::new("note", json!({"what": "a"}))])
        .calls([Call::new("note", json!({"what": "b"}))])
        .text("done");
    Agent::builder("clerk", ScriptedModel::new(script)).tool(note.writes().idempotent()).build().unwrap()
}

/// Brings a session to its end, wherever it stands.
async fn finished(agent: &Agent, session: &Session) -> RunReport {
    let resume = || agent.resume_with(session, ResumeOptions::new("tester"));
    let begun = match answer("resume", resume()).await {
        Err(error) if *error.kind() == ErrorKind::NotResumable => {
            match state(session.engine(), session.key()).await.status() {
                // Nothing of the turn is on record.
                Status::Idle => answer("start", agent.run("go", session)).await,
                status => panic!("{status}: {error}"),
            }
        }
        begun => begun,
    };
    answer("report", begun.unwrap().report()).await.unwrap()
}

#[tokio::test]
async fn events_that_are_asked_for_and_dropped_again_and_again_all_arrive() {
    for polls in 1..=6 {
        let world = World::new(Kind::Memory);
        let engine = slow_engine(&world);
        let session = engine.create("s").await.unwrap();
        let mut handle = agent(&world.ledger()).run("go", &session).await.unwrap();
        let mut seen = Vec::new();
        for tries in 0.. {
            assert!(tries < 100_000, "{polls}: no progress behind {:?}", seen.last());
            match cut(polls, handle.next_event()).await {
                Some(event) => match event.unwrap() {
                    Some(Event::Recorded { position, record, .. }) => seen.push((position.seq, record)),
                    Some(_) => {}
                    None => break,
                },
                None => tokio::task::yield_now().await,
            }
        }
        let report = answer("report", handle.report()).await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
        assert!(seen.iter().any(|(_, record)| matches!(record, Record::RunEnded(_))), "{:?}", seen.last());
        let first = seen.first().map_or(Seq(0), |(seq, _)| *seq);
        let all = records(&engine, session.key(), &report.branch).await;
        let expected: Vec<_> = all.into_iter().filter(|(seq, _)| *seq >= first).collect();
        assert_eq!(seen, expected[..seen.len()].to_vec(), "{polls}");
    }
}

#[tokio::test]
async fn a_start_that_is_dropped_at_any_await_leaves_a_session_that_goes_on() {
    let world = World::new(Kind::Memory);
    at_every_await(async |polls| {
        let (engine, ledger) = (slow_engine(&world), Ledger::new(world.directory.path().join(format!("l{polls}"))));
        let agent = agent(&ledger);
        let session = engine.create(&format!("s{polls}")).await.unwrap();
        let done = cut(polls, agent.run("go", &session)).await.map(|begun| begun.unwrap().detach());
        // What was begun and is not held pauses; a lease nobody gives back expires.
        world.pass_leases();
        let session = slow_engine(&world).open_session(&format!("s{polls}")).await.unwrap();
        let report = finished(&agent, &session).await;
        assert_eq!(report.text(), "done", "{polls}");
        assert!(ledger.counts().values().all(|count| *count <= 2), "{polls}: {:?}", ledger.counts());
        assert_eq!(ledger.counts().len(), 2, "{polls}: {:?}", ledger.counts());
        done.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_report_that_is_dropped_pauses_the_run_and_a_resume_goes_on() {
    let world = World::new(Kind::Memory);
    at_every_await(async |polls| {
        let (engine, ledger) = (slow_engine(&world), Ledger::new(world.directory.path().join(format!("r{polls}"))));
        let agent = agent(&ledger);
        let session = engine.create(&format!("r{polls}")).await.unwrap();
        let handle = agent.run("go", &session).await.unwrap();
        let done = cut(polls, handle.report()).await;
        if let Some(report) = done {
            assert_eq!(report.unwrap().text(), "done");
            return true;
        }
        world.pass_leases();
        let session = slow_engine(&world).open_session(&format!("r{polls}")).await.unwrap();
        if state(session.engine(), session.key()).await.status() != Status::Succeeded {
            assert_eq!(finished(&agent, &session).await.text(), "done", "{polls}");
        }
        assert_eq!(ledger.counts().len(), 2, "{polls}: {:?}", ledger.counts());
        false
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_is_dropped_at_any_await_loses_no_job() {
    let world = World::new(Kind::Memory);
    // Each await of a worker that waits for the next job is another one: some are enough.
    for polls in (1..60).chain((60..400).step_by(20)) {
        let (engine, ledger) = (slow_engine(&world), Ledger::new(world.directory.path().join(format!("w{polls}"))));
        let id = format!("w{polls}");
        let job = Enqueue::new(clerk(&engine, &id), "tester").input(JobInput::Message(Message::user("go")));
        operations::enqueue(&engine, &job).await.unwrap();
        let session = engine.open_session(&id).await.unwrap();
        let worker = |engine: Engine| Worker::builder(engine).work(agent(&ledger)).until_idle().build().unwrap();
        let _ = cut(polls, worker(engine).run(CancellationToken::new())).await;
        world.pass_leases();
        let report = answer("worker", worker(slow_engine(&world)).run(CancellationToken::new())).await;
        report.unwrap();
        assert_eq!(state(session.engine(), session.key()).await.status(), Status::Succeeded, "{polls}");
        assert_eq!(ledger.counts().len(), 2, "{polls}: {:?}", ledger.counts());
    }
}

fn clerk(engine: &Engine, id: &str) -> SessionHeader {
    let mut header = SessionHeader::new(engine.key(id).unwrap());
    header.agent = Some("clerk".to_owned());
    header
}

/// A process that dies at each call of the store while it begins a session and its first run.
#[tokio::test]
async fn what_a_process_leaves_that_died_while_it_began_is_picked_up() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        for (at, how) in (0..14).flat_map(|at| [(at, Stop::Before), (at, Stop::After)]) {
            let id = format!("s-{at}-{how:?}").to_lowercase();
            let ledger = Ledger::new(world.directory.path().join(&id));
            let agent = agent(&ledger);
            let dying = world.engine_over(Arc::new(Hooked::new(world.store(), Stopping::at_call(at, how))));
            if let Ok(session) = operations::begin(&dying, clerk(&dying, &id)).await
                && let Ok(handle) = agent.run("go", &session).await
            {
                let _ = handle.report().await;
            }
            world.pass_leases();
            let engine = world.engine();
            let session = match operations::begin(&engine, clerk(&engine, &id)).await {
                Ok(session) => session,
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::AlreadyExists, "{kind:?} {id}: {error}");
                    let found = engine.open_session(&id).await.unwrap();
                    assert!(!records(&engine, found.key(), &"main".parse().unwrap()).await.is_empty(), "{kind:?} {id}");
                    found
                }
            };
            if state(&engine, session.key()).await.status() != Status::Succeeded {
                assert_eq!(finished(&agent, &session).await.text(), "done", "{kind:?} {id}");
            }
            assert_eq!(ledger.counts().len(), 2, "{kind:?} {id}: {:?}", ledger.counts());
        }
    }
}

#[tokio::test]
async fn an_empty_session_of_another_definition_is_not_picked_up() {
    let world = World::new(Kind::Memory);
    let engine = world.engine();
    operations::begin(&engine, clerk(&engine, "a")).await.unwrap();
    operations::begin(&engine, clerk(&engine, "a")).await.unwrap();
    let mut other = clerk(&engine, "a");
    other.agent = Some("other".to_owned());
    assert_eq!(*operations::begin(&engine, other).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
}
