//! Runs whose ids are known before they begin: found at every moment, and one for each id.

use std::sync::Arc;

use rekindle::core::record::InboxMode;
use rekindle::message::Role;
use rekindle::model::ModelError;
use rekindle::operations::{self, At, ControlOptions, Enqueue, ForkOptions, GoOn, HistoryOptions, JobInput, RunPhase};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, Engine, ErrorKind, Json, RunId, Status};
use rekindle_models::{Script, ScriptedModel, Turn};
use rekindle_store::{Fault, FaultPlan, FaultyStore};

use crate::kit::{
    Kind, Mortal, Place, header, job, key, noting, on_each_store, open_gate, status, until, until_over, working,
};
use crate::support::messages;
use crate::wakes::{asking, parked};

on_each_store! {
    a_run_is_found_before_and_after_it_began
    each_message_with_a_run_of_its_own_has_one
    stopping_at_any_write_begins_the_run_once
    a_run_that_dies_is_found_where_it_went_on
    two_resumes_of_a_failed_run_are_one_run
}

fn run(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

fn echo(texts: &[&str]) -> Agent {
    let script = texts.iter().fold(Script::new("m"), |script, text| script.text(*text));
    Agent::builder("guide", ScriptedModel::new(script)).build().unwrap()
}

async fn phase(engine: &Engine, id: &str, of: &str) -> RunPhase {
    operations::run(engine, &key(engine, id), &run(of)).await.unwrap().phase
}

async fn a_run_is_found_before_and_after_it_began(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    let flow = job(&engine, "flow", "flow", "x").run(run("r-flow"));
    let agent = Enqueue::new(header(&engine, "agent", "guide"), "maria").message("hi").run(run("r-agent"));
    for job in [&flow, &agent] {
        let enqueued = operations::enqueue(&engine, job).await.unwrap();
        assert_eq!(enqueued.run, job.run);
        let progress = operations::run(&engine, &job.session, job.run.as_ref().unwrap()).await.unwrap();
        assert_eq!(progress.phase, RunPhase::Queued);
        assert!(progress.job.is_some());
    }
    let worker = place.worker().work(echo(&["hello"])).work(noting("flow", &ledger, &open_gate()));
    working(worker.until_idle()).end().await;
    let found = operations::run(&engine, &agent.session, &run("r-agent")).await.unwrap();
    assert_eq!((found.phase, found.latest), (RunPhase::Succeeded, run("r-agent")));
    assert_eq!(found.answer, Some(Json::from("hello")));
    assert_eq!(phase(&engine, "flow", "r-flow").await, RunPhase::Succeeded);
    let unknown = operations::run(&engine, &agent.session, &run("other")).await.unwrap_err();
    assert_eq!(*unknown.kind(), ErrorKind::NotFound);
}

async fn each_message_with_a_run_of_its_own_has_one(place: Place) {
    let engine = place.engine();
    let agent = |text: &str, id: &str| {
        let mut job = Enqueue::new(header(&engine, "a", "guide"), "maria").message(text).run(run(id));
        job.message = Some(rekindle::MessageId::new(text).unwrap());
        job
    };
    for (text, id) in [("one", "r1"), ("two", "r2"), ("three", "r3")] {
        operations::enqueue(&engine, &agent(text, id)).await.unwrap();
    }
    let taken = operations::enqueue(&engine, &agent("four", "r2")).await.unwrap_err();
    assert_eq!(*taken.kind(), ErrorKind::AlreadyExists);
    let cancelled =
        operations::cancel_run(&engine, &key(&engine, "a"), &run("r2"), &ControlOptions::new("m", "")).await;
    assert!(cancelled.unwrap().cancelling);
    working(place.worker().work(echo(&["1", "3", "4"])).until_idle()).end().await;
    let session = key(&engine, "a");
    let mut answers = Vec::new();
    for id in ["r1", "r2", "r3"] {
        let found = operations::run(&engine, &session, &run(id)).await.unwrap();
        answers.push((found.phase, found.answer.map(|answer| answer.as_str().to_owned())));
    }
    let (one, three) = ((RunPhase::Succeeded, Some("\"1\"".into())), (RunPhase::Succeeded, Some("\"3\"".into())));
    assert_eq!(answers, [one, (RunPhase::Cancelled, None), three]);
    let again = operations::enqueue(&engine, &agent("one", "r9")).await.unwrap();
    assert_eq!((again.repeated, again.run), (true, Some(run("r1"))));
    let mut other = agent("five", "r3");
    other.run = Some(run("r3"));
    assert_eq!(*operations::enqueue(&engine, &other).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

async fn stopping_at_any_write_begins_the_run_once(place: Place) {
    let plan = Arc::new(FaultPlan::default());
    let faulty = Engine::over(Arc::new(FaultyStore::new(place.store(), Arc::clone(&plan)))).unwrap();
    let engine = place.engine();
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        for call in 0.. {
            let id = format!("{fault:?}-{call}");
            let mut job = Enqueue::new(header(&engine, &id, "guide"), "maria").message("first").run(run(&id));
            job.message = Some(rekindle::MessageId::new("m1").unwrap());
            plan.fail_once_at(call, fault);
            let failed = operations::enqueue(&faulty, &job).await.is_err();
            plan.heal();
            assert_eq!(operations::enqueue(&faulty, &job).await.unwrap().run, Some(run(&id)));
            working(place.worker().work(echo(&["one"])).until_idle()).end().await;
            assert_eq!(messages(&engine, &job.session).await.len(), 2, "{id}");
            assert_eq!(phase(&engine, &id, &id).await, RunPhase::Succeeded, "{id}");
            if !failed {
                break;
            }
        }
    }
}

async fn a_run_that_dies_is_found_where_it_went_on(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    operations::enqueue(&engine, &job(&engine, "a", "flow", "x").run(run("r"))).await.unwrap();
    let mortal = Mortal::working(place.worker().work(noting("flow", &ledger, &gate)));
    until("the run", async || status(&engine, "a").await == Status::Running).await;
    assert_eq!(phase(&engine, "a", "r").await, RunPhase::Working);
    mortal.die();
    let hand = working(place.worker().work(noting("flow", &ledger, &open_gate())));
    until_over(&engine, "a", Status::Succeeded).await;
    hand.stop().await;
    let found = operations::run(&engine, &key(&engine, "a"), &run("r")).await.unwrap();
    assert_eq!(found.phase, RunPhase::Succeeded);
    assert_ne!(found.latest, run("r"));
    assert_eq!(ledger.lines(), ["x"]);
}

async fn two_resumes_of_a_failed_run_are_one_run(place: Place) {
    let engine = place.engine();
    let broken = || Turn::error(ModelError::fatal("no"));
    let agent = |script| Agent::builder("guide", ScriptedModel::new(script)).build().unwrap();
    let first = Enqueue::new(header(&engine, "a", "guide"), "maria").message("hi").run(run("r1"));
    operations::enqueue(&engine, &first).await.unwrap();
    working(place.worker().work(agent(Script::new("m").turn(broken()))).until_idle()).end().await;
    let failed = operations::run(&engine, &first.session, &run("r1")).await.unwrap();
    assert_eq!(failed.phase, RunPhase::Failed);
    let resume = |id: &str| GoOn { run: Some(run(id)), ..GoOn::new(key(&engine, "a"), "maria") };
    let (one, two) = (resume("r2"), resume("r3"));
    let (one, two) = tokio::join!(operations::go_on(&engine, &one), operations::go_on(&engine, &two));
    let (one, two) = (one.unwrap().job.run.unwrap(), two.unwrap().job.run.unwrap());
    assert_eq!(one, two);
    assert_eq!(operations::run(&engine, &first.session, &one).await.unwrap().phase, RunPhase::Queued);
    working(place.worker().work(echo(&["well"])).until_idle()).end().await;
    let found = operations::run(&engine, &first.session, &one).await.unwrap();
    assert_eq!((found.phase, found.answer), (RunPhase::Succeeded, Some(Json::from("well"))));
    // What its caller was told stays true.
    assert_eq!(phase(&engine, "a", "r1").await, RunPhase::Failed);
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_begins_does_nothing() {
    let place = Place::new(Kind::Memory);
    let (engine, ledger) = (place.engine(), place.ledger());
    operations::enqueue(&engine, &job(&engine, "a", "flow", "x").run(run("r1"))).await.unwrap();
    let mut second = Enqueue::existing(key(&engine, "a"), "maria").input(JobInput::Input(Json::from("y")));
    second.run = Some(run("r2"));
    operations::enqueue(&engine, &second).await.unwrap();
    let options = ControlOptions::new("maria", "not needed");
    for _ in 0..2 {
        assert!(operations::cancel_run(&engine, &key(&engine, "a"), &run("r1"), &options).await.unwrap().cancelling);
    }
    working(place.worker().work(noting("flow", &ledger, &open_gate())).until_idle()).end().await;
    assert_eq!(phase(&engine, "a", "r1").await, RunPhase::Cancelled);
    assert_eq!(phase(&engine, "a", "r2").await, RunPhase::Succeeded);
    assert_eq!(ledger.lines(), ["y"]);
    let over = operations::cancel_run(&engine, &key(&engine, "a"), &run("r2"), &options).await.unwrap();
    assert_eq!((over.phase, over.cancelling), (RunPhase::Succeeded, false));
}

#[tokio::test]
async fn going_back_is_a_run_on_a_branch_of_its_own() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    let mut first = Enqueue::new(header(&engine, "a", "guide"), "maria").message("one").run(run("r1"));
    operations::enqueue(&engine, &first).await.unwrap();
    working(place.worker().work(echo(&["1"])).until_idle()).end().await;
    let history = operations::history(&engine, &first.session, &HistoryOptions::default()).await.unwrap();
    let checkpoint = history.checkpoints.first().unwrap().checkpoint.id.clone();
    first = Enqueue::existing(first.session, "maria").message("two").run(run("r2"));
    operations::enqueue(&engine, &first).await.unwrap();
    let stranding = GoOn { checkpoint: Some(checkpoint.clone()), ..GoOn::new(first.session.clone(), "maria") };
    assert_eq!(*operations::go_on(&engine, &stranding).await.unwrap_err().kind(), ErrorKind::Unfinished);
    working(place.worker().work(echo(&["1", "2"])).until_idle()).end().await;
    let nothing = GoOn { checkpoint: Some(checkpoint.clone()), ..GoOn::new(first.session.clone(), "maria") };
    assert_eq!(*operations::go_on(&engine, &nothing).await.unwrap_err().kind(), ErrorKind::NotResumable);
    let back = GoOn {
        set: [("colour".to_owned(), Json::from("blue"))].into(),
        input: Some(JobInput::Message("other".into())),
        run: Some(run("r3")),
        ..nothing
    };
    let went = operations::go_on(&engine, &back).await.unwrap();
    working(place.worker().work(echo(&["1", "2b"])).until_idle()).end().await;
    let found = operations::run(&engine, &first.session, &run("r3")).await.unwrap();
    assert_eq!((found.phase, found.branch), (RunPhase::Succeeded, went.branch));
    assert_eq!(found.answer, Some(Json::from("2b")));
    let there = engine.journal().load(&first.session, None).await.unwrap().state;
    assert_eq!(there.register("memory/colour"), Some(&Json::from("blue")));
    let texts: Vec<_> = messages(&engine, &first.session).await.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["one", "1", "other", "2b"]);
    // The other line is where it was.
    let other = operations::run(&engine, &first.session, &run("r2")).await.unwrap();
    assert_eq!((other.phase, other.answer), (RunPhase::Succeeded, Some(Json::from("2"))));
}

#[tokio::test]
async fn a_message_cannot_claim_a_run_by_its_own_fields() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    let session = engine.create_with(header(&engine, "a", "guide")).await.unwrap();
    let mut message = rekindle::message::Message::user("hi");
    message.extra.insert("run".into(), "mine".into());
    operations::send(&engine, session.key(), message, InboxMode::Queue, "maria", None).await.unwrap();
    operations::enqueue(&engine, &Enqueue::existing(session.key().clone(), "maria")).await.unwrap();
    working(place.worker().work(echo(&["hello"])).until_idle()).end().await;
    let unknown = operations::run(&engine, session.key(), &run("mine")).await.unwrap_err();
    assert_eq!(*unknown.kind(), ErrorKind::NotFound);
    assert_eq!(messages(&engine, session.key()).await.last().unwrap().role, Role::Assistant);
}

#[tokio::test]
async fn a_run_on_a_line_that_was_left_says_so() {
    let place = Place::new(Kind::Memory);
    let engine = place.engine();
    let hand = working(place.worker().work(asking(WaitSpec::question("Which?"))));
    operations::enqueue(&engine, &job(&engine, "a", "asking", "x").run(run("r1"))).await.unwrap();
    parked(&engine, "a").await;
    hand.stop().await;
    let session = key(&engine, "a");
    let waiting = operations::run(&engine, &session, &run("r1")).await.unwrap();
    assert_eq!((waiting.phase, waiting.waits.len()), (RunPhase::Waiting, 1));
    let other = operations::fork(&engine, &session, &At::Latest, ForkOptions::default()).await.unwrap().branch;
    engine.journal().choose_branch(&session, &other).await.unwrap();
    let left = operations::run(&engine, &session, &run("r1")).await.unwrap();
    assert_eq!((left.phase, left.waits.len()), (RunPhase::Held, 0), "{}", left.reason);
}
