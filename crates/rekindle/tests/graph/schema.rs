//! The written form of graphs: its schema accepts what is read and refuses what is not, and neither
//! changes by accident. And drawings of the way a run took.
//!
//! After a change that is meant, run with `UPDATE_GOLDEN=1` and check the difference.

use std::path::PathBuf;

use rekindle::graph::{CheckpointConfig, Condition, EdgeSpec, GraphSpec, Merge, NodeSpec, Work};
use rekindle::{Graph, GraphBuilder};
use serde_json::{Value, json};

use crate::kit::{Rig, echo, failing, node};

fn check(name: &str, written: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let written = format!("{}\n", serde_json::to_string_pretty(written).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &written).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(kept, written, "the written form changed; see the head of schema.rs");
}

/// A graph in which everything occurs that can be said.
fn rich() -> GraphSpec {
    let mut remembers = NodeSpec::agent("write", "writer", "About ${memory.topic}").reads(["topic", "hint?"]);
    if let Work::Agent { continues, .. } = &mut remembers.work {
        *continues = true;
    }
    let mut ask = NodeSpec::question("ask", "Well?").writes(["verdict"]);
    if let Work::Wait(wait) = &mut ask.work {
        wait.schema = Some(json!({ "type": "string" }));
        wait.expires_after = Some(std::time::Duration::from_secs(3_600));
        wait.default = Some(json!("no"));
    }
    let retry = rekindle::tool::Retries { attempts: 3, ..rekindle::tool::Retries::default() };
    let nodes = vec![
        node("fetch").with("n", 1).save("page", "/body").retry(retry).timeout(std::time::Duration::from_secs(30)),
        NodeSpec::tool("send", "email").with("to", "${memory.topic}").reads(["topic"]).risky().safe_point(),
        remembers.writes(["title", "page_*"]).max_visits(4),
        NodeSpec::plan("plan", "sums").with("n", 2),
        NodeSpec::graph("sub", "inner").with("n", 3),
        ask,
        NodeSpec::router("fan").fan_out("join"),
        node("join").merge("a", Merge::Append).merge("b", Merge::Reducer("sum".into())),
    ];
    let condition = Condition::memory("n").less_than(3).and(Condition::result().at("/ok").is(true));
    GraphSpec {
        name: "rich".into(),
        description: "Everything at once.".into(),
        entry: "fetch".into(),
        inputs: vec!["topic".into()],
        memory: [("n".to_owned(), json!(0))].into(),
        nodes,
        edges: vec![
            EdgeSpec::new("fetch", "send").when(condition).priority(2),
            EdgeSpec::new("fetch", "ask").when(Condition::failed().or(Condition::memory("x").is_missing().negate())),
            EdgeSpec::new("fetch", "write").or_else(),
        ],
        max_visits: Some(9),
        parallel: Some(2),
        checkpoints: Some(CheckpointConfig::default()),
    }
}

#[test]
fn the_written_form_and_its_schema_are_the_known_ones() {
    let value = serde_json::to_value(rich()).unwrap();
    check("graph.v1.json", &value);
    check("graph.schema.json", &GraphSpec::schema());
    assert_eq!(serde_json::from_value::<GraphSpec>(value).unwrap(), rich());
}

#[test]
fn the_schema_accepts_what_is_read_and_refuses_what_is_not() {
    let schema = jsonschema::validator_for(&GraphSpec::schema()).unwrap();
    let rich = serde_json::to_value(rich()).unwrap();
    let faults: Vec<String> = schema.iter_errors(&rich).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    let wrong: [(&str, Value); 8] = [
        ("/nodes/0/kind", json!("loop")),
        ("/nodes/0/id", json!(7)),
        ("/nodes/0/reads", json!("k")),
        ("/nodes/7/merge/a", json!("sometimes")),
        ("/edges/0/priority", json!("high")),
        ("/edges/0/weight", json!(1)),
        ("/nodes/0/colour", json!("red")),
        ("/colour", json!("red")),
    ];
    for (place, value) in wrong {
        let mut broken = rich.clone();
        put(&mut broken, place, value);
        assert!(serde_json::from_value::<GraphSpec>(broken.clone()).is_err(), "{place} is read");
        assert!(!schema.is_valid(&broken), "{place} is accepted by the schema");
    }
}

/// Sets what a pointer names, be it there or not.
fn put(value: &mut Value, place: &str, new: Value) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[name] = new;
}

/// `a` fails once and is mended; `never` is not visited.
fn winding(rig: &Rig) -> GraphBuilder {
    let ledger = rig.world.ledger();
    Graph::builder("winding")
        .tool(failing(&ledger, "a", 1))
        .tool(echo("mend"))
        .tool(echo("never"))
        .node(node("a"))
        .node(node("mend"))
        .node(node("never"))
        .node(NodeSpec::question("ask", "Well?"))
        .edge(EdgeSpec::new("a", "mend").when(Condition::failed()))
        .edge(EdgeSpec::new("a", "never").when(Condition::memory("nothing").exists()))
        .edge(EdgeSpec::new("a", "ask").or_else())
        .path(["mend", "a"])
}

#[tokio::test]
async fn drawings_show_the_way_a_run_took() {
    let rig = Rig::memory().await;
    let graph = winding(&rig).build().unwrap();
    let state = rig.run(&graph).await.unwrap().state;
    let empty = rekindle::graph::Trail::of(&[]);
    let (plain, drawn) = (graph.spec().to_mermaid(&empty), state.to_mermaid(graph.spec()));
    assert_ne!(plain, drawn);
    for id in ["a", "mend", "never", "ask"] {
        assert!(drawn.contains(id), "{id} is not in {drawn}");
    }
    let (plain, drawn) = (graph.spec().to_svg(&empty), state.to_svg(graph.spec()));
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    assert_ne!(plain, drawn);
    let again = state.to_svg(graph.spec());
    assert_eq!(drawn, again, "a drawing is the same each time");
}
