//! Fan-outs: strands that run at the same time, see nothing of each other, and meet.

use std::sync::Arc;

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Condition, EdgeSpec, Merge, NodeSpec, StrandStatus};
use rekindle::operations::{self, At, Change};
use rekindle::tool::{ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, Graph, GraphBuilder, Json, ResumeOptions};
use rekindle_models::{Call, Script, ScriptedModel};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::kit::{Given, Held, Rig, agent, echo, failing, gives, node, noting, text, times};
use crate::support::Kind;

/// A router that fans out to these nodes, which meet in `join`.
fn fan(nodes: &[NodeSpec], join: NodeSpec) -> GraphBuilder {
    let mut builder = Graph::builder("g").node(NodeSpec::router("fan").fan_out(&join.id)).tool(echo("join"));
    let meets = join.id.clone();
    for node in nodes {
        builder = builder.path(["fan", &node.id, &meets]).node(node.clone());
    }
    builder.node(join)
}

#[tokio::test]
async fn strands_run_at_the_same_time() {
    let rig = Rig::memory().await;
    let both = Arc::new(Barrier::new(3));
    let mut builder = fan(&[node("a"), node("b"), node("c")], node("join"));
    for name in ["a", "b", "c"] {
        let both = both.clone();
        builder = builder.tool(tool(name, "Waits for the others.", move |_, _: Given| {
            let both = both.clone();
            async move {
                both.wait().await;
                Ok::<_, ToolError>(name)
            }
        }));
    }
    assert!(rig.run(&builder.build().unwrap()).await.unwrap().success);
}

#[tokio::test]
async fn no_more_strands_run_than_the_limit_says() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let builder = fan(&[node("a"), node("b"), node("c")], node("join")).parallel(2);
    let builder = ["a", "b", "c"].into_iter().fold(builder, |builder, name| builder.tool(held.function(name)));
    let graph = builder.build().unwrap();
    let run = graph.run(Default::default(), &rig.session).await.unwrap();
    held.began().await;
    held.began().await;
    assert_eq!((held.calls(), rig.graph().await.strands[3].status), (2, StrandStatus::Next));
    (0..3).for_each(|_| held.release());
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(held.calls(), 3);
}

#[tokio::test]
async fn nodes_that_call_one_tool_share_its_limit() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let nodes = [NodeSpec::tool("a", "work"), NodeSpec::tool("b", "work")];
    let graph = fan(&nodes, node("join")).tool(held.function("work").concurrency(1)).build().unwrap();
    let run = graph.run(Default::default(), &rig.session).await.unwrap();
    for _ in 0..2 {
        held.began().await;
        held.release();
    }
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(held.most(), 1);
}

/// Nodes `a` and `b` write these values into `k`; `b` may end first.
async fn merged(
    merge: Option<Merge>,
    before: Option<Value>,
    (a, b): (Value, Value),
    b_first: bool,
) -> Result<Value, String> {
    let rig = Rig::memory().await;
    let (first, second) = (Held::default(), Held::default());
    let join = merge.map_or(node("join"), |merge| node("join").merge("k", merge));
    let spec = |id: &str| node(id).writes(["k"]).with("x", id).save("k", "");
    let mut builder = fan(&[spec("a"), spec("b")], join).reducer("sum", |before, values| {
        Ok(json!(before.into_iter().chain(values).filter_map(Value::as_i64).sum::<i64>()))
    });
    if let Some(before) = before {
        builder = builder.memory("k", before);
    }
    for (name, held, value) in [("a", first.clone(), a), ("b", second.clone(), b)] {
        builder = builder.tool(tool(name, "", move |call, given: Given| {
            let (held, value) = (held.function("x"), value.clone());
            async move {
                rekindle::tool::Tool::call(&held, &call, &Json::of(&given).unwrap()).await?;
                Ok::<_, ToolError>(rekindle::tool::ToolOutput::json(Json::from(value)))
            }
        }));
    }
    let graph = builder.build().unwrap();
    let run = graph.run(Default::default(), &rig.session).await.unwrap();
    first.began().await;
    second.began().await;
    let order = if b_first { [&second, &first] } else { [&first, &second] };
    order[0].release();
    until(&rig, 2).await;
    order[1].release();
    let report = run.report().await.map_err(|error| error.to_string())?;
    Ok(graph.result(&rig.session, report).await.unwrap().get("k").unwrap().unwrap())
}

/// Once so many nodes are completed.
async fn until(rig: &Rig, nodes: usize) {
    while rig.graph().await.path.len() < nodes {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn writes_are_merged_as_declared_whoever_ends_first() {
    let sum = || Some(Merge::Reducer("sum".into()));
    for b_first in [false, true] {
        let merged = async |merge, before, a: Value, b: Value| merged(merge, before, (a, b), b_first).await;
        assert_eq!(merged(Some(Merge::First), None, json!(1), json!(2)).await, Ok(json!(1)));
        assert_eq!(merged(Some(Merge::Last), None, json!(1), json!(2)).await, Ok(json!(2)));
        assert_eq!(merged(Some(Merge::Append), Some(json!([0])), json!(1), json!([2])).await, Ok(json!([0, 1, 2])));
        assert_eq!(merged(sum(), Some(json!(5)), json!(1), json!(2)).await, Ok(json!(8)));
        assert_eq!(merged(None, None, json!(1), json!(1)).await, Ok(json!(1)));
        let error = merged(None, None, json!(1), json!(2)).await.unwrap_err();
        assert!(error.contains("strands `0.1` and `0.2` wrote different values into memory key `k`"), "{error}");
        assert!(error.contains("node `join` does not say which counts"), "{error}");
    }
}

#[tokio::test]
async fn a_conflict_can_be_mended_by_a_rule_or_by_an_edit() {
    for by_rule in [true, false] {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let graph = |join: NodeSpec| {
            let nodes = [node("a").writes(["k"]).save("k", ""), node("b").writes(["k"]).save("k", "")];
            fan(&nodes, join).tool(noting(&ledger, "a")).tool(noting(&ledger, "b")).build().unwrap()
        };
        let broken = graph(node("join"));
        text(rig.run(&broken).await);
        let result = match by_rule {
            true => {
                let mended = graph(node("join").merge("k", Merge::Last));
                rig.resume_with(&mended, ResumeOptions::new("maria").accept_drift("a rule")).await
            }
            false => {
                let set = Change::SetRegister { key: "overlay/0.1/k".into(), value: Json::from("b") };
                operations::edit(&rig.engine, rig.key(), &At::Latest, &[set], "maria", "b is right").await.unwrap();
                rig.resume(&broken).await
            }
        };
        assert_eq!(result.unwrap().get::<String>("k").unwrap().as_deref(), Some("b"));
        assert_eq!((times(&ledger, "a"), times(&ledger, "b")), (1, 1));
    }
}

#[tokio::test]
async fn a_strand_never_sees_what_a_sibling_wrote() {
    let rig = Rig::memory().await;
    let seen = node("look").with("k", "${memory.k}").reads(["k"]).save("seen", "/k");
    let graph = fan(&[node("write").writes(["k"]).save("k", "")], node("join"))
        .memory("k", "old")
        .parallel(1)
        .tool(gives("write", "new"))
        .tool(echo("look"))
        .node(seen)
        .path(["fan", "look", "join"])
        .build()
        .unwrap();
    let result = rig.run(&graph).await.unwrap();
    let memory = serde_json::to_value(&result.state.memory).unwrap();
    assert_eq!(memory, json!({ "k": "new", "seen": "old" }));
    assert_eq!(result.state.execution_path(), ["fan", "write", "look", "join"]);
}

/// A fan-out within a fan-out; the inner one meets in `inner`, or where the outer one does.
fn nested(inner: &str) -> Graph {
    let append = |id: &str| node(id).merge("k", Merge::Append);
    let wrote = |id: &str| node(id).writes(["k"]).save("k", "");
    let mut builder = Graph::builder("g")
        .node(NodeSpec::router("fan").fan_out("join"))
        .node(wrote("a"))
        .node(NodeSpec::router("again").fan_out(inner))
        .node(wrote("b"))
        .node(wrote("c"))
        .node(append("join"))
        .path(["fan", "a", "join"])
        .path(["fan", "again", "b", inner])
        .path(["again", "c", inner]);
    if inner != "join" {
        builder = builder.node(append(inner)).path([inner, "join"]).tool(echo(inner));
    }
    let tools = ["a", "b", "c"].into_iter().fold(builder, |builder, id| builder.tool(gives(id, id)));
    tools.tool(echo("join")).build().unwrap()
}

#[tokio::test]
async fn fan_outs_may_be_nested_and_may_meet_in_one_node() {
    for (inner, visits) in [("inner", 6), ("join", 6)] {
        let rig = Rig::memory().await;
        let result = rig.run(&nested(inner)).await.unwrap();
        assert_eq!(result.get::<Vec<String>>("k").unwrap().unwrap(), ["a", "b", "c"], "{inner}");
        assert_eq!(result.state.visits["join"], 1);
        assert_eq!(result.state.path.len(), visits + usize::from(inner == "inner"));
        assert_eq!(result.state.strands.len(), 1);
    }
}

#[tokio::test]
async fn a_strand_that_waits_does_not_hold_up_the_others() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let ask = NodeSpec::question("ask", "Well?").writes(["verdict"]);
    let graph = fan(&[ask, node("work")], node("join")).tool(noting(&ledger, "work")).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Waiting);
    assert_eq!(result.state.execution_path(), ["fan", "work"]);
    rig.answer(json!("yes")).await;
    let result = rig.resume(&graph).await.unwrap();
    assert_eq!(result.get::<String>("verdict").unwrap().as_deref(), Some("yes"));
    assert_eq!((times(&ledger, "work"), result.state.visits["join"]), (1, 1));
}

#[tokio::test]
async fn an_answer_is_taken_while_another_strand_works() {
    for on_wait in [rekindle::OnWait::Suspend, rekindle::OnWait::Hold] {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let answered = ledger.clone();
        let tick = tool("tick", "Ends once the answer was taken.", move |_, _: Given| {
            let done = times(&answered, "after") > 0;
            async move { Ok::<_, ToolError>(done) }
        });
        let ask = NodeSpec::question("ask", "Well?").writes(["verdict"]);
        let graph = Graph::builder("g").node(NodeSpec::router("fan").fan_out("join")).on_wait(on_wait);
        let graph = [ask, node("after"), node("tick").max_visits(1_000_000), node("join")]
            .into_iter()
            .fold(graph, GraphBuilder::node);
        let graph = graph
            .path(["fan", "ask", "after", "join"])
            .path(["fan", "tick"])
            .edge(EdgeSpec::new("tick", "join").when(Condition::result().is(true)))
            .edge(EdgeSpec::new("tick", "tick").or_else());
        let graph = graph.tool(noting(&ledger, "after")).tool(tick).tool(echo("join")).build().unwrap();
        let run = graph.run(Default::default(), &rig.session).await.unwrap();
        while rig.waits().await.is_empty() {
            tokio::task::yield_now().await;
        }
        rig.answer(json!("yes")).await;
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Succeeded, "{on_wait:?}");
    }
}

#[tokio::test]
async fn a_strand_that_fails_lets_the_others_end_and_is_tried_again() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = fan(&[node("shaky"), node("sure")], node("join"))
        .tool(failing(&ledger, "shaky", 1))
        .tool(noting(&ledger, "sure"))
        .build()
        .unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(result.error.as_deref(), Some("node `shaky` failed: not yet"));
    assert_eq!(result.state.execution_path(), ["fan", "sure"]);
    assert!(rig.resume(&graph).await.unwrap().success);
    assert_eq!((times(&ledger, "shaky"), times(&ledger, "sure")), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_in_two_strands_keep_their_conversations_apart() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let set = |value: &str| json!({ "key": "x", "value": value });
        let script = |value: &str| Script::new("m").call("set_output", set(value)).text(format!("{value} is set"));
        let spec = |id: &str, other: &str| {
            NodeSpec::agent(id, id, format!("I am {id}"))
                .writes([format!("{id}_{other}"), "x".into()])
                .save(format!("{id}_{other}"), "")
        };
        let (left, model) = agent("left", script("l"));
        let (right, _) = agent("right", script("r"));
        let graph = fan(&[spec("left", "said"), spec("right", "said")], node("join").merge("x", Merge::Append))
            .durability(Durability::Sync)
            .agent(left)
            .agent(right)
            .build()
            .unwrap();
        let result = rig.run(&graph).await.unwrap();
        let memory = serde_json::to_value(&result.state.memory).unwrap();
        assert_eq!(memory, json!({ "x": ["l", "r"], "left_said": "l is set", "right_said": "r is set" }), "{kind:?}");
        assert_eq!(model.requests()[0].last, "I am left");
        assert_eq!(result.state.conversations.len(), 2);
        assert!(result.state.conversations.values().all(|said| said.len() == 4));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_strands_end_on_every_store() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let names: Vec<String> = (0..12).map(|number| format!("n{number}")).collect();
        let nodes: Vec<NodeSpec> = names.iter().map(|name| node(name).writes(["k"]).save("k", "")).collect();
        let builder = fan(&nodes, node("join").merge("k", Merge::Append)).parallel(12);
        let builder = names.iter().fold(builder, |builder, name| builder.tool(gives(name, name.as_str())));
        let result = rig.run(&builder.build().unwrap()).await.unwrap();
        assert_eq!(result.get::<Vec<String>>("k").unwrap().unwrap(), names, "{kind:?}");
    }
}

/// A strand that waits, one whose agent waits for an answer while its other call is `slow`, and one that
/// has two steps, all behind their own gates.
fn three_strands(slow: &Held, first: &Held, second: &Held) -> Graph {
    let ask = tool("ask", "Asks.", async |_, _: Given| Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::question("?"))));
    let script = Script::new("m").calls([Call::new("ask", json!({})), Call::new("slow", json!({}))]).text("heard");
    let writer = Agent::builder("writer", ScriptedModel::new(script)).tool(ask).tool(slow.function("slow"));
    let nodes = [NodeSpec::question("other", "Well?"), NodeSpec::agent("write", "writer", "Go").save("said", "")];
    let graph = fan(&nodes, node("join")).node(node("first")).node(node("second"));
    let graph = graph.path(["fan", "first", "second", "join"]).agent(writer.build().unwrap());
    graph.tool(first.function("first")).tool(second.function("second")).build().unwrap()
}

#[tokio::test]
async fn an_answer_to_a_strand_that_is_under_way_is_not_forgotten() {
    let rig = Rig::memory().await;
    let (slow, first, second) = (Held::default(), Held::default(), Held::default());
    let graph = three_strands(&slow, &first, &second);
    let run = graph.run(Default::default(), &rig.session).await.unwrap();
    slow.began().await;
    first.began().await;
    let asked = loop {
        let waits = rig.waits().await;
        match waits.iter().find(|wait| wait.prompt == "?") {
            Some(asked) if waits.len() == 2 => break asked.wait.clone(),
            _ => tokio::task::yield_now().await,
        }
    };
    let answer = operations::Answer::value(asked, Json::from("yes"), "maria");
    operations::answer(&rig.engine, rig.key(), &answer).await.unwrap();
    // The strand that waits is told of the answer before the agent can look at it again.
    first.release();
    second.began().await;
    slow.release();
    second.release();
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Waiting);
    assert_eq!(rig.wait().await.prompt, "Well?", "what was answered is done");
}
