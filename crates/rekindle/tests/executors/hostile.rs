//! Input that is too deep or too much.

use std::time::Duration;

use rekindle::Plan;
use rekindle::graph::{Condition, EdgeSpec, Graph, NodeSpec};
use rekindle::plan::StepSpec;
use rekindle::tool::{ToolError, tool};
use serde_json::{Value, json};

use crate::support::Of;

/// What nests too deeply is refused with an error, and does not overflow the stack.
#[test]
fn parameters_that_nest_deeply_are_refused() {
    let mut value = json!(1);
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let any = tool("any", "", async |_, _: Of| Ok::<_, ToolError>("x"));
    let built = Plan::builder("p").tool(any).step(StepSpec::new("one", "any").with("what", value)).build();
    assert!(built.unwrap_err().to_string().contains("one"));
}

#[test]
fn conditions_that_nest_deeply_are_refused() {
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
    assert!(built.unwrap_err().to_string().contains("edges[0]"));
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

/// What cannot be stored is refused before anything is staged, and takes nothing of other strands with it.
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
