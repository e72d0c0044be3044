//! An agent that stops at every commit point, in each durability mode and on each store, and goes
//! on: the end is that of an unbroken run, every side effect happened as often as its policy says,
//! and no answer on record was asked for again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{Decision, Extra, InboxAnswer, OutcomeStatus, RunOutcome, WaitKind};
use rekindle::tool::{Approval, Checked, Retries, ToolError, ToolOutput, tool};
use rekindle::{
    Agent, BranchId, Engine, Frequency, Json, Message, MessageId, ResumeOptions, RunReport, Session, SessionKey,
};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::json;

use crate::support::{Kind, Ledger, Of, World, messages, on_every_store, records, state};

/// Eight iterations with parallel, sequential, failing, slow and streaming parts, and a wait.
fn script() -> Script {
    let of = |what: &str| json!({ "what": what });
    Script::new("m")
        .calls([Call::new("read", of("a")), Call::new("read", of("b")), Call::new("charge", of("five"))])
        .calls([Call::new("append", of("1")), Call::new("append", of("2"))])
        .calls([Call::new("flaky", of("x")), Call::new("charge", of("seven"))])
        .turn(Turn::call("broken", of("y")).with_text("now something that fails, told in pieces").streamed(6))
        .calls([Call::new("slow", of("z")), Call::new("email", of("bob"))])
        .calls([Call::new("deploy", of("production"))])
        .calls([Call::new("remember", of("colour")), Call::new("nonsense", of("?"))])
        .turn(Turn::text("all of it is done, and told in many small pieces").streamed(5))
}

fn agent(ledger: &Ledger, durability: Durability, model: ScriptedModel) -> Agent {
    let writer = |name: &'static str| {
        let ledger = ledger.clone();
        tool(name, "Writes.", move |call, of: Of| {
            let ledger = ledger.clone();
            async move {
                ledger.write(&format!("{name} {} {}", of.what, call.idempotency_key()));
                Ok::<_, ToolError>(format!("{name} {}", of.what))
            }
        })
        .writes()
    };
    let happened = ledger.clone();
    let email = writer("email").check(move |call, of: Of| {
        let line = format!("email {} {}", of.what, call.idempotency_key());
        let count = happened.count(&line);
        async move {
            Ok(if count > 0 {
                Checked::Happened(Json::from(format!("email {}", of.what).as_str()))
            } else {
                Checked::DidNotHappen
            })
        }
    });
    let flaky = ledger.clone();
    let flaky = tool("flaky", "Fails twice.", move |call, of: Of| {
        let flaky = flaky.clone();
        async move {
            let line = format!("tried {} {}", of.what, call.idempotency_key());
            flaky.write(&line);
            if flaky.count(&line) < 3 { Err(ToolError::retry("not yet")) } else { Ok(of.what) }
        }
    })
    .retries(Retries { attempts: 5, first_pause: Duration::from_millis(1), ..Retries::default() });
    Agent::builder_with("worker", Arc::new(model))
        .durability(durability)
        .checkpoints(Frequency::PerIteration)
        .partials(8, Duration::from_secs(60))
        .tool(tool("read", "Reads.", async |_, of: Of| Ok::<_, ToolError>(of.what)))
        .tool(tool("broken", "Fails.", async |_, of: Of| Err::<(), _>(ToolError::failed(format!("no {}", of.what)))))
        .tool(tool("slow", "Takes its time.", async |_, of: Of| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok::<_, ToolError>(of.what)
        }))
        .tool(tool("remember", "Remembers.", async |_, of: Of| {
            Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember(of.what, Json::from("blue")))
        }))
        .tool(writer("charge").idempotent())
        .tool(writer("append").sequential().idempotent())
        .tool(writer("deploy").needs_approval(Approval::default()))
        .tool(email)
        .tool(flaky)
        .build()
        .unwrap()
}

/// Answers whatever the session waits for, as a person would who looks at the ledger.
async fn answer(engine: &Engine, session: &SessionKey, ledger: &Ledger) {
    let state = state(engine, session).await;
    let waits: Vec<_> = state.waits().map(|wait| wait.opened.clone()).collect();
    assert!(!waits.is_empty(), "a waiting session has a wait");
    for wait in waits {
        let approval = wait.kind == WaitKind::Approval;
        let deployed = ledger.lines().iter().any(|line| line.starts_with("deploy production "));
        let value = match (approval, deployed) {
            (true, _) => Json::null(),
            (false, true) => Json::from(json!({ "action": "done", "result": "deploy production" })),
            (false, false) => Json::from(json!({ "action": "retry" })),
        };
        let answer = InboxAnswer {
            message: MessageId::generate(engine.journal().ids(), engine.journal().clock().now()),
            wait: wait.wait,
            decision: if approval { Decision::Approve } else { Decision::Answer },
            author: "maria".into(),
            credential: None,
            claimed: false,
            value: Some(value),
            arguments: None,
            digest: wait.digest,
            reason: String::new(),
            extra: Extra::new(),
        };
        engine.journal().send(session, &[answer.into()]).await.unwrap();
    }
}

/// Runs or resumes until the turn is over, answering waits.
async fn to_the_end(world: &World, ledger: &Ledger, durability: Durability, model: &ScriptedModel) -> RunReport {
    for _ in 0..10 {
        let engine = world.engine();
        let session = engine.open_or_create("s").await.unwrap();
        let agent = agent(ledger, durability, model.clone());
        let begun = state(&engine, session.key()).await.run().is_some();
        let input = if begun { Vec::new() } else { vec![Message::user("go")] };
        let handle = agent.run_with(input, &session, ResumeOptions::default()).await.unwrap();
        let report = handle.report().await.unwrap();
        match report.outcome {
            RunOutcome::Waiting => answer(&engine, session.key(), ledger).await,
            _ => return report,
        }
    }
    panic!("it never ends");
}

/// What a run comes to, without what may differ: ids and times.
type Outcome = (Vec<Message>, Vec<(String, serde_json::Value)>);

async fn outcome(engine: &Engine, session: &SessionKey) -> Outcome {
    let state = state(engine, session).await;
    let registers = state.registers().map(|(key, json)| {
        let mut value = json.to_value().unwrap();
        for spent in ["turn", "session"] {
            if let Some(spent) = value.get_mut(spent).and_then(|spent| spent.as_object_mut()) {
                spent.remove("active_micros");
            }
        }
        (key.to_string(), value)
    });
    let registers = registers.collect();
    assert_eq!(state.waits().count(), 0);
    assert_eq!(state.open_effects().count(), 0);
    (messages(engine, session).await, registers)
}

/// What the ledger must say, whatever happened on the way: the lines without their keys.
fn check_ledger(ledger: &Ledger, durability: Durability, context: &str) {
    let lines = ledger.lines();
    let once = |prefix: &str| {
        let keys: Vec<_> = lines.iter().filter(|line| line.starts_with(prefix)).collect();
        let distinct: BTreeSet<_> = keys.iter().collect();
        (keys.len(), distinct.len())
    };
    // Nothing is on disk before the end, so after a crash everything may be done again.
    let at_most = |count: usize| durability == Durability::Exit || count == 1;
    for what in ["charge five", "charge seven", "append 1", "append 2"] {
        let (count, distinct) = once(&format!("{what} "));
        assert_eq!(distinct, 1, "{context}: {what} with one key, whoever repeats it: {lines:?}");
        assert!(count >= 1, "{context}: {what} happened: {lines:?}");
    }
    for what in ["email bob", "deploy production"] {
        let (count, distinct) = once(&format!("{what} "));
        assert!(count >= 1 && at_most(count) && distinct == 1, "{context}: {what} exactly once: {lines:?}");
    }
}

/// The keys of model answers that are on record.
async fn recorded_answers(engine: &Engine, session: &SessionKey) -> BTreeSet<String> {
    let records = records(engine, session, &BranchId::main()).await;
    let mut keys = std::collections::BTreeMap::new();
    let mut answered = BTreeSet::new();
    for (_, record) in &records {
        match record {
            Record::EffectIntent(intent) if intent.effect.as_str().starts_with('m') => {
                keys.insert(intent.effect.clone(), intent.idempotency_key.clone());
            }
            Record::EffectOutcome(outcome) if outcome.status == OutcomeStatus::Ok => {
                answered.extend(keys.get(&outcome.effect).cloned());
            }
            _ => {}
        }
    }
    answered
}

/// Stops the first run at the mutating call with that number. Whether there was one.
async fn crash_at(world: &World, durability: Durability, call: u64, fault: Fault, ledger: &Ledger) -> bool {
    let plan = Arc::new(FaultPlan::default());
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    let session: Session = world.engine().create("s").await.unwrap();
    let session = engine.open_session(session.key().id.as_str()).await.unwrap();
    let agent = agent(ledger, durability, ScriptedModel::new(script()));
    plan.fail_from(call, fault);
    let mut ended = match agent.run("go", &session).await {
        Ok(handle) => handle.report().await,
        Err(error) => Err(error),
    };
    if matches!(&ended, Ok(report) if report.outcome == RunOutcome::Waiting) {
        answer(&world.engine(), session.key(), ledger).await;
        ended = match agent.resume(&session).await {
            Ok(handle) => handle.report().await,
            Err(error) => Err(error),
        };
    }
    let crashed = plan.calls() > call;
    if crashed && let Err(error) = &ended {
        assert!(["RK0016", "RK0017", "RK0018"].contains(&error.code()), "{error:?}");
    }
    crashed
}

async fn stop_everywhere(kind: Kind, durability: Durability) {
    let unbroken = World::new(kind);
    to_the_end(&unbroken, &unbroken.ledger(), durability, &ScriptedModel::new(script())).await;
    let engine = unbroken.engine();
    let key = engine.key("s").unwrap();
    let expected = outcome(&engine, &key).await;
    assert_eq!(expected.0.len(), 22, "{:#?}", expected.0);
    check_ledger(&unbroken.ledger(), durability, "unbroken");
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut call = 0;
        loop {
            let context = format!("{kind:?} {durability:?} {fault:?} at call {call}");
            let world = World::new(kind);
            let ledger = world.ledger();
            let crashed = crash_at(&world, durability, call, fault, &ledger).await;
            world.pass_leases();
            let engine = world.engine();
            let recorded = recorded_answers(&engine, &key).await;
            let model = ScriptedModel::new(script());
            if !state(&engine, &key).await.status().seen(false).is_unfinished() && !crashed {
                break;
            }
            if state(&engine, &key).await.status().seen(false) != rekindle::Status::Succeeded {
                to_the_end(&world, &ledger, durability, &model).await;
            }
            assert_eq!(outcome(&engine, &key).await, expected, "{context}");
            check_ledger(&ledger, durability, &context);
            for request in model.requests() {
                assert!(!recorded.contains(&request.idempotency_key), "{context}: asked again: {request:?}");
            }
            call += 1;
        }
        assert!(call > 8 || durability == Durability::Exit, "{kind:?} {durability:?}: only {call} commit points");
    }
}

/// Stops a resume at the mutating call with that number. Whether there was one.
async fn crash_resume_at(world: &World, durability: Durability, call: u64, fault: Fault, ledger: &Ledger) -> bool {
    let plan = Arc::new(FaultPlan::default());
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    let session = engine.open_session("s").await.unwrap();
    let agent = agent(ledger, durability, ScriptedModel::new(script()));
    if state(&engine, session.key()).await.status() == rekindle::Status::Waiting {
        answer(&world.engine(), session.key(), ledger).await;
    }
    plan.fail_from(call, fault);
    let begun = state(&engine, session.key()).await.run().is_some();
    let input = if begun { Vec::new() } else { vec![Message::user("go")] };
    if let Ok(handle) = agent.run_with(input, &session, ResumeOptions::default()).await {
        let _ = handle.report().await;
    }
    plan.calls() > call
}

/// A process that dies, and the one that goes on dies too, wherever.
async fn stop_twice(durability: Durability) {
    let unbroken = World::new(Kind::Memory);
    to_the_end(&unbroken, &unbroken.ledger(), durability, &ScriptedModel::new(script())).await;
    let key = unbroken.engine().key("s").unwrap();
    let expected = outcome(&unbroken.engine(), &key).await;
    for first in (2..32).step_by(4) {
        for fault in [Fault::Unreachable, Fault::ReplyLost] {
            let mut second = 0;
            while stop_at(durability, fault, (first, second), &key, &expected).await {
                second += 1;
            }
            assert!(second > 0, "{durability:?} {fault:?} at call {first}: nothing was left to stop");
        }
    }
}

/// Stops a run and then its resume, and goes on. Whether the resume was still under way.
async fn stop_at(
    durability: Durability,
    fault: Fault,
    (first, second): (u64, u64),
    key: &SessionKey,
    expected: &Outcome,
) -> bool {
    let context = format!("{durability:?} {fault:?} at call {first}, then at {second}");
    let world = World::new(Kind::Memory);
    let ledger = world.ledger();
    crash_at(&world, durability, first, fault, &ledger).await;
    world.pass_leases();
    let crashed = crash_resume_at(&world, durability, second, fault, &ledger).await;
    world.pass_leases();
    if state(&world.engine(), key).await.status().seen(false) != rekindle::Status::Succeeded {
        to_the_end(&world, &ledger, durability, &ScriptedModel::new(script())).await;
    }
    assert_eq!(outcome(&world.engine(), key).await, *expected, "{context}");
    check_ledger(&ledger, durability, &context);
    crashed
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
