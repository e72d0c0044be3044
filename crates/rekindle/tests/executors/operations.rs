//! What people do to sessions of plans and graphs.

use rekindle::core::record::InboxMode;
use rekindle::graph::{Graph, GraphInput, NodeSpec};
use rekindle::operations::{self, At, Change};
use rekindle::tool::{ToolError, tool};
use rekindle::{Json, Plan};
use rekindle_models::Script;
use serde_json::json;

use crate::common::{noting, step};
use crate::kit::{Held, Rig, agent, of};
use crate::support::Of;

/// Plans and graphs read no messages: one that is sent to them is refused, and nobody is promised that it is read.
#[tokio::test]
async fn a_message_to_a_plan_is_no_promise() {
    let rig = Rig::memory().await;
    let plan =
        Plan::builder("p").tool(noting(&rig.world.ledger(), "note")).step(step("one", "note", "1")).build().unwrap();
    plan.run_once("go", &rig.session).await.unwrap();
    let sent = operations::send(&rig.engine, rig.key(), "more".into(), InboxMode::Queue, "maria", None).await;
    if sent.is_err() {
        return;
    }
    let shown = operations::show(&rig.engine, rig.key()).await.unwrap();
    let resumed = plan.resume(&rig.again().await).await.map(drop).map_err(|error| error.to_string());
    assert_eq!(shown.resumable.resumable, resumed.is_ok(), "{:?} {resumed:?}", shown.resumable);
}

/// E1: an error says what to do next, and that helps.
#[tokio::test]
async fn an_unfinished_plan_gives_no_advice_that_leads_nowhere() {
    let rig = Rig::memory().await;
    let fails = tool("fails", "", async |_, _: Of| Err::<(), _>(ToolError::failed("no")));
    let plan = Plan::builder("p").tool(fails).step(step("one", "fails", "1")).build().unwrap();
    plan.run_once("go", &rig.session).await.unwrap();
    let error = plan.run("again", &rig.session).await.map(drop).unwrap_err();
    assert!(!error.next_step().contains("inbox"), "{}", error.next_step());
}

/// "Those the engine reads must still make sense to it": what would brick the session is refused.
#[tokio::test]
async fn an_edit_that_nobody_could_read_is_refused() {
    let rig = Rig::memory().await;
    let fails = tool("fails", "", async |_, _: Of| Err::<(), _>(ToolError::failed("no")));
    let plan = Plan::builder("p")
        .tool(fails)
        .tool(noting(&rig.world.ledger(), "note"))
        .step(step("one", "note", "1"))
        .step(step("two", "fails", "1").after(["one"]))
        .build()
        .unwrap();
    plan.run_once("go", &rig.session).await.unwrap();
    let change = Change::SetLogItem { log: "results".into(), index: 0, item: Json::from("nonsense") };
    let edited = operations::edit(&rig.engine, rig.key(), &At::Latest, &[change], "maria", "why not").await;
    let resumed = plan.resume(&rig.again().await).await.map(drop);
    assert!(edited.is_err(), "accepted, and now: {resumed:?}");
}

#[tokio::test]
async fn an_edit_of_a_node_s_loop_that_nobody_could_read_is_refused() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let (agent, _) =
        agent(Script::new("m").call("hold", of("y")).text("done"), |builder| builder.tool(held.tool("hold")));
    let graph = Graph::builder("g").agent(agent).node(NodeSpec::agent("work", "tester", "go")).build().unwrap();
    let run = graph.run(GraphInput::new(), &rig.session).await.unwrap();
    held.began().await;
    run.stop("now");
    run.stop("now");
    run.report().await.unwrap();
    let key = rig.state().await.registers().map(|(key, _)| key.to_string()).find(|key| key.ends_with("/loop")).unwrap();
    let change = Change::SetRegister { key, value: Json::from("nonsense") };
    let edited = operations::edit(&rig.engine, rig.key(), &At::Latest, &[change], "maria", "why not").await;
    assert!(edited.is_err(), "accepted");
}

/// C9: two runs of one plan that did the same differ in when they did it, and in nothing else.
#[tokio::test]
async fn two_runs_of_a_plan_that_did_the_same_are_the_same() {
    let rig = Rig::memory().await;
    let plan =
        Plan::builder("p").tool(noting(&rig.world.ledger(), "note")).step(step("one", "note", "1")).build().unwrap();
    plan.run_once("go", &rig.session).await.unwrap();
    rig.world.clock.advance(std::time::Duration::from_secs(60));
    let other = rig.engine.create("other").await.unwrap();
    plan.run_once("go", &other).await.unwrap();
    let compared =
        operations::compare(&rig.engine, (rig.key(), &At::Latest), (other.key(), &At::Latest)).await.unwrap();
    assert!(compared.same, "{compared:?}");
}

/// Two runs of a graph, too.
#[tokio::test]
async fn two_runs_of_a_graph_that_did_the_same_are_the_same() {
    let rig = Rig::memory().await;
    let slow = tool("slow", "", async |call: rekindle::tool::ToolContext, of: Of| {
        let first = call.session().id.as_str() == "other";
        tokio::time::sleep(std::time::Duration::from_millis(if first { 30 } else { 1 })).await;
        Ok::<_, ToolError>(of.what)
    });
    let node = NodeSpec::tool("one", "slow").with("what", "1");
    let graph = Graph::builder("g").tool(slow).node(node).build().unwrap();
    graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    let other = rig.engine.create("other").await.unwrap();
    graph.run_once(GraphInput::new(), &other).await.unwrap();
    let compared =
        operations::compare(&rig.engine, (rig.key(), &At::Latest), (other.key(), &At::Latest)).await.unwrap();
    assert!(compared.same, "{compared:?}");
}

/// Forked at any mark of a split with agents in it, a graph comes to the same end.
#[tokio::test]
async fn a_split_can_be_forked_at_every_mark() {
    for kind in crate::support::Kind::ALL {
        let rig = Rig::new(kind).await;
        let script =
            Script::new("m").call("note", of("x")).call("set_output", json!({"key": "price", "value": 5})).text("done");
        let ledger = rig.world.ledger();
        let (agent, _) = agent(script, |builder| builder.tool(noting(&ledger, "note").writes().idempotent()));
        let graph = Graph::builder("g")
            .checkpoints(rekindle::graph::CheckpointConfig {
                on_loop_iteration: true,
                on_edge: true,
                ..Default::default()
            })
            .agent(agent)
            .tool(noting(&ledger, "note").writes().idempotent())
            .node(NodeSpec::router("split").fan_out("join"))
            .node(NodeSpec::agent("work", "tester", "go").writes(["price", "answer"]).save("answer", ""))
            .node(NodeSpec::tool("a", "note").with("what", "a").save("a", ""))
            .node(NodeSpec::tool("b", "note").with("what", "${memory.a}").reads(["a"]).save("b", ""))
            .node(
                NodeSpec::tool("join", "note")
                    .with("what", "${memory.price}${memory.b}")
                    .reads(["price", "b"])
                    .save("end", ""),
            )
            .path(["split", "work", "join"])
            .path(["split", "a", "b", "join"])
            .build()
            .unwrap();
        let whole = graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
        assert!(whole.success, "{:?}", whole.error);
        let marks = rig.engine.journal().checkpoints(rig.key(), None, None, 100).await.unwrap();
        for mark in marks.iter().skip(1) {
            let context = format!("{kind:?} {}", mark.checkpoint.description);
            let forked =
                operations::fork(&rig.engine, rig.key(), &At::Position(mark.position.clone()), Default::default())
                    .await;
            let forked = forked.unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let session = rig.again().await;
            let options = rekindle::ResumeOptions::new("m").on_branch(forked.branch);
            let run = graph.resume_with(&session, options).await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let report = run.report().await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let result = graph.result(&session, report).await.unwrap();
            assert_eq!(
                (result.success, &result.state.memory, &result.state.visits),
                (true, &whole.state.memory, &whole.state.visits),
                "{context}"
            );
            assert_eq!(result.state.path.len(), whole.state.path.len(), "{context}");
        }
    }
}
