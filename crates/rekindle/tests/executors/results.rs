//! Calls that came back, and what runs say of themselves.

use std::time::Duration;

use rekindle::core::record::RunOutcome;
use rekindle::graph::{Graph, GraphInput, NodeSpec};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{ToolContext, ToolError, ToolOutput, tool};
use rekindle::{Budget, Budgets, Json, Plan, Result, ResumeOptions, Secret, SecretRef, SecretSource};
use rekindle_models::{Script, Turn};

use crate::common::{noting, runs, step};
use crate::kit::{Rig, agent};
use crate::support::Of;

/// A payment came back well, and only its result does not have what the node saves: it is not paid again.
#[tokio::test]
async fn a_payment_that_came_back_is_not_repeated_because_its_result_cannot_be_saved() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .tool(noting(&ledger, "pay").writes().never_again())
        .node(NodeSpec::tool("pay", "pay").with("what", "5").save("id", "/id"))
        .build()
        .unwrap();
    let _ = graph.run_once(GraphInput::new(), &rig.session).await;
    let _ = graph.resume_once(&rig.again().await).await;
    assert_eq!(runs(&ledger, "pay"), 1);
}

/// The same for a key the node does not declare.
#[tokio::test]
async fn a_payment_that_came_back_is_not_repeated_because_it_remembers_an_undeclared_key() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let noted = ledger.clone();
    let pay = tool("pay", "", move |call, of: Of| {
        noted.write(&format!("{} {}", call.call_id(), call.idempotency_key()));
        async move {
            Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember("receipt", Json::from(of.what.as_str())))
        }
    });
    let graph = Graph::builder("g")
        .tool(pay.writes().never_again())
        .node(NodeSpec::tool("pay", "pay").with("what", "5"))
        .build()
        .unwrap();
    let _ = graph.run_once(GraphInput::new(), &rig.session).await;
    let _ = graph.resume_once(&rig.again().await).await;
    assert_eq!(runs(&ledger, "pay"), 1);
}

/// The same for a step whose result is larger than is kept.
#[tokio::test]
async fn a_payment_that_came_back_is_not_repeated_because_its_result_is_too_large() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = Plan::builder("p")
        .tool(noting(&ledger, "pay").writes().never_again().max_result_bytes(8))
        .step(step("pay", "pay", "a long receipt"))
        .build()
        .unwrap();
    let _ = plan.run_once("go", &rig.session).await;
    let _ = plan.resume_once(&rig.again().await).await;
    assert_eq!(runs(&ledger, "pay"), 1);
}

/// P6: the result says how many steps were executed, also if the run paused for want of a budget.
#[tokio::test]
async fn a_plan_that_paused_says_how_many_steps_it_executed() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let plan = Plan::builder("p")
        .budgets(Budgets::new().with(Budget::ToolCalls, 1))
        .tool(noting(&ledger, "note"))
        .step(step("one", "note", "1"))
        .step(step("two", "note", "2").after(["one"]))
        .build()
        .unwrap();
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!((result.report.outcome, result.steps_executed), (RunOutcome::Paused, 1));
}

/// A run that waits has a summary, too.
#[tokio::test]
async fn a_graph_that_waits_gives_its_summary() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").node(NodeSpec::question("ask", "ok?")).build().unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Waiting);
    assert!(result.report.value.is_some());
}

#[derive(Debug)]
struct Vault;

impl SecretSource for Vault {
    fn resolve(&self, _: &SecretRef) -> Result<Secret> {
        Ok(Secret::new("hunter2hunter2"))
    }
}

/// A secret that was given to a run is there for its child sessions too: nobody else can give it to them.
#[tokio::test]
async fn a_child_finds_the_secrets_of_its_parent() {
    let rig = Rig::memory().await;
    let session = rig.world.engine().with_secrets(Vault).open_session("s").await.unwrap();
    let login = tool("login", "", async |call: ToolContext, _: Of| {
        call.secret("key").await?;
        Ok::<_, ToolError>("in")
    });
    let child = Plan::builder("child").tool(login).step(step("login", "login", "x")).build().unwrap();
    let graph = Graph::builder("g").plan(child).node(NodeSpec::plan("child", "child")).build().unwrap();
    let options = ResumeOptions::new("maria").secret("key", "@env:KEY").unwrap();
    let report = graph.run_with(GraphInput::new(), &session, options).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
}

/// The timeout of a node counts, or is refused.
#[tokio::test]
async fn the_timeout_of_an_agent_s_node_counts_or_is_refused() {
    let rig = Rig::memory().await;
    let script = Script::new("m").turn(Turn::text("late").delayed(Duration::from_millis(400)));
    let (agent, _) = agent(script, |builder| builder);
    let node = NodeSpec::agent("work", "tester", "go").timeout(Duration::from_millis(20));
    let Ok(graph) = Graph::builder("g").agent(agent).node(node).build() else { return };
    let result = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert!(!result.success);
}

#[derive(serde::Deserialize, JsonSchema)]
struct Count {
    n: i64,
}
