//! What comes next: conditions, priorities, defaults, failures, cycles and their limits.

use rekindle::graph::{Condition, EdgeSpec, NodeSpec};
use rekindle::{Graph, GraphBuilder, Json, ResumeOptions};
use serde_json::{Value, json};

use crate::kit::{Rig, echo, failing, gives, node, noting, text, times};

/// A node `a` that gives `result`, with `edges` to `b`, `c` and `d`.
fn fork(result: Value, edges: Vec<EdgeSpec>) -> GraphBuilder {
    let mut builder = Graph::builder("g").tool(gives("a", result)).node(node("a"));
    for id in ["b", "c", "d"].into_iter().filter(|id| edges.iter().any(|edge| edge.to == *id)) {
        builder = builder.tool(echo(id)).node(node(id));
    }
    edges.into_iter().fold(builder, GraphBuilder::edge)
}

fn to(id: &str) -> EdgeSpec {
    EdgeSpec::new("a", id)
}

async fn check(edges: Vec<EdgeSpec>, expected: &str) {
    let rig = Rig::memory().await;
    let graph = fork(json!({ "score": 7 }), edges).memory("limit", 5).build().unwrap();
    assert_eq!(rig.run(&graph).await.unwrap().state.execution_path(), ["a", expected]);
}

#[tokio::test]
async fn edges_hold_by_memory_and_result_in_the_order_of_priority() {
    let high = || Condition::result().at("/score").at_least(7);
    let low = || Condition::memory("limit").more_than(5);
    check(vec![to("b").when(low()), to("c").when(high())], "c").await;
    check(vec![to("b").when(low()), to("c").when(low()), to("d").or_else()], "d").await;
    check(vec![to("d").or_else(), to("b").when(high())], "b").await;
    check(vec![to("b"), to("c")], "b").await;
    check(vec![to("b"), to("c").priority(1)], "c").await;
    check(vec![to("b").priority(2).when(low()), to("c").priority(1).when(high()), to("d")], "c").await;
}

#[tokio::test]
async fn an_edge_for_failures_is_followed_only_after_one() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .tool(failing(&ledger, "a", 1))
        .tool(noting(&ledger, "mend"))
        .tool(echo("end"))
        .node(node("a"))
        .node(node("mend"))
        .node(node("end"))
        .edge(EdgeSpec::new("a", "mend").when(Condition::failed()))
        .path(["mend", "a", "end"])
        .build()
        .unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(result.state.execution_path(), ["a", "mend", "a", "end"]);
    assert_eq!(result.state.path[0].error.as_deref(), Some("not yet"));
    assert!(result.state.metrics.nodes_with_failures.contains("a"));
    assert_eq!(times(&ledger, "a"), 2);
}

#[tokio::test]
async fn without_an_edge_for_it_a_failure_ends_the_run_and_a_resume_tries_again() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let builder = Graph::builder("g").tool(noting(&ledger, "first")).tool(failing(&ledger, "a", 2)).tool(echo("b"));
    let graph = crate::kit::row(builder, &["first", "a", "b"]).build().unwrap();
    for _ in 0..2 {
        let result = rig.run_or_resume(&graph).await.unwrap();
        assert_eq!(result.error.as_deref(), Some("node `a` failed: not yet"));
        assert_eq!(result.state.execution_path(), ["first"]);
    }
    assert!(rig.resume(&graph).await.unwrap().success);
    assert_eq!((times(&ledger, "first"), times(&ledger, "a")), (1, 3));
    assert_eq!(rig.graph().await.visits["a"], 1);
}

#[tokio::test]
async fn where_no_edge_holds_the_node_is_named_and_a_set_goes_on_without_repeating_it() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let both = Condition::result().at("/score").is(7).and(Condition::memory("go"));
    let node_a = NodeSpec::function("a").reads(["go?"]).save("result", "");
    let graph = Graph::builder("g")
        .tool(crate::kit::noting_then(&ledger, "a", |_| json!({ "score": 7 })))
        .tool(echo("b"))
        .node(node_a)
        .node(node("b"))
        .edge(to("b").when(both))
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = text(rig.run_or_resume(&graph).await);
        assert!(error.contains("no edge of node `a` holds, and it has no default"), "{error}");
    }
    let result = rig.resume_with(&graph, ResumeOptions::new("maria").set("go", "true")).await.unwrap();
    assert_eq!(result.state.execution_path(), ["a", "b"]);
    assert_eq!(times(&ledger, "a"), 1);
}

/// `a` and `b` in a circle, for ever.
fn circle(visits: u64) -> GraphBuilder {
    let builder = Graph::builder("g").max_visits(visits).tool(echo("a")).tool(echo("b"));
    crate::kit::row(builder, &["a", "b"]).path(["b", "a"])
}

#[tokio::test]
async fn a_limit_of_visits_is_named_lasts_over_resumes_and_can_be_raised() {
    let rig = Rig::memory().await;
    let graph = circle(3).build().unwrap();
    for _ in 0..2 {
        let error = text(rig.run_or_resume(&graph).await);
        assert!(error.contains("node `a` was visited 3 times, and its limit is 3"), "{error}");
        assert_eq!(rig.graph().await.path.len(), 6);
    }
    let raised = circle(5).build().unwrap();
    let refused = rig.resume(&raised).await.unwrap_err();
    assert_eq!(*refused.kind(), rekindle::ErrorKind::Drift);
    let error = text(rig.resume_with(&raised, ResumeOptions::new("maria").accept_drift("more")).await);
    assert!(error.contains("node `a` was visited 5 times, and its limit is 5"), "{error}");
    assert_eq!(rig.graph().await.visits.values().sum::<u64>(), 10);
}

#[tokio::test]
async fn a_node_may_have_a_limit_of_its_own() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").tool(echo("a")).node(node("a").max_visits(2)).path(["a", "a"]).build().unwrap();
    let error = text(rig.run(&graph).await);
    assert!(error.contains("node `a` was visited 2 times, and its limit is 2"), "{error}");
    assert_eq!(rig.graph().await.memory.get("none"), None::<&Json>);
}
