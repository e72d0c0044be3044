//! Second runs that die early, and parents that are cancelled.

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Graph, GraphInput, NodeSpec};
use rekindle::operations::{self, ControlOptions};
use rekindle::plan::{PlanInput, StepSpec};
use rekindle::tool::{Approval, ToolError, tool};
use rekindle::{Plan, ResumeOptions, Status};
use rekindle_store::Fault;

use crate::common::{noting, output, step};
use crate::kit::Rig;
use crate::support::Of;

/// P5: a finished run is never taken for a new one, however large the input and wherever the process dies.
#[tokio::test]
async fn a_second_run_that_dies_early_is_not_taken_for_the_first() {
    for fail_at in 0..12 {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let plan = Plan::builder("p")
            .durability(Durability::Sync)
            .tool(noting(&ledger, "note"))
            .step(step("one", "note", "${query}"))
            .build()
            .unwrap();
        plan.run_once("first", &rig.session).await.unwrap();
        let mut input = PlanInput::query("second");
        for number in 0..5_000 {
            input = input.with(format!("key{number}"), number);
        }
        let (session, faults) = rig.faulty().await;
        faults.fail_from(fail_at, Fault::Unreachable);
        if plan.run_once(input, &session).await.is_ok() {
            break;
        }
        rig.world.pass_leases();
        let result = plan.resume_once(&rig.again().await).await;
        if let Ok(result) = result {
            assert_eq!(
                (fail_at, result.state.query.as_str(), output(&result.state, "one")),
                (fail_at, "second", "second".into())
            );
        }
    }
}

/// A cancelled parent leaves nothing behind that waits for somebody: nobody would ever go on with it.
#[tokio::test]
async fn a_child_that_waits_is_cancelled_with_its_parent() {
    let rig = Rig::memory().await;
    let ask =
        tool("ask", "", async |_, of: Of| Ok::<_, ToolError>(of.what)).writes().needs_approval(Approval::default());
    let child = Plan::builder("child").tool(ask).step(step("ask", "ask", "x")).build().unwrap();
    let parent =
        Plan::builder("parent").tool(child.as_tool("child")).step(StepSpec::new("call", "child")).build().unwrap();
    let result = parent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Waiting);
    operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "enough")).await.unwrap();
    let open = operations::waits(&rig.engine, &rig.key().namespace).await.unwrap();
    assert_eq!(open.waits.len(), 0, "{:?}", open.waits.iter().map(|wait| wait.session.to_string()).collect::<Vec<_>>());
}

/// The same for the children of children.
#[tokio::test]
async fn children_of_children_are_cancelled_too() {
    let rig = Rig::memory().await;
    let ask =
        tool("ask", "", async |_, of: Of| Ok::<_, ToolError>(of.what)).writes().needs_approval(Approval::default());
    let child = Plan::builder("child").tool(ask).step(step("ask", "ask", "x")).build().unwrap();
    let middle =
        Plan::builder("middle").tool(child.as_tool("child")).step(StepSpec::new("call", "child")).build().unwrap();
    let graph = Graph::builder("g").plan(middle).node(NodeSpec::plan("work", "middle")).build().unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Waiting);
    for _ in 0..2 {
        operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "enough")).await.unwrap();
        let open = operations::waits(&rig.engine, &rig.key().namespace).await.unwrap();
        assert_eq!(open.waits.len(), 0);
        let middle = &operations::show(&rig.engine, rig.key()).await.unwrap().children[0];
        assert_eq!(middle.status, Status::Cancelled);
        let child = &operations::show(&rig.engine, &middle.session).await.unwrap().children[0];
        assert_eq!(child.status, Status::Cancelled);
    }
}

/// The same for a graph.
#[tokio::test]
async fn a_second_run_of_a_graph_that_dies_early_can_be_gone_on_with() {
    for fail_at in 0..12 {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let graph = Graph::builder("g")
            .durability(Durability::Sync)
            .tool(noting(&ledger, "note"))
            .node(NodeSpec::tool("one", "note").with("what", "x"))
            .build()
            .unwrap();
        graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
        let mut input = GraphInput::new();
        for number in 0..5_000 {
            input = input.with(format!("key{number}"), number);
        }
        let (session, faults) = rig.faulty().await;
        faults.fail_from(fail_at, Fault::Unreachable);
        if graph.run_once(input, &session).await.is_ok() {
            break;
        }
        rig.world.pass_leases();
        let session = rig.again().await;
        if let Ok(run) = graph.resume(&session).await {
            let report = run.report().await;
            assert!(report.is_ok(), "{fail_at}: {:?}", report.unwrap_err());
        }
    }
}

/// The same for an agent.
#[tokio::test]
async fn a_second_turn_that_dies_early_is_not_answered_with_the_first() {
    for fail_at in 0..12 {
        let rig = Rig::memory().await;
        let script = rekindle_models::Script::new("m").text("one").text("two");
        let (agent, _) = crate::kit::agent(script, |builder| builder.durability(Durability::Sync));
        agent.run_once("first", &rig.session).await.unwrap();
        let messages: Vec<rekindle::Message> =
            (0..5_001).map(|number| format!("message {number}").as_str().into()).collect();
        let (session, faults) = rig.faulty().await;
        faults.fail_from(fail_at, Fault::Unreachable);
        let died = match agent.run_with(messages, &session, ResumeOptions::default()).await {
            Ok(run) => run.report().await.is_err(),
            Err(_) => true,
        };
        if !died {
            break;
        }
        rig.world.pass_leases();
        let session = rig.again().await;
        if let Ok(run) = agent.resume(&session).await {
            let report = run.report().await.unwrap();
            assert_eq!((fail_at, report.text().as_str()), (fail_at, "two"));
        }
    }
}
