//! A graph with everything in it, stopped at every commit point.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, Merge, NodeSpec};
use rekindle::operations::{self, Answer};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Checked, FnTool, ToolError, tool};
use rekindle::{Json, Status};
use rekindle_models::{By, Script};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::{Value, json};

use crate::kit::{Spy, agent_of, of};
use crate::support::{Kind, Ledger, Of, World, state};

fn noting(ledger: &Ledger, name: &'static str) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool(name, "Notes.", move |call, of: Of| {
        ledger.write(&format!("{name} {} {}", of.what, call.idempotency_key()));
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, ToolError>(of.what)
        }
    })
}

#[derive(serde::Deserialize, JsonSchema)]
struct Count {
    n: i64,
}

fn graph(ledger: &Ledger, durability: Durability) -> Graph {
    let happened = ledger.clone();
    let email =
        noting(ledger, "email").writes().check(move |call, of: Of| {
            let count = happened.count(&format!("email {} {}", of.what, call.idempotency_key()));
            async move {
                Ok(if count > 0 { Checked::Happened(Json::from(of.what.as_str())) } else { Checked::DidNotHappen })
            }
        });
    let script = Script::new("m")
        .by(By::Messages)
        .call("lookup", of("x"))
        .call("charge", of("agent"))
        .call("set_output", json!({"key": "price", "value": 5}))
        .text("done");
    let agent = agent_of(&Spy::new(script), |builder| {
        builder.tool(noting(ledger, "lookup")).tool(noting(ledger, "charge").writes().idempotent())
    });
    Graph::builder("g")
        .durability(durability)
        .memory("n", 0)
        .memory("list", json!([]))
        .agent(agent)
        .tool(noting(ledger, "note"))
        .tool(noting(ledger, "charge").writes().idempotent())
        .tool(email)
        .function("count", async |_, count: Count| Ok(count.n + 1))
        .node(NodeSpec::function("count").with("n", "${memory.n}").reads(["n"]).save("n", ""))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::tool("read", "note").with("what", "r${memory.n}").reads(["n"]).save("list", ""))
        .node(NodeSpec::tool("mail", "email").with("what", "m${memory.n}").reads(["n"]).save("list", ""))
        .node(NodeSpec::tool("pay", "charge").with("what", "p${memory.n}").reads(["n"]).save("paid", ""))
        .node(
            NodeSpec::agent("work", "tester", "go ${memory.n}")
                .reads(["n"])
                .writes(["price", "answer"])
                .save("answer", ""),
        )
        .node(NodeSpec::tool("join", "note").with("what", "j").merge("list", Merge::Append))
        .node(NodeSpec::question("ask", "ok?").save("verdict", ""))
        .node(NodeSpec::tool("end", "charge").with("what", "end"))
        .path(["count", "split", "read", "join"])
        .path(["split", "mail", "pay", "join"])
        .path(["split", "work", "join"])
        .edge(EdgeSpec::new("join", "count").when(Condition::memory("n").less_than(2)))
        .edge(EdgeSpec::new("join", "ask").or_else())
        .path(["ask", "end"])
        .build()
        .unwrap()
}

async fn once(
    world: &World,
    store: Option<Arc<FaultPlan>>,
    ledger: &Ledger,
    durability: Durability,
) -> Result<RunOutcome, String> {
    let engine = match &store {
        Some(plan) => world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone()))),
        None => world.engine(),
    };
    let session = match engine.open_or_create("s").await {
        Ok(session) => session,
        Err(error) => return Err(error.to_string()),
    };
    let before = state(&world.engine(), session.key()).await;
    if before.status() == Status::Waiting {
        for wait in before.waits() {
            let answer = Answer::value(wait.opened.wait.clone(), Json::from("yes"), "maria");
            let _ = operations::answer(&world.engine(), session.key(), &answer).await;
        }
    }
    let graph = graph(ledger, durability);
    let result = match before.run().is_some() && rekindle_mid(&before) {
        true => graph.resume_once(&session).await,
        false => graph.run_once(GraphInput::new(), &session).await,
    };
    result.map(|result| result.report.outcome).map_err(|error| format!("{error:?}"))
}

fn rekindle_mid(state: &rekindle::State) -> bool {
    state.register("graph").is_some_and(|graph| !graph.as_str().contains("\"done\":true"))
}

#[derive(Debug, PartialEq)]
struct Outcome {
    memory: BTreeMap<String, Value>,
    visits: BTreeMap<String, u64>,
    path: Vec<String>,
    talk: BTreeMap<String, Vec<String>>,
    once: BTreeMap<String, usize>,
    keys: BTreeMap<String, usize>,
}

async fn outcome(world: &World, ledger: &Ledger) -> Outcome {
    let engine = world.engine();
    let key = engine.key("s").unwrap();
    let state = state(&engine, &key).await;
    assert_eq!((state.waits().count(), state.open_effects().count()), (0, 0));
    let seen = rekindle::graph::GraphState::of(&state).unwrap();
    let mut path: Vec<String> = seen.path.iter().map(|visited| visited.node.clone()).collect();
    path.sort();
    let lines = ledger.lines();
    let mut keys: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
    let mut once = BTreeMap::new();
    for line in &lines {
        let mut parts = line.splitn(3, ' ');
        let (name, what, key) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        if name == "charge" || name == "email" {
            keys.entry(format!("{name} {what}")).or_default().insert(key.to_owned());
        }
        if name == "email" {
            *once.entry(line.clone().replace(key, "")).or_insert(0) += 1;
        }
    }
    let talk = seen.conversations.iter().map(|(node, said)| {
        let said =
            said.iter().map(|message| format!("{:?} {} {}", message.role, message.text(), message.calls().count()));
        (node.split('.').next().unwrap().to_owned() + &said.clone().count().to_string(), said.collect())
    });
    Outcome {
        memory: seen.memory.iter().map(|(key, value)| (key.clone(), value.to_value().unwrap())).collect(),
        visits: seen.visits.clone(),
        path,
        talk: talk.collect(),
        once,
        keys: keys.into_iter().map(|(what, keys)| (what, keys.len())).collect(),
    }
}

async fn to_the_end(world: &World, ledger: &Ledger, durability: Durability, context: &str) {
    let mut said = Vec::new();
    for _ in 0..8 {
        match once(world, None, ledger, durability).await {
            Ok(RunOutcome::Succeeded) => return,
            other => said.push(other),
        }
    }
    panic!("{context}: {said:?}");
}

async fn matrix(kind: Kind, durability: Durability) {
    let world = World::new(kind);
    let ledger = world.ledger();
    to_the_end(&world, &ledger, durability, "unbroken").await;
    let expected = outcome(&world, &ledger).await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        for call in 0..80 {
            let context = format!("{kind:?} {durability:?} {fault:?} at {call}");
            let world = World::new(kind);
            let ledger = world.ledger();
            let plan = Arc::new(FaultPlan::default());
            plan.fail_from(call, fault);
            let crashed =
                tokio::time::timeout(Duration::from_secs(120), once(&world, Some(plan), &ledger, durability)).await;
            let crashed = crashed.unwrap_or_else(|_| panic!("{context}: stands still"));
            world.pass_leases();
            let rest = to_the_end(&world, &ledger, durability, &context);
            tokio::time::timeout(Duration::from_secs(120), rest)
                .await
                .unwrap_or_else(|_| panic!("{context}: stands still"));
            assert_eq!(outcome(&world, &ledger).await, expected, "{context}: {:?}", ledger.lines());
            if crashed.is_ok() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn memory_sync() {
    matrix(Kind::Memory, Durability::Sync).await;
}

#[tokio::test]
async fn memory_async() {
    matrix(Kind::Memory, Durability::Async).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_sync() {
    matrix(Kind::Sqlite, Durability::Sync).await;
}

/// Paused again and again, it comes to the same end.
#[tokio::test]
async fn paused_again_and_again() {
    let world = World::new(Kind::Memory);
    let ledger = world.ledger();
    to_the_end(&world, &ledger, Durability::Sync, "unbroken").await;
    let expected = outcome(&world, &ledger).await;
    for micros in (0..40).map(|n| n * 400) {
        let world = World::new(Kind::Memory);
        let ledger = world.ledger();
        let mut ends = Vec::new();
        for _ in 0..200 {
            let engine = world.engine();
            let session = engine.open_or_create("s").await.unwrap();
            let before = state(&engine, session.key()).await;
            for wait in before.waits() {
                let answer = Answer::value(wait.opened.wait.clone(), Json::from("yes"), "maria");
                let _ = operations::answer(&engine, session.key(), &answer).await;
            }
            let graph = graph(&ledger, Durability::Sync);
            let run = match before.run().is_some() {
                true => graph.resume(&session).await,
                false => graph.run(GraphInput::new(), &session).await,
            };
            let run = run.unwrap_or_else(|error| panic!("{micros}: {error:?} {ends:?}"));
            tokio::time::sleep(Duration::from_micros(micros)).await;
            run.stop("now");
            if ends.len() % 2 == 1 {
                run.stop("now");
            }
            let report = run.report().await.unwrap_or_else(|error| panic!("{micros}: {error:?} {ends:?}"));
            ends.push(report.outcome);
            if report.outcome == RunOutcome::Succeeded {
                break;
            }
        }
        if ends.last() == Some(&RunOutcome::Succeeded) {
            assert_eq!(outcome(&world, &ledger).await, expected, "{micros}: {:?}", ledger.lines());
        }
    }
}
