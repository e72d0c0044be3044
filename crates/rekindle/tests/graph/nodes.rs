//! What nodes do: functions, tools, agents, plans, other graphs, routers and waits.

use std::time::Duration;

use rekindle::core::record::{RunOutcome, WaitKind};
use rekindle::graph::{Condition, EdgeSpec, GraphInput, NodeSpec, Work};
use rekindle::operations::{self, Answer};
use rekindle::plan::StepSpec;
use rekindle::{Graph, Json, Plan, SessionInfo, SessionQuery};
use rekindle_models::{Call, Script};
use rekindle_store::Fault;
use serde_json::json;

use crate::kit::{Rig, agent, echo, gives, node, noting, row, text, times};

#[tokio::test]
async fn a_function_is_given_the_memory_it_names_and_saves_parts_of_its_result() {
    let rig = Rig::memory().await;
    let spec = node("echo")
        .with("whole", "${memory.trip}")
        .with("text", "to ${memory.trip.city}, day ${memory.day}")
        .reads(["trip", "day"])
        .save("city", "/whole/city")
        .save("all", "");
    let graph = Graph::builder("g").inputs(["trip"]).memory("day", 2).tool(echo("echo")).node(spec).build().unwrap();
    let input = GraphInput::new().with("trip", json!({ "city": "Rome" }));
    let result = graph.run_once(input, &rig.session).await.unwrap();
    assert_eq!(result.get::<String>("city").unwrap().unwrap(), "Rome");
    let all: serde_json::Value = result.get("all").unwrap().unwrap();
    assert_eq!(all, json!({ "whole": { "city": "Rome" }, "text": "to Rome, day 2" }));
    assert_eq!(result.state.outputs.keys().collect::<Vec<_>>(), ["all", "city"]);
}

#[tokio::test]
async fn one_declared_write_takes_the_result_of_a_tool() {
    let rig = Rig::memory().await;
    let spec = NodeSpec::tool("n", "five").writes(["count"]);
    let graph = Graph::builder("g").tool(gives("five", 5)).node(spec).build().unwrap();
    assert_eq!(rig.run(&graph).await.unwrap().get::<u32>("count").unwrap(), Some(5));
}

#[tokio::test]
async fn a_result_without_the_part_that_is_saved_fails_the_node() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").tool(gives("f", json!({}))).node(node("f").save("x", "/x")).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert!(!result.success && result.error.unwrap().contains("nothing at `/x`, which goes into `x`"));
    assert!(rig.graph().await.memory.is_empty());
}

#[tokio::test]
async fn an_agent_gives_back_outputs_and_an_answer() {
    let rig = Rig::memory().await;
    let set = |key: &str, value: &str| Call::new("set_output", json!({ "key": key, "value": value }));
    let script = Script::new("m").calls([set("title", "T"), set("body", "B")]).text("done");
    let (writer, model) = agent("writer", script);
    let spec = NodeSpec::agent("write", "writer", "About ${memory.topic}").reads(["topic"]).writes(["title", "body"]);
    let graph = Graph::builder("g").memory("topic", "rain").agent(writer).node(spec.save("said", "")).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    let memory = serde_json::to_value(&result.state.memory).unwrap();
    assert_eq!(memory, json!({ "topic": "rain", "title": "T", "body": "B", "said": "done" }));
    assert_eq!(model.requests()[0].last, "About rain");
    assert_eq!(result.state.conversations["write.1"].len(), 5);
}

#[tokio::test]
async fn an_agent_that_forgets_an_output_is_reminded_and_then_fails() {
    let rig = Rig::memory().await;
    let (writer, model) = agent("writer", Script::new("m").text("done").repeating_last());
    let spec = NodeSpec::agent("write", "writer", "Go").writes(["title", "body"]);
    let graph = Graph::builder("g").agent(writer).node(spec).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert!(result.error.unwrap().contains("did not give its outputs: title, body"));
    assert_eq!(model.requests().len(), 3);
    assert!(model.requests()[1].last.contains("You have not given these outputs yet: title, body"));
}

#[tokio::test]
async fn a_plan_runs_in_a_session_of_its_own() {
    let rig = Rig::memory().await;
    let step = StepSpec::new("one", "echo").with("n", "${context.n}");
    let plan = Plan::builder("sums").tool(echo("echo")).step(step).build().unwrap();
    let spec = NodeSpec::plan("p", "sums").with("n", "${memory.n}").reads(["n"]).writes(["result"]);
    let graph = Graph::builder("g").memory("n", 7).plan(plan).node(spec).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    let value = result.state.memory["result"].to_string();
    assert!(value.contains("\"n\":7"), "{value}");
    assert_eq!(children(&rig).await.len(), 1);
}

async fn children(rig: &Rig) -> Vec<SessionInfo> {
    let mut query = SessionQuery::new(rig.key().namespace.clone());
    query.parent = Some(rig.key().clone());
    rig.engine.journal().list(&query).await.unwrap().sessions
}

/// A graph with a sub-graph of two nodes.
fn nested(rig: &Rig) -> Graph {
    let ledger = rig.world.ledger();
    let inner = row(Graph::builder("inner").inputs(["n"]), &["first", "second"])
        .tool(noting(&ledger, "first").writes().idempotent())
        .tool(noting(&ledger, "second").writes().idempotent())
        .build();
    let spec = NodeSpec::graph("sub", "inner").with("n", "${memory.n}").reads(["n"]).save("got", "/n");
    let builder = Graph::builder("outer").durability(rekindle::Durability::Sync).memory("n", 3);
    builder.graph(inner.unwrap()).node(spec).build().unwrap()
}

#[tokio::test]
async fn a_sub_graph_is_a_child_and_its_memory_is_the_result() {
    let rig = Rig::memory().await;
    let result = rig.run(&nested(&rig)).await.unwrap();
    assert_eq!(result.get::<u32>("got").unwrap(), Some(3));
    let children = children(&rig).await;
    let header = &children[0].header;
    assert_eq!((header.parent.as_ref(), header.agent.as_deref()), (Some(rig.key()), Some("inner")));
    assert_eq!(children.len(), 1);
}

#[tokio::test]
async fn a_sub_graph_survives_a_crash_at_every_commit() {
    let mut call = 0;
    loop {
        let rig = Rig::memory().await;
        let (session, plan) = rig.faulty().await;
        plan.fail_from(call, Fault::Unreachable);
        let _ = nested(&rig).run_once(GraphInput::new(), &session).await;
        let crashed = plan.calls() > call;
        rig.world.pass_leases();
        let begun = crate::support::state(&rig.engine, rig.key()).await.run().is_some();
        let graph = nested(&rig);
        let ended = match (begun, rig.graph().await.done) {
            (true, true) => break,
            (true, false) => rig.resume(&graph).await,
            (false, _) => rig.run(&graph).await,
        };
        assert!(ended.unwrap().success, "at call {call}");
        assert_eq!(children(&rig).await.len(), 1, "at call {call}");
        if !crashed {
            break;
        }
        call += 1;
    }
    assert!(call > 6, "only {call} commit points");
}

#[tokio::test]
async fn a_sub_graph_that_failed_goes_on_in_the_same_child() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let inner = row(Graph::builder("inner"), &["first", "shaky"])
        .tool(noting(&ledger, "first"))
        .tool(crate::kit::failing(&ledger, "shaky", 1));
    let graph = Graph::builder("outer").graph(inner.build().unwrap()).node(NodeSpec::graph("sub", "inner")).build();
    let graph = graph.unwrap();
    assert!(!rig.run(&graph).await.unwrap().success);
    assert!(rig.resume(&graph).await.unwrap().success);
    assert_eq!((times(&ledger, "first"), times(&ledger, "shaky")), (1, 2));
    let child = children(&rig).await.remove(0).header.key;
    let named = rig.records().await.into_iter().filter_map(|record| match record {
        rekindle::core::Record::EffectIntent(intent) => intent.child,
        _ => None,
    });
    let named: Vec<_> = named.into_iter().collect();
    assert!(named.len() >= 2 && named.iter().all(|name| *name == child), "{named:?}");
}

#[tokio::test]
async fn a_router_follows_conditions_or_a_function() {
    for (n, expected) in [(1, "low"), (9, "high")] {
        let by_edge = Graph::builder("g")
            .node(NodeSpec::router("r"))
            .edge(EdgeSpec::new("r", "low").when(Condition::memory("n").less_than(5)))
            .edge(EdgeSpec::new("r", "high").or_else());
        let chosen = NodeSpec::router("r").chosen_by("pick");
        let by_function = Graph::builder("g").node(chosen.reads(["n"])).path(["r", "low"]).path(["r", "high"]).router(
            "pick",
            |memory| {
                if memory.get::<u32>("n").unwrap().unwrap() < 5 { "low".into() } else { "high".into() }
            },
        );
        for builder in [by_edge, by_function] {
            let rig = Rig::memory().await;
            let builder = builder.memory("n", n).tool(echo("low")).tool(echo("high")).node(node("low"));
            let result = rig.run(&builder.node(node("high")).build().unwrap()).await.unwrap();
            assert_eq!(result.state.execution_path(), ["r", expected]);
        }
    }
}

#[tokio::test]
async fn a_router_that_names_no_edge_is_named() {
    let rig = Rig::memory().await;
    let chosen = NodeSpec::router("r").chosen_by("pick");
    let graph = Graph::builder("g").router("pick", |_| "nowhere".into()).node(chosen).path(["r", "a"]).node(node("a"));
    let error = text(rig.run(&graph.tool(echo("a")).build().unwrap()).await);
    assert!(error.contains("router `r` chose `nowhere`"), "{error}");
}

/// A node that waits, and one behind it.
fn waiting(wait: NodeSpec) -> Graph {
    Graph::builder("g")
        .memory("n", 3)
        .node(wait)
        .node(node("end"))
        .path(["w", "end"])
        .tool(echo("end"))
        .build()
        .unwrap()
}

fn wait_node(kind: WaitKind, prompt: &str, expires: Option<Duration>) -> NodeSpec {
    let mut spec = NodeSpec::question("w", prompt).reads(["n"]).writes(["got"]);
    if let Work::Wait(wait) = &mut spec.work {
        (wait.wait, wait.expires_after) = (kind, expires);
        wait.shows = (kind == WaitKind::Approval).then(|| json!({ "n": "${memory.n}" }));
    }
    spec
}

#[tokio::test]
async fn a_question_waits_for_an_answer_that_fits() {
    let rig = Rig::memory().await;
    let graph = waiting(wait_node(WaitKind::Question, "Is it ${memory.n}?", None));
    let result = rig.run(&graph).await.unwrap();
    assert_eq!((result.report.outcome, result.report.waits[0].prompt.as_str()), (RunOutcome::Waiting, "Is it 3?"));
    rig.answer(json!({ "yes": true })).await;
    let result = rig.resume(&graph).await.unwrap();
    assert_eq!(result.state.memory["got"].as_str(), r#"{"yes":true}"#);
    assert_eq!(result.state.execution_path(), ["w", "end"]);
}

#[tokio::test]
async fn an_approval_shows_what_is_approved_and_a_rejection_fails_the_node() {
    for approves in [true, false] {
        let rig = Rig::memory().await;
        let graph = waiting(wait_node(WaitKind::Approval, "Ok?", None));
        rig.run(&graph).await.unwrap();
        let wait = rig.wait().await;
        assert_eq!(wait.arguments.as_ref().unwrap().as_str(), r#"{"n":3}"#);
        let answer = match approves {
            true => Answer::approve(wait.wait, wait.digest, "maria"),
            false => Answer::reject(wait.wait, "maria", "too many"),
        };
        operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
        let result = rig.resume(&graph).await.unwrap();
        assert_eq!(result.success, approves);
        if !approves {
            assert!(result.error.unwrap().contains("node `w` failed: rejected: too many"));
            // A resume asks anew.
            assert_eq!(rig.resume(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
        }
    }
}

#[tokio::test]
async fn a_signal_and_a_timer_end_a_wait() {
    let rig = Rig::memory().await;
    let graph = waiting(wait_node(WaitKind::Signal, "paid", None));
    assert_eq!(rig.run(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
    operations::signal(&rig.engine, rig.key(), "paid", Json::from("12 EUR"), "bank").await.unwrap();
    assert_eq!(rig.resume(&graph).await.unwrap().state.memory["got"].as_str(), "\"12 EUR\"");

    let rig = Rig::memory().await;
    let graph = waiting(wait_node(WaitKind::Timer, "", Some(Duration::from_secs(60))));
    assert_eq!(rig.run(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
    assert_eq!(rig.resume(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
    rig.world.clock.advance(Duration::from_secs(61));
    assert!(rig.resume(&graph).await.unwrap().success);
}

#[tokio::test]
async fn an_answer_that_cannot_be_saved_fails_the_node_and_is_asked_for_again() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").node(NodeSpec::question("w", "Which?").save("x", "/x")).build().unwrap();
    rig.run(&graph).await.unwrap();
    rig.answer(json!({ "y": 1 })).await;
    assert!(rig.resume(&graph).await.unwrap().error.unwrap().contains("nothing at `/x`"));
    assert_eq!(rig.resume(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
    rig.answer(json!({ "x": 1 })).await;
    assert_eq!(rig.resume(&graph).await.unwrap().get::<u32>("x").unwrap(), Some(1));
}
