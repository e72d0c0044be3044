//! A graph that stops at every commit point, in each durability mode and on each store, and goes
//! on: the end is that of an unbroken run, every side effect happened as often as its policy says,
//! no completed node ran again, and no answer on record was asked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{EffectKind, OutcomeStatus, RunOutcome};
use rekindle::graph::{Condition, EdgeSpec, GraphInput, GraphState, Merge, NodeSpec};
use rekindle::operations::{self, Answer};
use rekindle::tool::{Checked, FnTool, ToolError, tool};
use rekindle::{
    Agent, BranchId, Engine, Graph, GraphBuilder, Json, Message, ResumeOptions, RunReport, SessionKey, Status,
};
use rekindle_models::{Call, Script, ScriptedModel};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::{Value, json};

use crate::kit::{Given, node, noting, noting_then, quick};
use crate::support::{Kind, Ledger, World, on_every_store, records, state};

fn script() -> Script {
    let set = |key: &str, value: Value| Call::new("set_output", json!({ "key": key, "value": value }));
    Script::new("m")
        .calls([Call::new("note", json!({ "what": "a" })), set("title", json!("Rain"))])
        .calls([set("body", json!({ "words": 3 }))])
        .text("it is written")
}

/// Eleven nodes: a cycle, a fan-out that meets, an agent, a router, a wait, calls in doubt.
fn graph(ledger: &Ledger, durability: Durability, model: &ScriptedModel) -> Graph {
    let draft = |given: &Given| json!(given["version"].as_i64().unwrap_or_default() + 1);
    let writer =
        Agent::builder_with("writer", Arc::new(model.clone())).tool(noting(ledger, "note").writes().idempotent());
    let builder = Graph::builder("everything")
        .durability(durability)
        .memory("version", 0)
        .memory("notes", json!(["first"]))
        .tool(noting_then(ledger, "draft", draft))
        .tool(noting(ledger, "charge").writes().idempotent())
        .tool(email(ledger))
        .tool(flaky(ledger))
        .tool(noting(ledger, "join"))
        .tool(noting(ledger, "deploy").writes())
        .tool(noting(ledger, "done"))
        .agent(writer.build().unwrap())
        .reducer("sum", |before, values| {
            Ok(json!(before.into_iter().chain(values).filter_map(Value::as_i64).sum::<i64>()))
        })
        .router("by_verdict", |memory| {
            let again = memory.get::<String>("verdict").unwrap().is_none_or(|verdict| verdict != "yes");
            if again { "draft".into() } else { "done".into() }
        });
    edges(nodes(builder)).build().unwrap()
}

fn nodes(builder: GraphBuilder) -> GraphBuilder {
    builder
        .node(node("draft").with("version", "${memory.version}").reads(["version"]).save("version", ""))
        .node(NodeSpec::router("judge"))
        .node(NodeSpec::tool("fan", "charge").fan_out("join"))
        .node(NodeSpec::tool("left", "email").save("notes", "/note").save("total", "/cost"))
        .node(NodeSpec::tool("right", "flaky").retry(quick(5)).save("notes", "/note").save("total", "/cost"))
        .node(
            NodeSpec::agent("write", "writer", "Write version ${memory.version}.")
                .reads(["version"])
                .writes(["title", "body"]),
        )
        .node(node("join").merge("notes", Merge::Append).merge("total", Merge::Reducer("sum".into())))
        .node(NodeSpec::question("ask", "Publish `${memory.title}`?").reads(["title"]).writes(["verdict"]))
        .node(NodeSpec::tool("ship", "deploy").with("notes", "${memory.notes}").reads(["notes"]))
        .node(NodeSpec::router("route").reads(["verdict"]).chosen_by("by_verdict"))
        .node(node("done"))
}

fn edges(builder: GraphBuilder) -> GraphBuilder {
    builder
        .path(["draft", "judge"])
        .edge(EdgeSpec::new("judge", "draft").when(Condition::memory("version").less_than(3)))
        .edge(EdgeSpec::new("judge", "fan").or_else())
        .path(["fan", "left", "join"])
        .path(["fan", "right", "join"])
        .path(["fan", "write", "join"])
        .path(["join", "ask", "ship", "route"])
        .path(["route", "draft"])
        .path(["route", "done"])
}

fn email(ledger: &Ledger) -> FnTool<Given> {
    let happened = ledger.clone();
    let sent = || json!({ "note": "sent", "cost": 2 });
    noting_then(ledger, "email", move |_| sent()).writes().check(move |call, _: Given| {
        let count = happened.count(&format!("email {}", call.idempotency_key()));
        async move { Ok(if count > 0 { Checked::Happened(Json::from(sent())) } else { Checked::DidNotHappen }) }
    })
}

fn flaky(ledger: &Ledger) -> FnTool<Given> {
    let ledger = ledger.clone();
    tool("flaky", "Fails twice.", move |call, _: Given| {
        let ledger = ledger.clone();
        async move {
            let line = format!("tried {}", call.idempotency_key());
            ledger.write(&line);
            match ledger.count(&line) < 3 {
                true => Err(ToolError::retry("not yet")),
                false => Ok(rekindle::tool::ToolOutput::json(Json::from(json!({ "note": ["a", "b"], "cost": 3 })))),
            }
        }
    })
}

/// Answers whatever the session waits for, as a person would who looks at the ledger.
async fn answer(engine: &Engine, session: &SessionKey, ledger: &Ledger) {
    let waits: Vec<_> = state(engine, session).await.waits().map(|wait| wait.opened.clone()).collect();
    assert!(!waits.is_empty(), "a waiting session has a wait");
    for wait in waits {
        let deployed = ledger.lines().iter().any(|line| line.starts_with("deploy "));
        let value = match (wait.prompt.starts_with("Nobody knows"), deployed) {
            (false, _) => json!("yes"),
            (true, true) => json!({ "action": "done", "result": "deploy" }),
            (true, false) => json!({ "action": "retry" }),
        };
        let answer = Answer::value(wait.wait, Json::from(value), "maria");
        operations::answer(engine, session, &answer).await.unwrap();
    }
}

/// Runs or resumes until the graph has come to its end, answering waits.
async fn to_the_end(world: &World, durability: Durability, model: &ScriptedModel) -> RunReport {
    let ledger = world.ledger();
    for _ in 0..10 {
        let engine = world.engine();
        let session = engine.open_or_create("s").await.unwrap();
        let report = run(&engine, &graph(&ledger, durability, model)).await.unwrap();
        match report.outcome {
            RunOutcome::Waiting => answer(&engine, session.key(), &ledger).await,
            RunOutcome::Succeeded => return report,
            _ => panic!("{report:?}"),
        }
    }
    panic!("it never ends");
}

/// Starts the graph, or goes on with it.
async fn run(engine: &Engine, graph: &Graph) -> rekindle::Result<RunReport> {
    let session = engine.open_session("s").await?;
    let begun = state(engine, session.key()).await.run().is_some();
    let handle = match begun {
        true => graph.resume_with(&session, ResumeOptions::default()).await?,
        false => graph.run(GraphInput::new(), &session).await?,
    };
    handle.report().await
}

/// What a run comes to, without what may differ: ids, times and tries.
#[derive(Debug, PartialEq)]
struct Outcome {
    graph: Value,
    conversations: BTreeMap<String, Vec<Message>>,
    registers: Vec<(String, Value)>,
}

async fn outcome(engine: &Engine, session: &SessionKey) -> Outcome {
    let state = state(engine, session).await;
    assert_eq!(state.waits().count(), 0);
    assert_eq!(state.open_effects().count(), 0);
    let mut graph = GraphState::of(&state).unwrap();
    graph.path.sort_by_key(|visited| visited.step);
    graph.path.iter_mut().for_each(|visited| visited.duration_ms = 0);
    graph.metrics = Default::default();
    let said = std::mem::take(&mut graph.conversations);
    let without_id = |message: Message| Message { id: None, ..message };
    let conversations =
        said.into_iter().map(|(node, said)| (node, said.into_iter().map(without_id).collect())).collect();
    // An answer that was paid for and lost stays counted, so what was spent may be more.
    let differs = |key: &str| key.starts_with("metrics/") || key == "budget";
    let registers = state.registers().filter(|(key, _)| !differs(key.as_str()));
    let registers = registers.map(|(key, json)| (key.to_string(), json.to_value().unwrap()));
    Outcome { registers: registers.collect(), graph: serde_json::to_value(&graph).unwrap(), conversations }
}

/// What the ledger must say, whatever happened on the way.
fn check_ledger(ledger: &Ledger, durability: Durability, context: &str) {
    let lines = ledger.lines();
    let (mut counts, mut keys) = (BTreeMap::<&str, usize>::new(), BTreeMap::<&str, BTreeSet<&str>>::new());
    for (word, key) in lines.iter().filter_map(|line| line.split_once(' ')) {
        *counts.entry(word).or_default() += 1;
        keys.entry(word).or_default().insert(key);
    }
    for (word, visits) in [("draft", 3), ("charge", 1), ("email", 1), ("note", 1), ("deploy", 1), ("tried", 1)] {
        let distinct = keys.get(word).map_or(0, BTreeSet::len);
        assert_eq!(distinct, visits, "{context}: one key for each visit of `{word}`: {lines:?}");
    }
    // With `exit` nothing is on disk before the end, so after a crash everything may be done again.
    for word in ["email", "deploy"].into_iter().filter(|_| durability != Durability::Exit) {
        assert_eq!(counts[word], 1, "{context}: {word} exactly once: {lines:?}");
    }
}

/// The keys of effects of one kind that ended well, as the session has it on record.
async fn settled(engine: &Engine, session: &SessionKey, of: impl Fn(EffectKind) -> bool) -> BTreeSet<String> {
    let mut keys = BTreeMap::new();
    let mut settled = BTreeSet::new();
    for (_, record) in records(engine, session, &BranchId::main()).await {
        match record {
            Record::EffectIntent(intent) if of(intent.kind) => {
                keys.insert(intent.effect.clone(), intent.idempotency_key.clone());
            }
            Record::EffectOutcome(outcome) if outcome.status == OutcomeStatus::Ok => {
                settled.extend(keys.get(&outcome.effect).cloned());
            }
            _ => {}
        }
    }
    settled
}

/// Stops the first run at the mutating call with that number. Whether there was one.
async fn crash_at(world: &World, durability: Durability, call: u64, fault: Fault) -> bool {
    let (ledger, plan) = (world.ledger(), Arc::new(FaultPlan::default()));
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    let key = world.engine().create("s").await.unwrap().key().clone();
    let graph = graph(&ledger, durability, &ScriptedModel::new(script()));
    plan.fail_from(call, fault);
    let mut ended = run(&engine, &graph).await;
    if matches!(&ended, Ok(report) if report.outcome == RunOutcome::Waiting) {
        answer(&world.engine(), &key, &ledger).await;
        ended = run(&engine, &graph).await;
    }
    let crashed = plan.calls() > call;
    if crashed && let Err(error) = &ended {
        assert!(["RK0016", "RK0017", "RK0018"].contains(&error.code()), "{error:?}");
    }
    crashed
}

/// Goes on after a crash, and compares.
async fn check_rest(world: &World, durability: Durability, expected: &Outcome, context: &str) {
    let (engine, ledger) = (world.engine(), world.ledger());
    let key = engine.key("s").unwrap();
    let answered = settled(&engine, &key, |kind| kind == EffectKind::Model).await;
    let done = settled(&engine, &key, |kind| kind != EffectKind::Model).await;
    let lines = |ledger: &Ledger| {
        let of_done = |line: &String| line.split_once(' ').is_some_and(|(_, key)| done.contains(key));
        ledger.lines().into_iter().filter(of_done).count()
    };
    let before = lines(&ledger);
    let model = ScriptedModel::new(script());
    if state(&engine, &key).await.status().seen(false) != Status::Succeeded {
        to_the_end(world, durability, &model).await;
    }
    assert_eq!(outcome(&engine, &key).await, *expected, "{context}");
    assert_eq!(lines(&ledger), before, "{context}: a completed call was made again");
    check_ledger(&ledger, durability, context);
    for request in model.requests() {
        assert!(!answered.contains(&request.idempotency_key), "{context}: asked again: {request:?}");
    }
}

async fn unbroken(kind: Kind, durability: Durability) -> Outcome {
    let world = World::new(kind);
    to_the_end(&world, durability, &ScriptedModel::new(script())).await;
    check_ledger(&world.ledger(), durability, "unbroken");
    let engine = world.engine();
    let expected = outcome(&engine, &engine.key("s").unwrap()).await;
    let visits = json!({ "draft": 3, "judge": 3, "fan": 1, "left": 1, "right": 1, "write": 1, "join": 1, "ask": 1, "ship": 1, "route": 1, "done": 1 });
    assert_eq!(expected.graph["visits"], visits);
    let memory = json!({ "version": 3, "notes": ["first", "sent", "a", "b"], "total": 5, "title": "Rain", "body": { "words": 3 }, "verdict": "yes" });
    assert_eq!(expected.graph["memory"], memory);
    assert_eq!(expected.conversations.len(), 1);
    expected
}

/// How many crashes are tried at the same time: each mostly waits for a store that is gone.
const AT_ONCE: u64 = 64;

async fn stop_everywhere(kind: Kind, durability: Durability) {
    let expected = unbroken(kind, durability).await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut crashes = 0;
        for first in (0..).step_by(AT_ONCE as usize) {
            let stops = (first..first + AT_ONCE).map(|call| stop_at(kind, durability, fault, call, &expected));
            let crashed = join_all(stops).await;
            crashes += crashed.iter().filter(|crashed| **crashed).count();
            if crashed.contains(&false) {
                break;
            }
        }
        assert!(crashes > 12 || durability == Durability::Exit, "{kind:?} {durability:?}: {crashes} commit points");
    }
}

/// Stops at that call, goes on and compares. Whether there was such a call.
async fn stop_at(kind: Kind, durability: Durability, fault: Fault, call: u64, expected: &Outcome) -> bool {
    let context = format!("{kind:?} {durability:?} {fault:?} at call {call}");
    let world = World::new(kind);
    let crashed = crash_at(&world, durability, call, fault).await;
    world.pass_leases();
    check_rest(&world, durability, expected, &context).await;
    crashed
}

/// A process that dies, and the one that goes on dies too, wherever.
async fn stop_twice(durability: Durability) {
    let expected = unbroken(Kind::Memory, durability).await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut crashes = 0;
        for first in (4..44).step_by(13) {
            let stops = (0..40).step_by(3).map(|second| stop_twice_at(durability, fault, (first, second), &expected));
            crashes += join_all(stops).await.into_iter().filter(|crashed| *crashed).count();
        }
        assert!(crashes > 4, "{durability:?} {fault:?}: only {crashes} resumes were stopped");
    }
}

/// Stops a run and then its resume, goes on and compares. Whether the resume was stopped.
async fn stop_twice_at(durability: Durability, fault: Fault, (first, second): (u64, u64), expected: &Outcome) -> bool {
    let context = format!("{durability:?} {fault:?} at call {first}, then at {second}");
    let world = World::new(Kind::Memory);
    crash_at(&world, durability, first, fault).await;
    world.pass_leases();
    let crashed = crash_resume_at(&world, durability, second, fault).await;
    world.pass_leases();
    check_rest(&world, durability, expected, &context).await;
    crashed
}

/// Stops a resume at the mutating call with that number. Whether there was one.
async fn crash_resume_at(world: &World, durability: Durability, call: u64, fault: Fault) -> bool {
    let plan = Arc::new(FaultPlan::default());
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    let key = engine.key("s").unwrap();
    if state(&engine, &key).await.status() == Status::Waiting {
        answer(&world.engine(), &key, &world.ledger()).await;
    }
    if state(&engine, &key).await.status().seen(false) == Status::Succeeded {
        return false;
    }
    plan.fail_from(call, fault);
    let _ = run(&engine, &graph(&world.ledger(), durability, &ScriptedModel::new(script()))).await;
    plan.calls() > call
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
