//! What is wrong with a graph is named with its id and its place before anything runs; and large
//! graphs are checked and run in time that follows their size.

use rekindle::graph::{CheckpointConfig, Condition, EdgeSpec, GraphInput, GraphSpec, Merge, NodeSpec};
use rekindle::{Graph, GraphBuilder};
use serde_json::json;

use crate::kit::{Rig, echo, node};

/// Building it fails, and the error says all of that.
fn refused(builder: GraphBuilder, says: &[&str]) {
    let error = builder.build().unwrap_err().to_string();
    for part in says {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

/// Nodes `a` and `b`, one after the other, with their functions.
fn base() -> GraphBuilder {
    Graph::builder("g").tool(echo("a")).tool(echo("b")).node(node("a")).node(node("b")).path(["a", "b"])
}

/// One node.
fn one(spec: NodeSpec) -> GraphBuilder {
    Graph::builder("g").tool(echo("a")).node(spec)
}

#[test]
fn ids_entries_and_edges_are_checked() {
    refused(Graph::builder("g"), &["nodes: there are none", "entry"]);
    refused(base().node(node("a")), &["nodes[2].id: `a` is also the id of nodes[0]"]);
    refused(base().node(node("a b")).path(["b", "a b"]), &["nodes[2].id: `a b` is no id"]);
    refused(base().node(node("")).path(["b", ""]), &["nodes[2].id"]);
    refused(base().entry("c"), &["entry: there is no node `c`"]);
    refused(base().path(["b", "c"]), &["edges[1].to (`b` → `c`): there is no node `c`"]);
    refused(base().path(["c", "b"]), &["edges[1].from (`c` → `b`): there is no node `c`"]);
    refused(base().node(node("c")).tool(echo("c")), &["nodes[2]: node `c` cannot be reached from `a`"]);
    let both = EdgeSpec::new("a", "b").or_else().when(Condition::memory("x"));
    refused(base().edge(both), &["edges[1].default (`a` → `b`): a default edge has no condition"]);
    let default = || EdgeSpec::new("a", "b").or_else();
    refused(base().edge(default()).edge(default()), &["edges[2].default", "edges[1] is the default of `a` already"]);
    refused(
        base().edge(EdgeSpec::new("a", "b").when(Condition::memory("x").at("y").is(1))),
        &["edges[1].when", "write `/y`"],
    );
}

#[test]
fn joins_are_checked() {
    let fan =
        |join: &str| Graph::builder("g").node(NodeSpec::router("fan").fan_out(join)).tool(echo("a")).tool(echo("b"));
    refused(
        fan("fan").path(["fan", "a"]).node(node("a")),
        &["nodes[0].fan_out (node `fan`): a node cannot be its own join"],
    );
    refused(
        fan("none").path(["fan", "a"]).node(node("a")),
        &["nodes[0].fan_out (node `fan`): there is no node `none`"],
    );
    let never = fan("b").node(node("a")).node(node("b")).path(["fan", "a"]).path(["fan", "b"]);
    refused(never, &["nodes[0].fan_out (node `fan`)", "the join `b` can never complete: `a` does not lead to it"]);
    let ends = fan("b")
        .node(node("a"))
        .node(node("b"))
        .node(node("c"))
        .tool(echo("c"))
        .path(["fan", "a", "b"])
        .path(["a", "c"]);
    refused(ends, &["the join `b` may never complete: after `a`, `c` is an end"]);
    refused(one(node("a").merge("k", Merge::Last)), &["nodes[0].merge (node `a`): nothing meets here"]);
    let reducer = node("b").merge("k", Merge::Reducer("none".into()));
    let reduces = fan("b").node(node("a")).node(reducer).path(["fan", "a", "b"]);
    refused(reduces, &["nodes[2].merge (node `b`): `k` wants the reducer `none`"]);
}

#[test]
fn what_is_not_registered_is_named() {
    let check = |spec: NodeSpec, what: &str| {
        refused(one(node("a")).node(spec.clone()).path(["a", &spec.id]), &["nodes[1] (node `x`)", what]);
    };
    check(node("x"), "there is no function `x`");
    check(NodeSpec::tool("x", "t"), "there is no tool `t`; there are: a");
    check(NodeSpec::agent("x", "w", "Go"), "there is no agent `w`; there are none");
    check(NodeSpec::plan("x", "p"), "there is no plan `p`");
    check(NodeSpec::graph("x", "h"), "there is no graph `h`");
    let router = NodeSpec::router("x").chosen_by("r");
    check(router, "there is no router `r`");
}

#[test]
fn references_and_declarations_are_checked() {
    let reads = node("a").with("k", "${memory.k}");
    refused(one(reads.clone()), &["nodes[0] (node `a`)", "`${memory.k}`", "which the node does not declare"]);
    refused(one(reads.reads(["k"])), &["nodes[0].reads (node `a`): nobody writes `k`, and it is no input"]);
    refused(one(node("a").with("k", "${steps.k}")), &["must begin with `memory.<key>`"]);
    refused(
        one(node("a").save("k", "x/y")),
        &["nodes[0].save (node `a`): `x/y` for `k` is no JSON Pointer; write `/x/y`"],
    );
    refused(one(node("a").max_visits(0)), &["nodes[0].max_visits (node `a`)"]);
    refused(base().max_visits(0), &["nodes[0].max_visits (node `a`)", "nodes[1].max_visits (node `b`)"]);
    refused(base().parallel(0), &["parallel: must be at least 1"]);
    refused(one(NodeSpec::router("a")), &["nodes[0] (node `a`): a router needs edges"]);
    refused(one(NodeSpec::question("a", "")), &["nodes[0] (node `a`)", "neither what a person is asked"]);
}

#[test]
fn keys_that_are_written_by_their_beginning_count_as_written() {
    let builder = base().node(node("c").writes(["page_*"])).tool(echo("c")).path(["b", "c", "d"]);
    let reads = node("d").reads(["page_1"]);
    builder.node(reads).tool(echo("d")).build().unwrap();
}

#[tokio::test]
async fn a_missing_input_is_named_before_anything_is_recorded() {
    let rig = Rig::memory().await;
    let graph = base().inputs(["city", "day"]).build().unwrap();
    let error = graph.run_once(GraphInput::new().with("day", 1), &rig.session).await.unwrap_err();
    assert!(error.message().contains("the graph `g` needs the inputs `city`"), "{error}");
    assert!(rig.records().await.is_empty());
}

#[test]
fn words_nobody_knows_are_refused_in_json() {
    let graph = |more: serde_json::Value| {
        let mut value = json!({ "name": "g", "entry": "a", "nodes": [{ "id": "a", "kind": "router" }], "edges": [] });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<GraphSpec>(value).map_err(|error| error.to_string())
    };
    let cases = [
        (json!({ "parralel": 3 }), "`parralel`"),
        (json!({ "nodes": [{ "id": "a", "kind": "router", "readz": [] }] }), "`readz`"),
        (json!({ "edges": [{ "from": "a", "to": "a", "weight": 1 }] }), "`weight`"),
        (json!({ "checkpoints": { "on_node": true } }), "`on_node`"),
    ];
    for (more, word) in cases {
        let error = graph(more).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    assert!(graph(json!({ "edges": [{ "from": "a", "to": "a", "when": { "memry": "x" } }] })).is_err());
}

/// Quadratic work anywhere would take minutes. Marks are switched off, as they are most of the work.
#[tokio::test]
async fn twenty_thousand_nodes_in_a_row_are_built_and_run() {
    let rig = Rig::memory().await;
    let names: Vec<String> = (0..20_000).map(|number| format!("n{number}")).collect();
    let mut builder = Graph::builder("long").memory("k", 0).tool(echo("work"));
    for (number, name) in names.iter().enumerate() {
        let works = number % 8 == 0 || number == 19_999;
        let spec = NodeSpec::tool(name, "work").reads(["k"]).save(format!("k_{name}"), "");
        builder = builder.node(if works { spec } else { NodeSpec::router(name) });
    }
    let none = CheckpointConfig { on_node_start: false, on_node_complete: false, ..CheckpointConfig::default() };
    let graph = builder.path(&names).checkpoints(none).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!((result.state.path.len(), result.state.memory.len()), (20_000, 2_502));
}
