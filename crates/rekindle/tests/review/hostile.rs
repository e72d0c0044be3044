use std::time::{Duration, Instant};

use rekindle::graph::{Condition, EdgeSpec, Graph, NodeSpec};
use rekindle::tool::{ToolError, tool};
use rekindle::{Plan, StepSpec};
use serde_json::{Value, json};

use crate::support::Of;

/// Building a large graph takes time in proportion to its size: every node is compared with every other one.
#[test]
fn a_graph_of_20_000_nodes_is_built_in_time() {
    let build = |nodes: usize| {
        let any = tool("any", "", async |_, _: Of| Ok::<_, ToolError>("x"));
        let mut builder = Graph::builder("g").tool(any).path((0..nodes).map(|number| format!("n{number}")));
        for number in 0..nodes {
            builder = builder.node(NodeSpec::tool(format!("n{number}"), "any").with("what", "x"));
        }
        let began = Instant::now();
        builder.build().unwrap();
        began.elapsed()
    };
    let (small, large) = (build(2_500), build(20_000));
    assert!(large < small * 12, "8 times the nodes: {small:?} {large:?}");
}

/// Runs one test of this program in a process of its own: an overflow of the stack ends all of it.
fn alone(test: &str) -> bool {
    let program = std::env::current_exe().unwrap();
    let output =
        std::process::Command::new(program).args(["--exact", test, "--ignored", "--test-threads=1"]).output().unwrap();
    output.status.success()
}

/// What nests too deeply is refused with an error, and does not end the process.
#[test]
fn parameters_that_nest_deeply_are_refused() {
    assert!(alone("hostile::deep_parameters"), "the process died");
}

#[test]
#[ignore = "run by parameters_that_nest_deeply_are_refused"]
fn deep_parameters() {
    let mut value = json!(1);
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let any = tool("any", "", async |_, _: Of| Ok::<_, ToolError>("x"));
    let built = Plan::builder("p").tool(any).step(StepSpec::new("one", "any").with("what", value)).build();
    std::mem::forget(built);
}

#[test]
fn conditions_that_nest_deeply_are_refused() {
    assert!(alone("hostile::deep_conditions"), "the process died");
}

#[test]
#[ignore = "run by conditions_that_nest_deeply_are_refused"]
fn deep_conditions() {
    let mut condition: Condition = Condition::memory("x").exists();
    for _ in 0..10_000 {
        condition = condition.negate();
    }
    let built = Graph::builder("g")
        .tool(tool("any", "", async |_, _: Of| Ok::<_, ToolError>("x")))
        .node(NodeSpec::router("a").reads(["x?"]))
        .node(NodeSpec::tool("b", "any").with("what", "x"))
        .edge(EdgeSpec::new("a", "b").when(condition))
        .build();
    if let Ok(graph) = &built {
        let _ = graph.spec().to_mermaid(&Default::default());
    }
    std::mem::forget(built);
}

fn wide(name: &str, keys: usize) -> impl rekindle::tool::Tool + use<> {
    tool(name, "", move |_, _: Of| async move {
        let mut output = rekindle::tool::ToolOutput::json(rekindle::Json::from("ok"));
        for number in 0..keys {
            output = output.and_remember(format!("k{number}"), rekindle::Json::from("v"));
        }
        Ok::<_, ToolError>(output)
    })
}

/// What cannot be stored "must not take with it what others staged" (limits.rs). More records than a batch may have
/// stay staged when they are refused, so nothing can be recorded any more: not the payment another strand has made,
/// and not the end of the run.
#[tokio::test]
async fn a_node_that_writes_too_much_does_not_poison_the_run() {
    use rekindle::graph::GraphInput;
    let rig = crate::kit::Rig::memory().await;
    let ledger = rig.world.ledger();
    let noted = ledger.clone();
    let pay = tool("pay", "", move |_, _: Of| {
        let noted = noted.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(600)).await;
            noted.write("paid");
            Ok::<_, ToolError>("paid")
        }
    });
    let graph = Graph::builder("g")
        .tool(wide("wide", 10_001))
        .tool(pay.writes())
        .node(NodeSpec::router("split").fan_out("join"))
        .node(NodeSpec::tool("a", "wide").with("what", "x").writes(["k*"]))
        .node(NodeSpec::tool("b", "pay").with("what", "x"))
        .node(NodeSpec::tool("join", "wide").with("what", "x"))
        .path(["split", "a", "join"])
        .path(["split", "b", "join"])
        .build()
        .unwrap();
    let result = graph.run_once(GraphInput::new(), &rig.session).await.map(|result| result.error);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let state = rig.state().await;
    assert_eq!(ledger.count("paid"), 1, "cut off under way: {:?} {result:?}", state.status());
    let open: Vec<_> = state.open_effects().map(|open| open.intent.name.clone()).filter(|name| name == "pay").collect();
    assert!(open.is_empty(), "what was paid is in doubt: {:?} {:?}", state.status(), result);
}

/// An input that cannot be stored is refused, and leaves a session that is as open to the next as before.
#[tokio::test]
async fn an_input_that_is_too_wide_leaves_no_run_behind() {
    use rekindle::graph::GraphInput;
    let rig = crate::kit::Rig::memory().await;
    let graph = Graph::builder("g")
        .tool(crate::kit::echo())
        .node(NodeSpec::tool("a", "echo").with("what", "x"))
        .build()
        .unwrap();
    let mut input = GraphInput::new();
    for number in 0..10_001 {
        input = input.with(format!("k{number}"), number);
    }
    let refused = graph.run_once(input, &rig.session).await.map(|result| result.error);
    assert!(refused.is_err());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let status = rig.state().await.status();
    assert!(!status.is_unfinished() && status != rekindle::Status::Running, "{status:?} after {refused:?}");
}
