//! A plan of twelve steps that stops at every commit point, in each durability mode and on each
//! store, and goes on: the end is that of an unbroken run, every side effect happened as often as
//! its policy says, and no step that was completed is carried out again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rekindle::Durability;
use rekindle::core::record::WaitKind;
use rekindle::operations::{self, Answer, Settlement};
use rekindle::plan::{PlanResult, StepStatus};
use rekindle::tool::{Approval, Checked, FnTool, ToolError, ToolOutput, tool};
use rekindle::{Engine, Error, Json, Plan, Session, SessionKey, Status};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::{Value, json};

use crate::common::{keys, noting, runs, step};
use crate::kit::quick;
use crate::support::{Kind, Ledger, Of, World, on_every_store, state};

/// Side effects that may happen once only, whoever must be asked.
const ONCE: [&str; 4] = ["deploy", "email", "launch", "post"];
/// Side effects that may be repeated with the same key.
const KEYED: [&str; 3] = ["charge", "append", "insert"];

fn check_email(ledger: &Ledger) -> FnTool<Of> {
    let happened = ledger.clone();
    noting(ledger, "email").writes().check(move |call, of: Of| {
        let count = happened.count(&format!("email {}", call.idempotency_key()));
        async move { Ok(if count > 0 { Checked::Happened(Json::from(of.what.as_str())) } else { Checked::DidNotHappen }) }
    })
}

fn flaky(ledger: &Ledger) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool("flaky", "Fails twice.", move |call, of: Of| {
        let line = format!("flaky {}", call.idempotency_key());
        ledger.write(&line);
        let enough = ledger.count(&line) >= 3;
        async move { if enough { Ok(of.what) } else { Err(ToolError::retry("not yet")) } }
    })
}

fn remember(ledger: &Ledger) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool("remember", "Remembers.", move |call, of: Of| {
        ledger.write(&format!("remember {}", call.idempotency_key()));
        let output = ToolOutput::json(Json::from("ok")).and_remember("colour", Json::from(of.what.as_str()));
        async move { Ok::<_, ToolError>(output) }
    })
}

/// Fan-out behind `read`, three layers, fan-in at `join`.
fn diamond(ledger: &Ledger, durability: Durability) -> Plan {
    Plan::builder("diamond")
        .durability(durability)
        .parallel(4)
        .tool(noting(ledger, "note"))
        .tool(noting(ledger, "charge").writes().idempotent())
        .tool(noting(ledger, "insert").writes().idempotent().concurrency(1))
        .tool(check_email(ledger))
        .tool(noting(ledger, "deploy").writes().needs_approval(Approval::default()))
        .tool(noting(ledger, "launch").writes().never_again())
        .tool(noting(ledger, "post").writes())
        .tool(tool("broken", "Fails.", async |_, of: Of| Err::<(), _>(ToolError::failed(format!("no {}", of.what)))))
        .tool(flaky(ledger))
        .tool(remember(ledger))
        .step(step("read", "note", "a"))
        .step(step("charge", "charge", "five for ${steps.read.output}").after(["read"]))
        .step(step("email", "email", "bob").after(["read"]))
        .step(step("deploy", "deploy", "${query}").after(["read"]))
        .step(step("broken", "broken", "y").after(["read"]).optional())
        .step(step("launch", "launch", "rocket").after(["charge"]))
        .step(step("append", "insert", "1").after(["charge"]))
        .step(step("insert", "insert", "2").after(["charge"]))
        .step(step("flaky", "flaky", "${steps.email.output}").after(["charge", "email"]).retry(quick(5)))
        .step(step("remember", "remember", "blue").after(["deploy", "flaky"]))
        .step(step("post", "post", "${context.colour} ${steps.flaky.output}").after(["remember", "insert"]))
        .step(step("join", "note", "${steps.post.output}, ${context.colour}").after(["post", "append", "launch"]))
        .build()
        .unwrap()
}

/// Answers whatever the session waits for, as a person would who looks at the ledger.
async fn answer(engine: &Engine, session: &SessionKey, ledger: &Ledger) {
    let waits: Vec<_> = state(engine, session).await.waits().map(|wait| wait.opened.clone()).collect();
    assert!(!waits.is_empty(), "a waiting session has a wait");
    for wait in waits {
        let happened = runs(ledger, "post") > 0;
        let effect = wait.effect.as_ref().unwrap().as_str();
        let answer = match (wait.kind, effect, happened) {
            (WaitKind::Approval, ..) => Answer::approve(wait.wait, wait.digest, "maria"),
            (_, "p1.deploy", _) => found(wait.wait, runs(ledger, "deploy") > 0, "go"),
            (_, "p1.post", happened) => found(wait.wait, happened, "blue bob"),
            other => panic!("nobody should be asked about {other:?}"),
        };
        operations::answer(engine, session, &answer).await.unwrap();
    }
}

fn found(wait: rekindle::WaitId, happened: bool, result: &str) -> Answer {
    let value = match happened {
        true => json!({ "action": "done", "result": result }),
        false => json!({ "action": "retry" }),
    };
    Answer::value(wait, Json::from(value), "maria")
}

/// Settles the one call that must never be made again, by what the ledger says.
async fn settle(engine: &Engine, session: &SessionKey, ledger: &Ledger, error: &Error) {
    assert_eq!(error.code(), "RK0022", "{error:?}");
    assert!(error.next_step().contains("`p1.launch"), "{}", error.next_step());
    let state = state(engine, session).await;
    let open = state.open_effects().find(|open| open.intent.name == "launch").unwrap();
    let settlement = match runs(ledger, "launch") > 0 {
        true => Settlement::Ok(Json::from("rocket")),
        false => Settlement::Failed("it never left the ground".into()),
    };
    let effect = open.intent.effect.clone();
    operations::settle(engine, session, &effect, &settlement, "maria", "looked").await.unwrap();
}

async fn run_once(plan: &Plan, session: &Session) -> Result<PlanResult, Error> {
    let begun = state(session.engine(), session.key()).await.run().is_some();
    if begun { plan.resume_once(session).await } else { plan.run_once("go", session).await }
}

async fn is_done(engine: &Engine, session: &SessionKey) -> bool {
    state(engine, session).await.status() == Status::Succeeded
}

/// Runs or resumes until the plan is done, with everybody's help. Each time as a new process.
async fn to_the_end(world: &World, ledger: &Ledger, durability: Durability) {
    for _ in 0..12 {
        let engine = world.engine();
        let session = engine.open_or_create("s").await.unwrap();
        if is_done(&engine, session.key()).await {
            return;
        }
        if state(&engine, session.key()).await.status() == Status::Waiting {
            answer(&engine, session.key(), ledger).await;
        }
        if let Err(error) = run_once(&diamond(ledger, durability), &session).await {
            settle(&engine, session.key(), ledger, &error).await;
        }
    }
    panic!("it never ends");
}

/// What a plan comes to, without what may differ: times and order.
#[derive(Debug, PartialEq)]
struct Outcome {
    statuses: Vec<(String, StepStatus)>,
    results: BTreeMap<String, Value>,
    context: BTreeMap<String, Value>,
}

async fn outcome(world: &World, ledger: &Ledger) -> Outcome {
    let engine = world.engine();
    let state = state(&engine, &engine.key("s").unwrap()).await;
    assert_eq!((state.waits().count(), state.open_effects().count()), (0, 0));
    let seen = diamond(ledger, Durability::Sync).state(&state).unwrap();
    assert_eq!(seen.query, "go");
    let results: BTreeMap<_, _> =
        seen.results.iter().map(|result| (result.step_id.clone(), result.output.to_value().unwrap())).collect();
    assert_eq!(results.len(), seen.results.len(), "one result for each step: {:?}", seen.results);
    Outcome {
        statuses: seen.steps.iter().map(|step| (step.id.clone(), step.status)).collect(),
        results,
        context: seen.context.iter().map(|(key, value)| (key.clone(), value.to_value().unwrap())).collect(),
    }
}

/// What the ledger must say, whatever happened on the way.
fn check_ledger(ledger: &Ledger, durability: Durability, context: &str) {
    for step in KEYED.into_iter().chain(ONCE) {
        let distinct: BTreeSet<_> = keys(ledger, step).into_iter().collect();
        assert_eq!(distinct.len(), 1, "{context}: {step} with one key, whoever repeats it: {:?}", ledger.lines());
    }
    // With `exit` nothing is on disk before the end, so after a crash everything may be done again.
    for step in ONCE.into_iter().filter(|_| durability != Durability::Exit) {
        assert_eq!(runs(ledger, step), 1, "{context}: {step} exactly once: {:?}", ledger.lines());
    }
}

/// The steps that are completed on record, with how often each was carried out.
async fn completed(world: &World, ledger: &Ledger) -> Vec<(String, usize)> {
    let engine = world.engine();
    let state = state(&engine, &engine.key("s").unwrap()).await;
    let seen = diamond(ledger, Durability::Sync).state(&state).unwrap();
    let done = seen.steps.into_iter().filter(|step| step.status == StepStatus::Completed);
    done.map(|step| (step.id.clone(), runs(ledger, &step.id))).collect()
}

/// Stops a run, or a resume, at the mutating call with that number. Whether there was one.
async fn crash_at(world: &World, durability: Durability, call: u64, fault: Fault, ledger: &Ledger) -> bool {
    let plan = Arc::new(FaultPlan::default());
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    let session = world.engine().open_or_create("s").await.unwrap();
    let session = engine.open_session(session.key().id.as_str()).await.unwrap();
    let diamond = diamond(ledger, durability);
    match state(&engine, session.key()).await.status() {
        Status::Succeeded => return false,
        Status::Waiting => answer(&world.engine(), session.key(), ledger).await,
        _ => {}
    }
    plan.fail_from(call, fault);
    let mut ended = run_once(&diamond, &session).await;
    if ended.is_ok() && state(&engine, session.key()).await.status() == Status::Waiting {
        answer(&world.engine(), session.key(), ledger).await;
        ended = run_once(&diamond, &session).await;
    }
    let crashed = plan.calls() > call;
    if let Err(error) = &ended {
        assert!(["RK0016", "RK0017", "RK0018", "RK0022"].contains(&error.code()), "{error:?}");
    }
    world.pass_leases();
    crashed
}

async fn unbroken(kind: Kind, durability: Durability) -> Outcome {
    let world = World::new(kind);
    to_the_end(&world, &world.ledger(), durability).await;
    check_ledger(&world.ledger(), durability, "unbroken");
    let outcome = outcome(&world, &world.ledger()).await;
    assert_eq!(outcome.results.len(), 11, "{outcome:#?}");
    assert_eq!(outcome.results["join"], json!("blue bob, blue"));
    outcome
}

async fn stop_everywhere(kind: Kind, durability: Durability) {
    let expected = unbroken(kind, durability).await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let calls = stop_at_each(async |call| stop_at(kind, durability, fault, &[call], &expected).await).await;
        let least = if durability == Durability::Sync { 25 } else { 12 };
        assert!(calls > least || durability == Durability::Exit, "{kind:?} {durability:?}: only {calls} commit points");
    }
}

/// Stops at one call after the other, some side by side, until one came too late.
async fn stop_at_each(stop: impl AsyncFn(u64) -> bool) -> u64 {
    let mut first = 0;
    loop {
        let crashed = futures_util::future::join_all((first..first + 10).map(|call| stop(call))).await;
        if let Some(late) = crashed.iter().position(|crashed| !crashed) {
            return first + late as u64;
        }
        first += 10;
    }
}

/// Stops as often as there are numbers, and goes on. Whether the last stop was in time.
async fn stop_at(kind: Kind, durability: Durability, fault: Fault, calls: &[u64], expected: &Outcome) -> bool {
    let context = format!("{kind:?} {durability:?} {fault:?} at calls {calls:?}");
    let world = World::new(kind);
    let ledger = world.ledger();
    let mut crashed = false;
    for call in calls {
        crashed = crash_at(&world, durability, *call, fault, &ledger).await;
    }
    let done = completed(&world, &ledger).await;
    // On disk, whoever goes on may write as it likes: that is quicker.
    let quicker = kind != Kind::Memory && durability == Durability::Sync;
    to_the_end(&world, &ledger, if quicker { Durability::Async } else { durability }).await;
    for (step, count) in done {
        assert_eq!(runs(&ledger, &step), count, "{context}: {step} was completed: {:?}", ledger.lines());
    }
    assert_eq!(outcome(&world, &ledger).await, *expected, "{context}");
    check_ledger(&ledger, durability, &context);
    crashed
}

/// A process that dies, and the one that goes on dies too, wherever.
async fn stop_twice(durability: Durability) {
    let expected = unbroken(Kind::Memory, durability).await;
    for (first, fault) in [(6, Fault::Unreachable), (13, Fault::ReplyLost)] {
        let stop = async |second| stop_at(Kind::Memory, durability, fault, &[first, second], &expected).await;
        let calls = stop_at_each(stop).await;
        assert!(calls > 0, "{durability:?} {fault:?} at call {first}: nothing was left to stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_twice_sync() {
    stop_twice(Durability::Sync).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_twice_async() {
    stop_twice(Durability::Async).await;
}

on_every_store!(stop_everywhere);
