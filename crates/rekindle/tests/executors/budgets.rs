//! What runs, visits and children may use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rekindle::Durability;
use rekindle::core::record::{RunOutcome, Usage};
use rekindle::graph::{Graph, GraphInput, NodeSpec};
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::{Budget, Budgets, Plan};
use rekindle_models::Script;

use crate::common::{deadly, noting, runs, step};
use crate::kit::{Rig, agent, echo, of};
use crate::support::Of;

/// R7: a resume never refills a budget, not even by what was under way at a crash.
#[tokio::test]
async fn a_crash_gives_no_tool_call_back_to_a_plan() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let plan = Plan::builder("p")
        .durability(Durability::Sync)
        .budgets(Budgets::new().with(Budget::ToolCalls, 2))
        .tool(deadly(&faults, &ledger, "die").writes().idempotent())
        .tool(noting(&ledger, "note"))
        .step(step("one", "die", "1"))
        .step(step("two", "note", "2").after(["one"]))
        .step(step("three", "note", "3").after(["two"]))
        .build()
        .unwrap();
    plan.run_once("go", &session).await.unwrap_err();
    rig.world.pass_leases();
    let result = plan.resume_once(&rig.again().await).await.unwrap();
    assert_eq!((result.report.outcome, runs(&ledger, "three")), (RunOutcome::Paused, 0), "{:?}", result.report.spent);
}

#[tokio::test]
async fn a_crash_gives_no_visit_back_to_a_graph() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .durability(Durability::Sync)
        .budgets(Budgets::new().with(Budget::Iterations, 2))
        .tool(deadly(&faults, &ledger, "die").writes().idempotent())
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::tool("one", "die").with("what", "1"))
        .node(NodeSpec::tool("two", "note").with("what", "2"))
        .node(NodeSpec::tool("three", "note").with("what", "3"))
        .path(["one", "two", "three"])
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    let result = graph.resume_once(&rig.again().await).await.unwrap();
    assert_eq!((result.report.outcome, runs(&ledger, "three")), (RunOutcome::Paused, 0), "{:?}", result.report.spent);
}

/// What an agent may use is its own declaration; inside a node it counts for each visit.
#[tokio::test]
async fn the_budgets_of_an_agent_count_inside_a_node() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("1")).call("echo", of("2")).call("echo", of("3")).text("done");
    let (agent, spy) = agent(script, |builder| {
        builder.tool(echo()).budgets(Budgets::new().with(Budget::ToolCalls, 1).with(Budget::Tokens, 1))
    });
    let graph = Graph::builder("g").agent(agent).node(NodeSpec::agent("work", "tester", "go")).build().unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await;
    assert!(spy.count() < 4, "{} model calls, {:?}", spy.count(), result.map(|result| result.report.spent));
}

/// A visit that has begun and is paid for goes on, even if another strand's visit spent the rest.
#[tokio::test]
async fn a_visit_that_is_paid_for_is_made_although_the_next_cannot_be() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let node = |id: &str| NodeSpec::tool(id, "note").with("what", id);
    let graph = Graph::builder("g")
        .budgets(Budgets::new().with(Budget::Iterations, 2))
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(node("a"))
        .node(node("b"))
        .node(node("join"))
        .path(["split", "a", "join"])
        .path(["split", "b", "join"])
        .build()
        .unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Paused);
    assert_eq!(result.report.spent.iterations, 2);
    assert_eq!(runs(&ledger, "a"), 1, "two visits were paid for: split and a");
}

/// What a child used counts for its parent, also if the child fails.
#[tokio::test]
async fn what_a_failed_child_used_counts_for_its_parent() {
    let rig = Rig::memory().await;
    let usage = Usage { input_tokens: 500, output_tokens: 500, cost_micros: 7 };
    let fails = tool("fails", "", async |_, _: Of| Err::<(), _>(ToolError::failed("no")));
    let costs = tool("costs", "", move |_, _: Of| async move {
        Ok::<_, ToolError>(ToolOutput::json(rekindle::Json::from("x")).and_used(usage))
    });
    let child = Plan::builder("child")
        .tool(costs)
        .tool(fails)
        .step(step("one", "costs", "1"))
        .step(step("two", "fails", "2").after(["one"]))
        .build()
        .unwrap();
    let parent = Plan::builder("parent")
        .tool(child.as_tool("child"))
        .step(rekindle::plan::StepSpec::new("call", "child").with("query", "go"))
        .build()
        .unwrap();
    let result = parent.run_once("go", &rig.session).await.unwrap();
    assert!(!result.success);
    assert_eq!(result.tokens, 1_000);
}

/// A child that failed and goes on at a resume is charged once for what it used before.
#[tokio::test]
async fn what_a_child_used_is_charged_once() {
    let rig = Rig::memory().await;
    let usage = Usage { input_tokens: 500, output_tokens: 500, cost_micros: 7 };
    let costs = tool("costs", "", move |_, _: Of| async move {
        Ok::<_, ToolError>(ToolOutput::json(rekindle::Json::from("x")).and_used(usage))
    });
    let tries = Arc::new(AtomicU32::new(0));
    let fails_twice = tool("fails", "", move |_, _: Of| {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        async move { if number < 2 { Err(ToolError::failed("no").and_used(usage)) } else { Ok("yes") } }
    });
    let child = Plan::builder("child")
        .tool(costs)
        .tool(fails_twice)
        .step(step("one", "costs", "1"))
        .step(step("two", "fails", "2").after(["one"]))
        .build()
        .unwrap();
    let parent = Plan::builder("parent")
        .tool(child.as_tool("child"))
        .step(rekindle::plan::StepSpec::new("call", "child").with("query", "go"))
        .build()
        .unwrap();
    assert_eq!(parent.run_once("go", &rig.session).await.unwrap().tokens, 2_000);
    assert_eq!(parent.resume_once(&rig.again().await).await.unwrap().tokens, 3_000);
    let result = parent.resume_once(&rig.again().await).await.unwrap();
    assert_eq!((result.success, result.tokens), (true, 3_000));
}
