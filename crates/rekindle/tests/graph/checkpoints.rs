//! Which positions a graph marks, how many marks it keeps, and what a mark brings back.

use rekindle::Durability;
use rekindle::core::record::{CheckpointTrigger, CheckpointType, Record};
use rekindle::graph::{CheckpointConfig, EdgeSpec, NodeSpec};
use rekindle::operations;
use rekindle::{Graph, GraphBuilder, ResumeOptions};
use rekindle_models::{Call, Script, ScriptedModel};
use serde_json::json;

use crate::kit::{Given, Rig, agent, echo, failing, gives, node, noting, row};

/// Nothing is marked but what a test switches on.
fn none() -> CheckpointConfig {
    CheckpointConfig { on_node_start: false, on_node_complete: false, ..CheckpointConfig::default() }
}

/// Two nodes, the first a safe point.
fn two() -> GraphBuilder {
    let builder = Graph::builder("g").tool(echo("a")).tool(echo("b"));
    builder.node(node("a").safe_point()).node(node("b")).path(["a", "b"])
}

/// Kind, node and successors of what is marked, in order.
async fn marked(rig: &Rig) -> Vec<String> {
    let name = |mark: rekindle::core::record::Checkpoint| {
        let kind = serde_json::to_value(mark.kind).unwrap();
        format!("{} {} {}", kind.as_str().unwrap(), mark.node.unwrap_or_default(), mark.next.join("+"))
            .trim()
            .to_owned()
    };
    rig.checkpoints().await.into_iter().map(name).collect()
}

async fn check(config: CheckpointConfig, expected: &[&str]) {
    let rig = Rig::memory().await;
    rig.run(&two().checkpoints(config.clone()).build().unwrap()).await.unwrap();
    assert_eq!(marked(&rig).await, expected, "{config:?}");
}

#[tokio::test]
async fn every_switch_marks_what_it_says_with_node_and_successor() {
    let end = "node_complete b";
    check(none(), &["safe_point a b", end]).await;
    check(CheckpointConfig { on_node_start: true, ..none() }, &["node_start a", "safe_point a b", "node_start b", end])
        .await;
    let completes = CheckpointConfig { on_node_complete: true, ..none() };
    check(completes, &["node_complete a b", "safe_point a b", "node_complete b", end]).await;
    check(CheckpointConfig { on_edge: true, ..none() }, &["safe_point a b", "edge_transition a b", end]).await;
}

/// An agent node with three iterations before its answer.
fn talkative() -> (GraphBuilder, ScriptedModel) {
    let call = |n: u32| Call::new("set_output", json!({ "key": "x", "value": n }));
    let script = Script::new("m").calls([call(1)]).calls([call(2)]).calls([call(3)]).text("done");
    let (agent, model) = agent("writer", script);
    let spec = NodeSpec::agent("write", "writer", "Go").writes(["x"]).save("said", "");
    (Graph::builder("g").agent(agent).node(spec), model)
}

#[tokio::test]
async fn iterations_of_an_agent_are_marked_all_or_every_nth() {
    let all = CheckpointConfig { on_loop_iteration: true, ..none() };
    for (config, count) in [(none(), 0), (all, 3), (CheckpointConfig { every_n_iterations: 2, ..none() }, 1)] {
        let rig = Rig::memory().await;
        rig.run(&talkative().0.checkpoints(config).build().unwrap()).await.unwrap();
        let marks = rig.marks(CheckpointType::LoopIteration).await;
        assert_eq!(marks.len(), count);
        assert!(marks.iter().all(|mark| mark.node.as_deref() == Some("write")));
    }
}

#[tokio::test]
async fn the_middle_of_an_agent_node_comes_back_with_conversation_outputs_and_iteration() {
    let rig = Rig::memory().await;
    let config = CheckpointConfig { on_loop_iteration: true, ..none() };
    let (builder, model) = talkative();
    let graph = builder.checkpoints(config).build().unwrap();
    rig.run(&graph).await.unwrap();
    let mark = rig.marks(CheckpointType::LoopIteration).await.remove(0);
    let then = rig.graph_at(&mark).await;
    assert_eq!((then.conversations["write.1"].len(), then.memory.len(), then.visits["write"]), (3, 0, 1));
    let at = operations::At::Checkpoint(mark.id.clone());
    let state = operations::inspect(&rig.engine, rig.key(), &at).await.unwrap().state;
    assert_eq!(state.register("node/write.1/output/x").unwrap().as_str(), "1");
    let looped = state.register("node/write.1/loop").unwrap().to_value().unwrap();
    assert_eq!(looped["iteration"], 2);
    let asked = model.requests().len();
    let result = rig.resume_with(&graph, ResumeOptions::new("maria").from_checkpoint(mark.id)).await.unwrap();
    assert_eq!((result.get::<u32>("x").unwrap(), model.requests().len() - asked), (Some(3), 3));
    assert_eq!(result.state.conversations["write.1"].len(), 8);
}

#[tokio::test]
async fn before_a_person_is_asked_the_position_is_marked() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g").node(NodeSpec::question("ask", "Well?")).checkpoints(none()).build().unwrap();
    rig.run(&graph).await.unwrap();
    assert_eq!(marked(&rig).await, ["user_checkpoint ask"]);
}

#[tokio::test]
async fn a_failure_is_marked_and_what_follows_is_not_clean() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let builder = Graph::builder("g").tool(failing(&ledger, "a", 1)).tool(echo("b"));
    let graph = row(builder, &["a", "b"]).checkpoints(none()).build().unwrap();
    rig.run(&graph).await.unwrap();
    let mark = rig.checkpoints().await.remove(0);
    assert_eq!((mark.trigger, mark.clean, mark.node.as_deref()), (CheckpointTrigger::Error, false, Some("a")));
    assert_eq!(mark.description, "node `a` failed: not yet");
}

#[tokio::test]
async fn smart_marks_are_made_before_risky_and_after_large_nodes() {
    let rig = Rig::memory().await;
    let builder = Graph::builder("g")
        .tool(echo("a"))
        .tool(gives("b", "x".repeat(70_000)))
        .tool(echo("c").risky())
        .node(node("a").risky())
        .node(node("b"))
        .node(node("c"))
        .path(["a", "b", "c"]);
    let smart = CheckpointConfig { smart: true, ..CheckpointConfig::default() };
    rig.run(&builder.checkpoints(smart).build().unwrap()).await.unwrap();
    assert_eq!(marked(&rig).await, ["node_start a", "node_complete b c", "node_start c", "node_complete c"]);
}

/// `n` nodes in a row.
fn long(n: usize) -> GraphBuilder {
    let names: Vec<String> = (0..n).map(|number| format!("n{number}")).collect();
    let builder = names.iter().fold(Graph::builder("g"), |builder, name| builder.tool(echo(name)).node(node(name)));
    builder.path(names)
}

#[tokio::test]
async fn surplus_marks_go_but_pinned_and_manual_ones_and_the_newest_of_each_run_stay() {
    let rig = Rig::memory().await;
    let config = CheckpointConfig { max_per_session: 4, prune_after_node_count: 5, ..CheckpointConfig::default() };
    let graph = long(20).checkpoints(config).build().unwrap();
    rig.run(&graph).await.unwrap();
    let first = rig.checkpoints().await;
    assert!(first.len() <= 4 + 2 * 5 + 1, "{}", first.len());
    let last = first.last().unwrap().id.clone();
    let pinned = first[0].id.clone();
    operations::pin(&rig.engine, rig.key(), &pinned, true).await.unwrap();
    operations::checkpoint(&rig.engine, rig.key(), "mine", "maria").await.unwrap();
    rig.run(&graph).await.unwrap();
    let now = rig.checkpoints().await;
    assert!(now.len() <= 4 + 2 * 5 + 4, "{}", now.len());
    assert!(now.iter().any(|mark| mark.id == pinned), "the pinned one stays");
    assert!(now.iter().any(|mark| mark.description == "mine"), "the manual one stays");
    assert!(now.iter().any(|mark| mark.id == last), "the newest of the first run stays");
}

#[tokio::test]
async fn marks_of_iterations_count_as_surplus_too() {
    let rig = Rig::memory().await;
    let config = CheckpointConfig { on_loop_iteration: true, max_per_session: 1, prune_after_node_count: 1, ..none() };
    rig.run(&talkative().0.checkpoints(config).build().unwrap()).await.unwrap();
    assert_eq!(rig.marks(CheckpointType::LoopIteration).await.len(), 1);
}

#[tokio::test]
async fn unclean_marks_go_when_a_run_ends_well_if_only_clean_ones_are_kept() {
    for (keep_clean_only, max_per_session) in [(true, 100), (true, 0), (false, 100)] {
        let rig = Rig::memory().await;
        let ledger = rig.world.ledger();
        let builder = Graph::builder("g").tool(failing(&ledger, "a", 1)).tool(echo("mend")).tool(echo("b"));
        let config = CheckpointConfig { keep_clean_only, max_per_session, ..CheckpointConfig::default() };
        let when = EdgeSpec::new("a", "mend").when(rekindle::graph::Condition::failed());
        let graph = row(builder, &["a", "b"]).node(node("mend")).edge(when).path(["mend", "a"]).checkpoints(config);
        rig.run(&graph.build().unwrap()).await.unwrap();
        let unclean = rig.checkpoints().await.into_iter().filter(|mark| !mark.clean).count();
        assert_eq!(unclean > 1, !keep_clean_only, "{unclean} are left");
    }
}

#[tokio::test]
async fn without_async_every_commit_is_on_disk_first() {
    for (asynchronous, expected) in [(true, Durability::Async), (false, Durability::Sync)] {
        let rig = Rig::memory().await;
        let config = CheckpointConfig { asynchronous, ..none() };
        rig.run(&two().checkpoints(config).build().unwrap()).await.unwrap();
        let started = rig.records().await.into_iter().find_map(|record| match record {
            Record::RunStarted(started) => Some(started.durability),
            _ => None,
        });
        assert_eq!(started, Some(expected));
    }
}

#[tokio::test]
async fn of_graph_engine_and_run_the_last_that_says_something_counts() {
    let starts = CheckpointConfig { on_node_start: true, ..none() };
    let edges = CheckpointConfig { on_edge: true, ..none() };
    for (engine, run, expected) in [(None, None, 2), (Some(none()), None, 0), (Some(none()), Some(starts.clone()), 2)] {
        let rig = Rig::memory().await;
        let mut other = rig.world.engine();
        if let Some(config) = engine {
            other = other.with_checkpoint_config(config);
        }
        let session = other.open_session("s").await.unwrap();
        let options = run.into_iter().fold(ResumeOptions::new("maria"), ResumeOptions::checkpoint_config);
        let graph = two().checkpoints(starts.clone()).build().unwrap();
        graph.run_with(Default::default(), &session, options).await.unwrap().report().await.unwrap();
        assert_eq!(rig.marks(CheckpointType::NodeStart).await.len(), expected);
    }
    let rig = Rig::memory().await;
    let options = ResumeOptions::new("maria").checkpoint_config(edges);
    let run = two().build().unwrap().run_with(Default::default(), &rig.session, options).await.unwrap();
    run.report().await.unwrap();
    assert_eq!(rig.marks(CheckpointType::EdgeTransition).await.len(), 1);
}

#[tokio::test]
async fn an_old_mark_brings_back_memory_visits_and_budgets_of_its_moment() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let count = |given: &Given| json!(given["n"].as_u64().unwrap() + 1);
    let spec = node("add").with("n", "${memory.n}").reads(["n"]).save("n", "");
    let again = EdgeSpec::new("add", "add").when(rekindle::graph::Condition::memory("n").less_than(5));
    let graph = Graph::builder("g")
        .memory("n", 0)
        .tool(crate::kit::noting_then(&ledger, "add", count))
        .tool(noting(&ledger, "end"))
        .node(spec)
        .node(node("end"))
        .edge(again)
        .edge(EdgeSpec::new("add", "end").or_else())
        .build()
        .unwrap();
    rig.run(&graph).await.unwrap();
    let marks = rig.marks(CheckpointType::NodeComplete).await;
    let then = rig.graph_at(&marks[1]).await;
    assert_eq!(
        (then.memory["n"].as_str(), then.visits["add"], then.path.len(), then.current()),
        ("2", 2, 2, vec!["add"])
    );
    let lines = ledger.lines().len();
    let options = ResumeOptions::new("maria").from_checkpoint(marks[1].id.clone());
    let run = graph.resume_with(&rig.session, options).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!(report.spent.iterations, 6, "two visits before the mark and four after it");
    let result = graph.result(&rig.session, report).await.unwrap();
    assert_eq!((result.get::<u32>("n").unwrap(), result.state.visits["add"]), (Some(5), 5));
    assert_eq!(ledger.lines().len() - lines, 4);
}
