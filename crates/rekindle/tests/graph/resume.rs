//! Second runs, resumes, drift, control, calls settled by hand, budgets, and waits that are held.

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Condition, EdgeSpec, NodeSpec, StrandStatus};
use rekindle::operations::{self, ControlOptions, Settlement};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{
    Agent, Budget, Budgets, EffectId, ErrorKind, Graph, GraphBuilder, Json, OnWait, ResumeOptions, RunHandle, Status,
};
use rekindle_models::{Call, Script, ScriptedModel};
use rekindle_store::{Fault, FaultPlan};
use serde_json::json;
use std::sync::Arc;

use crate::kit::{Given, Held, Rig, agent, echo, failing, gives, node, noting, row, text, times};

#[tokio::test]
async fn a_second_run_is_never_confused_with_the_first() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let script = Script::new("m").call("note", json!({})).text("done");
    let model = ScriptedModel::new(script);
    let writer = Agent::builder("writer", model.clone()).tool(noting(&ledger, "note").writes().idempotent()).build();
    let mut spec = NodeSpec::agent("write", "writer", "Go").writes(["said"]);
    if let rekindle::graph::Work::Agent { continues, .. } = &mut spec.work {
        *continues = true;
    }
    let graph =
        Graph::builder("g").agent(writer.unwrap()).tool(echo("a")).node(node("a")).node(spec).path(["a", "write"]);
    let graph = graph.build().unwrap();
    let input = |key: &str| rekindle::graph::GraphInput::new().with(key, 1);
    graph.run_once(input("first"), &rig.session).await.unwrap();
    let second = graph.run_once(input("second"), &rig.session).await.unwrap().state;
    assert_eq!(second.memory.keys().collect::<Vec<_>>(), ["said", "second"]);
    assert_eq!(second.execution_path(), ["a", "write"]);
    assert_eq!((second.visits["a"], second.visits["write"], second.strands.len()), (1, 1, 1));
    assert_eq!(second.conversations.len(), 1);
    assert_eq!(second.conversations.values().next().unwrap().len(), 4);
    assert_eq!(model.requests().len(), 4, "the second run asks for itself");
    let lines = ledger.lines();
    assert_eq!(lines.len(), 2);
    assert_ne!(lines[0], lines[1], "the calls of two runs have two keys");
}

#[tokio::test]
async fn within_one_run_an_agent_may_remember_earlier_visits() {
    let rig = Rig::memory().await;
    let (writer, model) = agent("writer", Script::new("m").text("one").text("two"));
    let mut spec = NodeSpec::agent("write", "writer", "Go").writes(["said"]);
    if let rekindle::graph::Work::Agent { continues, .. } = &mut spec.work {
        *continues = true;
    }
    let graph = Graph::builder("g").agent(writer).node(spec).tool(echo("end")).node(node("end"));
    let graph = graph
        .edge(EdgeSpec::new("write", "write").when(Condition::memory("said").is("one")))
        .edge(EdgeSpec::new("write", "end").or_else())
        .build()
        .unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(result.state.conversations["write"].len(), 4);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn an_agent_that_fails_leaves_no_open_call_and_no_output_to_its_next_visit() {
    let rig = Rig::memory().await;
    let set = |key: &str| Call::new("set_output", json!({ "key": key, "value": key }));
    let echo_call = || Call::new("echo", json!({}));
    let mut script = Script::new("m").calls([set("a")]);
    for _ in 0..3 {
        script = script.calls([echo_call()]);
    }
    let model = ScriptedModel::new(script.calls([set("b")]).text("done").repeating_last());
    let writer = Agent::builder("writer", model.clone()).tool(echo("echo")).same_call_limit(3).build().unwrap();
    let mut spec = NodeSpec::agent("write", "writer", "Go").writes(["a", "b"]);
    if let rekindle::graph::Work::Agent { continues, .. } = &mut spec.work {
        *continues = true;
    }
    let again = EdgeSpec::new("write", "write").when(Condition::failed());
    let graph = Graph::builder("g").agent(writer).node(spec.max_visits(2)).edge(again).path(["write", "end"]);
    let graph = graph.node(node("end")).tool(echo("end")).build().unwrap();
    let error = text(rig.run(&graph).await);
    assert!(error.contains("node `write` was visited 2 times"), "{error}");
    let state = rig.graph().await;
    assert!(state.path[1].error.as_ref().unwrap().contains("did not give its outputs: a"), "{:?}", state.path);
    let open = crate::support::state(&rig.engine, rig.key()).await;
    assert_eq!(open.open_effects().count(), 0);
    let said = &state.conversations["write"];
    let calls: usize = said.iter().map(|message| message.calls().count()).sum();
    let results: usize = said.iter().map(|message| message.results().count()).sum();
    assert_eq!(calls, results);
}

#[tokio::test]
async fn a_finished_run_cannot_be_resumed_and_an_unfinished_one_takes_no_input() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g").tool(failing(&ledger, "a", 1)).node(node("a")).build().unwrap();
    assert!(!rig.run(&graph).await.unwrap().success);
    assert_eq!(rig.run(&graph).await.unwrap_err().code(), "RK0019");
    assert!(rig.resume(&graph).await.unwrap().success);
    assert_eq!(*rig.resume(&graph).await.unwrap_err().kind(), ErrorKind::NotResumable);
    assert!(rig.run(&graph).await.unwrap().success);
}

/// A graph that stands at `stop`, changed a little by `change`.
fn drifting(change: &str) -> Graph {
    let prompt = if change == "agent" { "Be long." } else { "Be brief." };
    let writer = Agent::builder("writer", ScriptedModel::new(Script::new("m").text("x"))).system(prompt);
    let version = if change == "tool" { "2" } else { "1" };
    let mut builder = Graph::builder("g")
        .agent(writer.build().unwrap())
        .tool(echo("a").version(version))
        .tool(echo("b"))
        .node(node("a").with("n", if change == "node" { 2 } else { 1 }))
        .node(NodeSpec::agent("w", "writer", "Go").writes(["x"]))
        .path(["a", "stop"]);
    if change != "removed" {
        builder = builder.node(NodeSpec::question("stop", "Well?")).path(["stop", "w"]);
        return builder
            .edge(EdgeSpec::new("w", "b").priority(i32::from(change == "edge")))
            .node(node("b"))
            .build()
            .unwrap();
    }
    builder = Graph::builder("g").tool(echo("a")).node(node("a"));
    builder.build().unwrap()
}

#[tokio::test]
async fn drift_names_what_changed_and_a_removed_node_is_refused_even_if_it_is_accepted() {
    for (change, named) in
        [("node", "node a"), ("edge", "edge w → b"), ("tool", "tool a"), ("agent", "agent writer: system prompt")]
    {
        let rig = Rig::memory().await;
        rig.run(&drifting("")).await.unwrap();
        let error = rig.resume(&drifting(change)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Drift);
        assert!(error.to_string().contains(named), "{change}: {error}");
        rig.answer(json!("yes")).await;
        let options = ResumeOptions::new("maria").accept_drift("meant so");
        assert!(rig.resume_with(&drifting(change), options).await.unwrap().success, "{change}");
    }
    let rig = Rig::memory().await;
    rig.run(&drifting("")).await.unwrap();
    let options = ResumeOptions::new("maria").accept_drift("meant so");
    let error = rig.resume_with(&drifting("removed"), options).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Drift);
    assert!(error.message().contains("stands at node `stop`"), "{error}");
}

/// A held function: in a node, as a tool of an agent in a node, or in two strands.
fn holding(held: &Held, place: &str) -> Graph {
    let builder = Graph::builder("g").tool(echo("end"));
    let builder = match place {
        "node" => builder.tool(held.function("work")).node(node("work")).path(["work", "end"]),
        "agent" => {
            let model = ScriptedModel::new(Script::new("m").call("work", json!({})).text("done"));
            let writer = Agent::builder("writer", model).tool(held.function("work")).build().unwrap();
            builder.agent(writer).node(NodeSpec::agent("write", "writer", "Go")).path(["write", "end"])
        }
        _ => {
            let builder = builder.node(NodeSpec::router("fan").fan_out("end")).node(node("work")).node(node("more"));
            let builder = builder.tool(held.function("work")).tool(held.function("more"));
            builder.path(["fan", "work", "end"]).path(["fan", "more", "end"])
        }
    };
    builder.node(node("end")).build().unwrap()
}

const PLACES: [(&str, usize); 3] = [("node", 1), ("agent", 1), ("fan", 2)];

async fn begun(rig: &Rig, graph: &Graph, held: &Held, calls: usize) -> RunHandle {
    let run = graph.run(Default::default(), &rig.session).await.unwrap();
    for _ in 0..calls {
        held.began().await;
    }
    run
}

#[tokio::test]
async fn a_pause_lets_calls_end_and_the_resume_does_not_repeat_them() {
    for (place, calls) in PLACES {
        let rig = Rig::memory().await;
        let held = Held::default();
        let graph = holding(&held, place);
        let run = begun(&rig, &graph, &held, calls).await;
        let options = ControlOptions::new("maria", "later");
        operations::pause(&rig.engine, rig.key(), &options).await.unwrap();
        (0..calls).for_each(|_| held.release());
        let outcome = run.report().await.unwrap().outcome;
        if outcome == RunOutcome::Paused {
            assert!(rig.resume(&graph).await.unwrap().success, "{place}");
        }
        assert_eq!(held.calls(), calls, "{place}");
        assert!(rig.graph().await.done, "{place}");
    }
}

#[tokio::test]
async fn an_interrupt_stops_calls_and_the_resume_makes_them_again() {
    for (place, calls) in PLACES {
        let rig = Rig::memory().await;
        let held = Held::default();
        let graph = holding(&held, place);
        let run = begun(&rig, &graph, &held, calls).await;
        operations::interrupt(&rig.engine, rig.key(), &ControlOptions::new("maria", "stop")).await.unwrap();
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused, "{place}");
        (0..calls).for_each(|_| held.release());
        assert!(rig.resume(&graph).await.unwrap().success, "{place}");
        assert_eq!(held.calls(), calls * 2, "{place}");
    }
}

#[tokio::test]
async fn a_cancel_leaves_nothing_open_and_the_session_takes_a_new_run() {
    for (place, calls) in PLACES {
        let rig = Rig::memory().await;
        let held = Held::default();
        let graph = holding(&held, place);
        let run = begun(&rig, &graph, &held, calls).await;
        operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "stop")).await.unwrap();
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled, "{place}");
        let state = crate::support::state(&rig.engine, rig.key()).await;
        assert_eq!((state.open_effects().count(), state.waits().count()), (0, 0), "{place}");
        (0..calls).for_each(|_| held.release());
        assert!(rig.run(&graph).await.unwrap().success, "{place}");
    }
}

#[tokio::test]
async fn a_waiting_graph_that_is_cancelled_leaves_nothing_open() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").node(NodeSpec::question("ask", "Well?")).build().unwrap();
    rig.run(&graph).await.unwrap();
    operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "never mind")).await.unwrap();
    let state = crate::support::state(&rig.engine, rig.key()).await;
    assert_eq!((state.status(), state.open_effects().count(), state.waits().count()), (Status::Cancelled, 0, 0));
    assert_eq!(rig.run(&graph).await.unwrap().report.outcome, RunOutcome::Waiting);
}

/// A call that must never be made twice, in whose first try the process dies.
fn deadly(plan: &Arc<FaultPlan>) -> FnTool<Given> {
    let plan = plan.clone();
    tool("pay", "Pays.", move |_, _: Given| {
        plan.fail_from(0, Fault::Unreachable);
        async { Ok::<_, ToolError>("paid") }
    })
    .never_again()
}

#[tokio::test]
async fn a_call_in_doubt_can_be_settled_by_hand_in_a_node_and_in_an_agent() {
    for (in_agent, effect) in [(false, "n1.pay"), (true, "pay.1:t1.0.")] {
        let rig = Rig::memory().await;
        let (session, plan) = rig.faulty().await;
        let model = ScriptedModel::new(Script::new("m").call("pay", json!({})).text("thanks"));
        let writer = Agent::builder("writer", model.clone()).tool(deadly(&plan)).build().unwrap();
        let builder =
            Graph::builder("g").durability(Durability::Sync).tool(deadly(&plan)).agent(writer).tool(echo("end"));
        let spec = if in_agent { NodeSpec::agent("pay", "writer", "Go") } else { NodeSpec::tool("pay", "pay") };
        let graph = builder.node(spec.writes(["said"])).node(node("end")).path(["pay", "end"]).build().unwrap();
        graph.run_once(Default::default(), &session).await.unwrap_err();
        rig.world.pass_leases();
        let error = rig.resume(&graph).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InDoubt, "{error}");
        let state = crate::support::state(&rig.engine, rig.key()).await;
        let open: EffectId = state.open_effects().next().unwrap().intent.effect.clone();
        assert!(open.as_str().starts_with(effect), "{open}");
        let found = Settlement::Ok(Json::from("paid by hand"));
        operations::settle(&rig.engine, rig.key(), &open, &found, "maria", "the bank says so").await.unwrap();
        let result = rig.resume(&graph).await.unwrap();
        let said = result.get::<String>("said").unwrap().unwrap();
        assert_eq!(said, if in_agent { "thanks" } else { "paid by hand" });
        assert_eq!(result.state.execution_path(), ["pay", "end"]);
        if in_agent {
            assert!(model.requests().last().unwrap().last.contains("paid by hand"));
        }
    }
}

#[tokio::test]
async fn a_spent_budget_pauses_and_can_be_raised() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let builder = Graph::builder("g").tool(noting(&ledger, "a")).tool(noting(&ledger, "b")).tool(noting(&ledger, "c"));
    let graph = row(builder, &["a", "b", "c"]).budgets(Budgets::new().with(Budget::Iterations, 2)).build().unwrap();
    assert_eq!(rig.run(&graph).await.unwrap().report.outcome, RunOutcome::Paused);
    assert_eq!(rig.resume(&graph).await.unwrap().report.outcome, RunOutcome::Paused);
    assert_eq!(rig.graph().await.strands[0].status, StrandStatus::Next);
    let options = ResumeOptions::new("maria").raise(Budget::Iterations, 3);
    assert!(rig.resume_with(&graph, options).await.unwrap().success);
    assert_eq!(["a", "b", "c"].map(|name| times(&ledger, name)), [1, 1, 1]);
}

#[tokio::test]
async fn a_run_that_holds_goes_on_when_it_is_answered() {
    let rig = Rig::memory().await;
    let builder =
        Graph::builder("g").on_wait(OnWait::Hold).tool(gives("end", 1)).node(NodeSpec::question("ask", "Well?"));
    let graph: GraphBuilder = builder.node(node("end")).path(["ask", "end"]);
    let run = graph.build().unwrap().run(Default::default(), &rig.session).await.unwrap();
    while rig.waits().await.is_empty() {
        tokio::task::yield_now().await;
    }
    rig.answer(json!("yes")).await;
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded);
}
