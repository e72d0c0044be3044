//! Answers that come while something else is under way.

use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::{RunOutcome, WaitKind};
use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, NodeSpec, WaitNode, Work};
use rekindle::operations::{self, Answer, ControlOptions};
use rekindle::tool::{Approval, ToolError, tool};
use rekindle::{Json, OnWait, Plan, ResumeOptions, RunOptions, Status};
use rekindle_models::{Call, Script};
use serde_json::json;

use crate::common::{noting, soon, step};
use crate::kit::{Held, Rig, agent, echo, of};
use crate::support::Of;

fn graph(rig: &Rig, held: &Held, on_wait: OnWait, expires: Option<Duration>) -> Graph {
    let ledger = rig.world.ledger();
    let ask: WaitNode = serde_json::from_value(json!({"prompt": "ok?", "default": "late"})).unwrap();
    let ask = WaitNode { expires_after: expires, ..ask };
    Graph::builder("g")
        .on_wait(on_wait)
        .tool(held.tool("hold"))
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::new("ask", Work::Wait(ask)))
        .node(NodeSpec::tool("long", "hold").with("what", "x"))
        .node(NodeSpec::tool("join", "note").with("what", "x"))
        .path(["split", "ask", "join"])
        .path(["split", "long", "join"])
        .build()
        .unwrap()
}

/// Waits until something is waited for.
async fn waiting(rig: &Rig) {
    let opened = async {
        while rig.waits().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(opened).await;
}

async fn answer_the_wait(rig: &Rig) -> bool {
    waiting(rig).await;
    let wait = rig.wait().await;
    let answer = match wait.kind {
        WaitKind::Approval => Answer::approve(wait.wait, wait.digest, "maria"),
        _ => Answer::value(wait.wait, Json::from("yes"), "maria"),
    };
    let answered = operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    answered.resume_needed
}

/// A run that holds goes on with an answer that came while another strand worked.
#[tokio::test]
async fn an_answer_to_a_graph_that_holds_is_not_missed() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let run = graph(&rig, &held, OnWait::Hold, None).run(GraphInput::new(), &rig.session).await.unwrap();
    held.began().await;
    answer_the_wait(&rig).await;
    held.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Succeeded);
}

/// The same for a wait that expires meanwhile: its default counts.
#[tokio::test]
async fn the_expiry_of_a_wait_of_a_graph_that_holds_is_not_missed() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let graph = graph(&rig, &held, OnWait::Hold, Some(Duration::from_secs(5)));
    let run = graph.run(GraphInput::new(), &rig.session).await.unwrap();
    held.began().await;
    waiting(&rig).await;
    rig.world.clock.advance(Duration::from_secs(6));
    held.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Succeeded);
}

#[tokio::test]
async fn an_answer_to_a_plan_that_holds_is_not_missed() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let plan = Plan::builder("p")
        .on_wait(OnWait::Hold)
        .tool(held.tool("hold"))
        .tool(echo().writes().needs_approval(Approval::default()))
        .step(step("long", "hold", "x"))
        .step(step("ask", "echo", "x"))
        .build()
        .unwrap();
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    answer_the_wait(&rig).await;
    held.release();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Succeeded);
}

/// Who answers is told that no resume is needed, because somebody runs the session: that run goes on with the answer.
#[tokio::test]
async fn an_answer_that_needs_no_resume_is_not_left_lying_by_a_graph() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let run = graph(&rig, &held, OnWait::Suspend, None).run(GraphInput::new(), &rig.session).await.unwrap();
    held.began().await;
    let resume_needed = answer_the_wait(&rig).await;
    held.release();
    let report = soon(run.report()).await.unwrap();
    assert!(resume_needed || report.outcome == RunOutcome::Succeeded, "{:?} {}", report.outcome, report.reason);
}

#[tokio::test]
async fn an_answer_that_needs_no_resume_is_not_left_lying_by_a_plan() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let plan = Plan::builder("p")
        .tool(held.tool("hold"))
        .tool(echo().writes().needs_approval(Approval::default()))
        .step(step("long", "hold", "x"))
        .step(step("ask", "echo", "x"))
        .build()
        .unwrap();
    let run = plan.run("go", &rig.session).await.unwrap();
    held.began().await;
    let resume_needed = answer_the_wait(&rig).await;
    held.release();
    let report = soon(run.report()).await.unwrap();
    assert!(resume_needed || report.outcome == RunOutcome::Succeeded, "{:?} {}", report.outcome, report.reason);
}

#[tokio::test]
async fn an_answer_that_needs_no_resume_is_not_left_lying_by_an_agent() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let calls = [Call::new("echo", of("x")), Call::new("hold", of("y"))];
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder.tool(held.tool("hold")).tool(echo().writes().needs_approval(Approval::default()))
    });
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    let resume_needed = answer_the_wait(&rig).await;
    held.release();
    let report = soon(run.report()).await.unwrap();
    assert!(resume_needed || report.outcome == RunOutcome::Succeeded, "{:?} {}", report.outcome, report.reason);
}

/// What is set at a resume counts more than what a strand wrote before.
#[tokio::test]
async fn what_is_set_at_a_resume_is_seen_by_a_strand() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::tool("judge", "note").with("what", "no").save("verdict", ""))
        .node(NodeSpec::tool("join", "note").with("what", "x"))
        .path(["split", "judge"])
        .edge(EdgeSpec::new("judge", "join").when(Condition::memory("verdict").is("yes")))
        .build()
        .unwrap();
    let error = graph.run_once(GraphInput::new(), &rig.session).await.unwrap_err();
    assert!(error.next_step().contains("set what its conditions look at"), "{}", error.next_step());
    let options = ResumeOptions::new("maria").set("verdict", "yes");
    let report = graph.resume_with(&rig.again().await, options).await.unwrap().report().await;
    assert!(report.is_ok(), "{}", report.unwrap_err());
}

/// A store that is away for one call does not end a run that is to go on without it: taking marks away is no more
/// important than writing history.
#[tokio::test]
async fn marks_that_cannot_be_taken_away_do_not_end_a_run() {
    let mut failed = Vec::new();
    for call in 0..40 {
        let rig = Rig::memory().await;
        let (session, faults) = rig.faulty().await;
        let ledger = rig.world.ledger();
        let config = rekindle::graph::CheckpointConfig {
            max_per_session: 1,
            prune_after_node_count: 1,
            ..rekindle::graph::CheckpointConfig::default()
        };
        let graph = Graph::builder("g")
            .options(RunOptions {
                durability: Durability::Sync,
                on_persist_failure: rekindle::PersistFailure::Degrade,
                ..RunOptions::default()
            })
            .checkpoints(config)
            .tool(noting(&ledger, "note"))
            .node(NodeSpec::tool("a", "note").with("what", "x"))
            .node(NodeSpec::tool("b", "note").with("what", "x"))
            .node(NodeSpec::tool("c", "note").with("what", "x"))
            .path(["a", "b", "c"])
            .build()
            .unwrap();
        faults.fail_once_at(call, rekindle_store::Fault::Unreachable);
        let Ok(run) = graph.run(GraphInput::new(), &session).await else { continue };
        match soon(run.report()).await {
            Ok(report) if report.outcome == RunOutcome::Succeeded => {}
            other => failed.push((call, other.map(|report| report.reason).map_err(|error| error.to_string()))),
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Cancelled while an agent in a strand waits, nothing stays open, and the graph can be run again.
#[tokio::test]
async fn a_graph_that_waits_in_an_agent_can_be_cancelled_and_run_again() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("x")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(echo().writes().needs_approval(Approval::default())));
    let graph = Graph::builder("g")
        .agent(agent)
        .tool(tool("join", "", async |_, of: Of| Ok::<_, ToolError>(of.what)))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::agent("a", "tester", "go"))
        .node(NodeSpec::agent("b", "tester", "go"))
        .node(NodeSpec::tool("join", "join").with("what", "x"))
        .path(["split", "a", "join"])
        .path(["split", "b", "join"])
        .build()
        .unwrap();
    for _ in 0..2 {
        let result = soon(graph.run_once(GraphInput::new(), &rig.again().await)).await.unwrap();
        assert_eq!((result.report.outcome, result.report.waits.len()), (RunOutcome::Waiting, 2));
        operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "no")).await.unwrap();
        let state = rig.state().await;
        assert_eq!((state.waits().count(), state.open_effects().count(), state.status()), (0, 0, Status::Cancelled));
    }
}

/// What a node waits for is listed as a wait, and is no call of which nobody knows whether it happened.
#[tokio::test]
async fn a_graph_at_a_wait_has_no_call_in_doubt() {
    let rig = Rig::memory().await;
    let ask: WaitNode = serde_json::from_value(json!({"prompt": "ok?"})).unwrap();
    let graph = Graph::builder("g").node(NodeSpec::new("ask", Work::Wait(ask))).build().unwrap();
    let report = graph.run(GraphInput::new(), &rig.session).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    let shown = operations::show(&rig.engine, rig.key()).await.unwrap();
    assert_eq!((shown.waits.len(), shown.effects.len()), (1, 1));
    assert_eq!(shown.effects[0].waits_for.as_ref(), Some(&shown.waits[0].opened.wait));
}
