//! What the system before this one tested, under the names it used: checkpoints made at the same
//! time, damage, and large memories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::graph::NodeSpec;
use rekindle::{ErrorKind, Graph, GraphBuilder, ResumeOptions};
use rekindle_store::{MeteredStore, Observation, StoreObserver};
use serde_json::json;

use crate::kit::{Held, Rig, echo, gives, node, noting, row, times};
use crate::support::Kind;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_checkpoints() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let (first, second) = (Held::default(), Held::default());
        let graph = |held: &Held| {
            let builder = Graph::builder("g").tool(held.function("work")).tool(echo("end"));
            row(builder, &["work", "end"]).build().unwrap()
        };
        let run = graph(&first).run(Default::default(), &rig.session).await.unwrap();
        first.began().await;
        let marks = (0..20).map(|number| {
            let run = &run;
            async move { run.checkpoint(&format!("mark {number}")).await.unwrap() }
        });
        let marks = futures_util::future::join_all(marks).await;
        run.stop("enough");
        run.stop("at once");
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
        let listed: Vec<_> = rig.checkpoints().await.into_iter().map(|mark| mark.id).collect();
        assert!(marks.iter().all(|mark| listed.contains(mark)), "{kind:?}: all are listed");
        one_of_two_resumes(&rig, &graph(&second), &second).await;
        assert!(rig.graph().await.done, "{kind:?}");
    }
}

/// Two engines go on at once: one does, the other is told who does.
async fn one_of_two_resumes(rig: &Rig, graph: &Graph, held: &Held) {
    let (a, b) = (rig.again().await, rig.again().await);
    let (a, b) = tokio::join!(graph.resume(&a), graph.resume(&b));
    let (winner, loser) = if a.is_ok() { (a, b) } else { (b, a) };
    let refused = loser.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::AlreadyRunning { .. }), "{refused}");
    held.began().await;
    held.release();
    assert_eq!(winner.unwrap().report().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(held.calls(), 1);
}

/// Changes a stored byte in the last line that has `text` in it.
fn spoil(rig: &Rig, text: &str) {
    let segment = "files/sessions/default/s/branches/main/00000000000000000001.jsonl";
    let path = rig.world.directory.path().join(segment);
    let content = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    let line = lines.iter_mut().rfind(|line| line.contains(text)).unwrap();
    *line = line.replacen(text, &text.to_uppercase(), 1);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
}

#[tokio::test]
async fn corruption() {
    let rig = Rig::new(Kind::Files).await;
    let ledger = rig.world.ledger();
    let builder = Graph::builder("g")
        .durability(Durability::Sync)
        .tool(noting(&ledger, "a"))
        .tool(gives("b", "beta-result"))
        .tool(noting(&ledger, "c"));
    let builder = builder.node(NodeSpec::question("ask", "Well?"));
    let builder = builder
        .node(node("a").save("x", ""))
        .node(node("b").save("y", ""))
        .node(node("c"))
        .path(["a", "b", "ask", "c"]);
    let graph = builder.entry("a").build().unwrap();
    rig.run(&graph).await.unwrap();
    spoil(&rig, "beta-result");
    let error = graph.resume(&rig.again().await).await.unwrap_err();
    assert_eq!(error.code(), "RK0011", "{error:?}");
    assert!(error.position().is_some(), "{error:?}");
    let session = rig.again().await;
    let run = graph.resume_with(&session, ResumeOptions::new("maria").fallback()).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    let state = graph.result(&session, report.clone()).await.unwrap().state;
    assert_eq!((state.execution_path(), state.memory["y"].as_str()), (vec!["a", "b"], "\"beta-result\""));
    assert_eq!(times(&ledger, "a"), 1, "what was whole is not repeated");
    let records = crate::support::records(&rig.engine, rig.key(), &report.branch).await;
    assert!(records.iter().any(|(_, record)| matches!(record, Record::CheckpointSubstituted(_))));
}

/// Counts what is written.
#[derive(Debug, Default)]
struct Written(AtomicU64);

impl StoreObserver for Written {
    fn observed(&self, observation: Observation) {
        if observation.operation == "append" {
            self.0.fetch_add(observation.bytes, Ordering::SeqCst);
        }
    }
}

/// A node that counts, visited so often.
fn counting(visits: u64) -> GraphBuilder {
    let add = rekindle::tool::tool("add", "Adds.", async |_, given: crate::kit::Given| {
        Ok::<_, rekindle::tool::ToolError>(given["n"].as_u64().unwrap_or_default() + 1)
    });
    let again =
        rekindle::graph::EdgeSpec::new("add", "add").when(rekindle::graph::Condition::memory("n").less_than(visits));
    let spec = node("add").with("n", "${memory.n}").reads(["n"]).save("n", "").max_visits(1_000);
    let builder = Graph::builder("g").memory("n", 0).tool(add).tool(echo("end")).node(spec).node(node("end"));
    builder.edge(again).edge(rekindle::graph::EdgeSpec::new("add", "end").or_else())
}

/// Four thousand characters that cannot be made much shorter.
fn page(number: u32) -> String {
    let mut bytes = vec![0; 2_000];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn bytes_written(visits: u64) -> u64 {
    let rig = Rig::memory().await;
    let written = Arc::new(Written::default());
    let engine = rig.world.engine_over(Arc::new(MeteredStore::new(rig.world.store(), written.clone())));
    let session = engine.open_session("s").await.unwrap();
    let input = (0..1_000)
        .fold(rekindle::graph::GraphInput::new(), |input, number| input.with(format!("page_{number}"), page(number)));
    let graph = counting(visits).build().unwrap();
    let result = graph.run_once(input, &session).await.unwrap();
    assert_eq!(result.state.memory.len(), 1_001);
    let restored = rig.graph().await;
    assert!(
        (0..1_000)
            .all(|number| restored.memory[&format!("page_{number}")] == rekindle::Json::from(page(number).as_str()))
    );
    assert_eq!(restored.memory["n"].to_value().unwrap(), json!(visits));
    written.0.load(Ordering::SeqCst)
}

#[tokio::test]
async fn large_memory_states() {
    let (few, many) = (bytes_written(10).await, bytes_written(110).await);
    let each = (many - few) / 100;
    assert!(few > 1_900_000, "the memory is written once: {few}");
    assert!(each < 4_000, "a visit writes what it changed, not the memory: {each} bytes");
}
