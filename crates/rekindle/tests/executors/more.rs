//! Tools, agents and middleware inside nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{EdgeSpec, Graph, GraphInput, NodeSpec};
use rekindle::operations::{self};
use rekindle::tool::{Checked, ToolError, tool};
use rekindle::{Budget, Budgets, Json, ResumeOptions};
use rekindle_models::{Call, Script};
use rekindle_store::Fault;
use serde_json::json;

use crate::common::{noting, runs, soon};
use crate::kit::{Rig, agent, echo, of};
use crate::support::{Kind, Of};

/// F9: a tool that allows one call at a time is called once at a time, whichever nodes call it.
#[tokio::test]
async fn the_concurrency_of_a_tool_is_limited_over_all_nodes() {
    let rig = Rig::memory().await;
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = most.clone();
    let one = tool("one", "", move |_, of: Of| {
        let (now, most) = (now.clone(), most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ToolError>(of.what)
        }
    });
    let node = |id: &str| NodeSpec::tool(id, "one").with("what", id);
    let graph = Graph::builder("g")
        .tool(one.concurrency(1))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(node("a"))
        .node(node("b"))
        .node(node("c"))
        .node(node("join"))
        .path(["split", "a", "join"])
        .path(["split", "b", "join"])
        .path(["split", "c", "join"])
        .build()
        .unwrap();
    assert!(graph.run_once(GraphInput::new(), &rig.session).await.unwrap().success);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// A second run has conversations of its own; those of the first are not part of its state, as its path is not.
#[tokio::test]
async fn the_state_of_a_second_run_shows_its_own_conversations() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("one").text("two"), |builder| builder);
    let graph = Graph::builder("g").agent(agent).node(NodeSpec::agent("work", "tester", "go")).build().unwrap();
    graph.run_once(GraphInput::new(), &rig.again().await).await.unwrap();
    let second = graph.run_once(GraphInput::new(), &rig.again().await).await.unwrap();
    assert_eq!(second.state.path.len(), 1);
    assert_eq!(second.state.conversations.len(), 1, "{:?}", second.state.conversations.keys());
}

/// R7: raising a budget is explicit and recorded, and helps the visit of an agent, too.
#[tokio::test]
async fn the_iterations_of_a_visit_can_be_raised() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("1")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(echo()).budgets(Budgets::new().with(Budget::Iterations, 1)));
    let graph = Graph::builder("g").agent(agent).node(NodeSpec::agent("work", "tester", "go")).build().unwrap();
    let failed = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert!(failed.error.unwrap().contains("iterations"));
    let options = ResumeOptions::new("maria").raise(Budget::Iterations, 10);
    let session = rig.again().await;
    let report = graph.resume_with(&session, options).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
}

/// What a call under way did must be on record, whatever is wrong with its neighbour.
#[tokio::test]
async fn a_call_under_way_is_not_dropped_because_its_neighbour_cannot_go_on() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    // Dies while all three are under way.
    let die = faults.clone();
    let first = {
        let ledger = ledger.clone();
        tool("first", "", move |call, _: Of| {
            let ledger = ledger.clone();
            async move {
                ledger.write(&format!("begin {}", call.attempt()));
                tokio::time::sleep(Duration::from_millis(150)).await;
                ledger.write(&format!("end {}", call.attempt()));
                Ok::<_, ToolError>("x")
            }
        })
    };
    let second = tool("second", "", async |_, _: Of| {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Ok::<_, ToolError>("x")
    });
    let second = second.writes().check(async |_, _: Of| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(Checked::Happened(Json::from("x")))
    });
    let third = tool("third", "", move |_, _: Of| {
        die.fail_from(0, Fault::Unreachable);
        async move { Ok::<_, ToolError>("x") }
    });
    let calls = [Call::new("first", of("1")), Call::new("second", of("2")), Call::new("third", of("3"))];
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder
            .durability(Durability::Sync)
            .tool(first.writes().idempotent())
            .tool(second)
            .tool(third.writes().never_again())
    });
    agent.run_once("go", &session).await.unwrap_err();
    rig.world.pass_leases();
    let session = rig.again().await;
    let error = agent.resume(&session).await.unwrap().report().await.unwrap_err();
    assert_eq!(error.code(), "RK0022", "{error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let lines = ledger.lines();
    assert!(lines.contains(&"begin 2".to_owned()), "{lines:?}");
    assert!(lines.contains(&"end 2".to_owned()), "begun and thrown away: {lines:?}");
}

/// Many agents side by side in one task, with the default options and on disk, do not wait for each other for ever.
#[tokio::test]
async fn many_agents_side_by_side_do_not_stand_still() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for durability in [Durability::Sync, Durability::Async] {
            let rig = Rig::new(kind).await;
            let script = Script::new("m")
                .by(rekindle_models::By::Messages)
                .calls([Call::new("echo", of("1")), Call::new("slow", of("2")), Call::new("echo", of("3"))])
                .call("slow", of("4"))
                .text("done");
            let slow = tool("slow", "", async |call, of: Of| {
                tokio::time::sleep(Duration::from_millis(110)).await;
                rekindle::tool::ToolContext::checkpoint(&call, "here").await?;
                Ok::<_, ToolError>(of.what)
            });
            let (agent, _) = agent(script, |builder| builder.tool(echo()).tool(slow.writes().idempotent()));
            let mut builder = Graph::builder("g")
                .durability(durability)
                .parallel(20)
                .agent(agent)
                .tool(echo())
                .node(NodeSpec::router("split").fan_out("join"))
                .node(NodeSpec::tool("join", "echo").with("what", "x"));
            for number in 0..20 {
                let id = format!("a{number}");
                builder = builder.node(NodeSpec::agent(&id, "tester", "go")).path(["split", &id, "join"]);
            }
            let graph = builder.entry("split").build().unwrap();
            let result = soon(graph.run_once(GraphInput::new(), &rig.session)).await.unwrap();
            assert!(result.success, "{:?}", result.error);
        }
    }
}

/// Counts what it sees, "as long as the session".
#[derive(Debug)]
struct Counter(rekindle::middleware::Scope, std::sync::Arc<std::sync::Mutex<Vec<u32>>>);

#[rekindle::async_trait]
impl rekindle::middleware::Middleware for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn state(&self) -> rekindle::middleware::StateSpec {
        rekindle::middleware::StateSpec { scope: self.0, ..Default::default() }
    }

    async fn before_model(
        &self,
        state: &mut rekindle::middleware::MiddlewareState,
        _: &mut rekindle::model::ModelRequest,
    ) -> rekindle::Result<rekindle::middleware::Verdict> {
        let count = state.get::<u32>()?.unwrap_or(0) + 1;
        state.set(&count)?;
        self.1.lock().unwrap().push(count);
        Ok(rekindle::middleware::Verdict::Continue)
    }
}

/// `Scope::Session`, the default, lasts as long as the session inside nodes, too: limits that middleware keeps hold.
#[tokio::test]
async fn the_state_of_middleware_lasts_as_long_as_the_session_inside_nodes_too() {
    let rig = Rig::memory().await;
    let seen = Arc::default();
    let (agent, _) = agent(Script::new("m").text("done").repeating_last(), |builder| {
        builder.middleware(Counter(rekindle::middleware::Scope::Session, Arc::clone(&seen)))
    });
    let graph = Graph::builder("g")
        .agent(agent)
        .node(NodeSpec::agent("a", "tester", "go"))
        .node(NodeSpec::agent("b", "tester", "go"))
        .path(["a", "b"])
        .build()
        .unwrap();
    assert!(graph.run_once(GraphInput::new(), &rig.session).await.unwrap().success);
    assert_eq!(*seen.lock().unwrap(), [1, 2]);
}

/// `Scope::Run` lasts until the run ends, also if the agent is reminded of an output.
#[tokio::test]
async fn the_state_of_middleware_of_a_run_lasts_over_a_reminder() {
    let rig = Rig::memory().await;
    let seen = Arc::default();
    let script = Script::new("m").text("forgot").call("set_output", json!({"key": "x", "value": 1})).text("done");
    let (agent, _) =
        agent(script, |builder| builder.middleware(Counter(rekindle::middleware::Scope::Run, Arc::clone(&seen))));
    let graph = Graph::builder("g")
        .agent(agent)
        .node(NodeSpec::agent("a", "tester", "go").writes(["x", "y"]).save("y", ""))
        .build()
        .unwrap();
    assert!(graph.run_once(GraphInput::new(), &rig.session).await.unwrap().success);
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

/// What an operator wrote into the memory of a session before its first run is there when it runs, as with agents.
#[tokio::test]
async fn an_edit_before_the_first_run_is_not_thrown_away() {
    let rig = Rig::memory().await;
    let change = operations::Change::SetMemory { key: "region".into(), value: Json::from("eu") };
    operations::edit(&rig.engine, rig.key(), &operations::At::Latest, &[change], "maria", "x").await.unwrap();
    let plan = rekindle::Plan::builder("p")
        .tool(echo())
        .step(crate::common::step("one", "echo", "${context.region}"))
        .build()
        .unwrap();
    let result = plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(result.error, None);
}

/// Two different numbers are not the same one.
#[tokio::test]
async fn large_numbers_are_told_apart() {
    use rekindle::graph::Condition;
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .memory("id", u64::MAX)
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::router("which").reads(["id"]))
        .node(NodeSpec::tool("wrong", "note").with("what", "x"))
        .node(NodeSpec::tool("right", "note").with("what", "x"))
        .edge(EdgeSpec::new("which", "wrong").when(Condition::memory("id").is(u64::MAX - 1)))
        .edge(EdgeSpec::new("which", "right").or_else())
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert_eq!((runs(&ledger, "wrong"), runs(&ledger, "right")), (0, 1));
}

/// A run that waits says that a strand has failed: nobody would look after it otherwise.
#[tokio::test]
async fn a_run_that_waits_does_not_hide_what_failed() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g")
        .tool(echo())
        .tool(tool("fails", "", async |_, _: Of| Err::<(), _>(ToolError::failed("disk full"))))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::tool("a", "fails").with("what", "x"))
        .node(NodeSpec::question("b", "ok?"))
        .node(NodeSpec::tool("join", "echo").with("what", "x"))
        .path(["split", "a", "join"])
        .path(["split", "b", "join"])
        .build()
        .unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Waiting);
    assert!(result.error.as_deref().unwrap_or_default().contains("disk full"), "{:?}", result.error);
}
