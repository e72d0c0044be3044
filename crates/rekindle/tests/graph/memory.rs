//! The memory: what is declared is enforced, several keys are written together, and what is missing
//! is named.

use rekindle::graph::{Condition, EdgeSpec, GraphInput, NodeSpec};
use rekindle::tool::{ToolError, tool};
use rekindle::{Agent, ErrorKind, Graph, ResumeOptions};
use rekindle_models::{Script, ScriptedModel};
use rekindle_store::Fault;
use serde_json::json;

use crate::kit::{Given, Rig, echo, node, noting, remembers, times};

#[tokio::test]
async fn a_function_reads_only_what_its_node_declares() {
    for (reads, success) in [("other", false), ("k", true), ("k*", true)] {
        let rig = Rig::memory().await;
        let look = tool("look", "Looks.", async |call: rekindle::tool::ToolContext, _: Given| {
            Ok::<_, ToolError>(call.memory("k").await?.map(|json| json.to_string()))
        });
        let builder = Graph::builder("g").memory("k", 1).memory("other", 2).tool(look);
        let graph = builder.node(node("look").reads([reads]).save("seen", "")).build().unwrap();
        let result = rig.run(&graph).await.unwrap();
        assert_eq!(result.success, success, "{reads}");
        if !success {
            let error = result.error.unwrap();
            assert!(error.contains("node `look` reads memory key `k`, which it does not declare"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_function_writes_only_what_its_node_declares_and_all_of_it_or_nothing() {
    let rig = Rig::memory().await;
    let writes = remembers("w", &[("a", json!(1)), ("b", json!(2))]);
    let graph = Graph::builder("g").tool(writes).node(node("w").writes(["a", "c"])).build().unwrap();
    let error = rig.run(&graph).await.unwrap().error.unwrap();
    assert!(error.contains("node `w` writes memory key `b`, which it does not declare"), "{error}");
    assert!(rig.graph().await.memory.is_empty());
}

#[tokio::test]
async fn a_tool_of_an_agent_writes_only_what_the_node_declares() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("bad", json!({})).call("good", json!({})).text("done");
    let model = ScriptedModel::new(script);
    let agent = Agent::builder("writer", model.clone())
        .tool(remembers("bad", &[("other", json!(1))]))
        .tool(remembers("good", &[("x", json!(2))]))
        .build();
    let spec = NodeSpec::agent("write", "writer", "Go").writes(["x", "y_*"]);
    let graph = Graph::builder("g").agent(agent.unwrap()).node(spec).build().unwrap();
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(serde_json::to_value(&result.state.memory).unwrap(), json!({ "x": 2 }));
    assert!(model.requests()[1].last.contains("node `write` writes memory key `other`"), "{:?}", model.requests()[1]);
}

#[tokio::test]
async fn several_keys_are_never_half_written_wherever_it_crashes() {
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut call = 0;
        loop {
            let rig = Rig::memory().await;
            let keys: Vec<(String, _)> = (0..5).map(|number| (format!("k{number}"), json!(number))).collect();
            let pairs: Vec<(&str, _)> = keys.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
            let graph =
                Graph::builder("g").tool(remembers("w", &pairs)).node(node("w").writes(["k*"])).build().unwrap();
            let (session, plan) = rig.faulty().await;
            plan.fail_from(call, fault);
            let _ = graph.run_once(GraphInput::new(), &session).await;
            let written = rig.graph().await.memory.len();
            assert!(written == 0 || written == 5, "{fault:?} at call {call}: {written}");
            if plan.calls() <= call {
                assert_eq!(written, 5);
                break;
            }
            call += 1;
        }
        assert!(call > 1, "only {call} commit points");
    }
}

/// `pick` skips `write`, so that `read` lacks a key.
fn lacking(rig: &Rig) -> Graph {
    let ledger = rig.world.ledger();
    Graph::builder("g")
        .memory("skip", true)
        .tool(noting(&ledger, "pick"))
        .tool(noting(&ledger, "write"))
        .tool(echo("read"))
        .node(node("pick"))
        .node(node("write").writes(["k"]).save("k", ""))
        .node(node("read").with("k", "${memory.k}").reads(["k"]).save("got", "/k"))
        .edge(EdgeSpec::new("pick", "read").when(Condition::memory("skip")))
        .edge(EdgeSpec::new("pick", "write").or_else())
        .path(["write", "read"])
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_missing_key_fails_the_node_and_a_resume_is_refused_before_anything_is_recorded() {
    let rig = Rig::memory().await;
    let graph = lacking(&rig);
    let result = rig.run(&graph).await.unwrap();
    assert_eq!(result.error.as_deref(), Some("node `read` failed: memory key `k` is missing"));
    let before = rig.records().await.len();
    let error = rig.resume(&graph).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotResumable);
    assert!(error.message().contains("node `read` needs memory key `k`"), "{error}");
    assert!(error.next_step().contains("set k="), "{}", error.next_step());
    assert_eq!(rig.records().await.len(), before);
    let result = rig.resume_with(&graph, ResumeOptions::new("maria").set("k", "5")).await.unwrap();
    assert_eq!(result.get::<u32>("got").unwrap(), Some(5));
    assert_eq!(times(&rig.world.ledger(), "pick"), 1);
}

#[tokio::test]
async fn a_key_that_may_be_missing_is_null() {
    let rig = Rig::memory().await;
    let spec = node("read").with("k", "${memory.k}").reads(["k?"]).save("got", "");
    let graph = Graph::builder("g").tool(echo("read")).node(spec).build().unwrap();
    assert_eq!(rig.run(&graph).await.unwrap().state.memory["got"].as_str(), r#"{"k":null}"#);
}
