//! Graphs: joins, second runs, marks, and calls that must not be forgotten.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, NodeSpec, Work};
use rekindle::operations::{self, Answer, ControlOptions, Settlement};
use rekindle::tool::{ToolError, tool};
use rekindle::{Json, ResumeOptions, RunOptions};
use rekindle_models::{Call, Script, Turn};
use serde_json::json;

use crate::common::{deadly, noting, runs, soon};
use crate::kit::{Held, Rig, agent, of, quick};
use crate::support::{Kind, Of};

fn sync() -> RunOptions {
    RunOptions { durability: Durability::Sync, ..RunOptions::default() }
}

/// An answer that does not have the part the node saves fails the node, as the result of any tool would.
#[tokio::test]
async fn an_answer_without_the_part_that_is_saved_does_not_brick_the_session() {
    let rig = Rig::memory().await;
    let graph =
        Graph::builder("g").node(NodeSpec::question("ask", "Which?").save("choice", "/choice")).build().unwrap();
    graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
    let wait = rig.wait().await.wait;
    operations::answer(&rig.engine, rig.key(), &Answer::value(wait, Json::from("blue"), "maria")).await.unwrap();
    let first = graph.resume_once(&rig.again().await).await.map(|result| result.error);
    // However the first one ends, a second resume must come to a new question.
    let second = graph.resume_once(&rig.again().await).await.map(|result| result.report.outcome);
    assert!(matches!(second, Ok(RunOutcome::Waiting)), "{first:?} {second:?}");
}

/// The same for a call that somebody settled by hand with a result of another shape.
#[tokio::test]
async fn a_settlement_without_the_part_that_is_saved_does_not_brick_the_session() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .durability(Durability::Sync)
        .tool(deadly(&faults, &ledger, "pay").writes().never_again())
        .node(NodeSpec::tool("pay", "pay").with("what", "5").save("id", "/id"))
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    graph.resume_once(&rig.again().await).await.unwrap_err();
    let effect = rig.state().await.open_effects().next().unwrap().intent.effect.clone();
    operations::settle(&rig.engine, rig.key(), &effect, &Settlement::Ok(Json::from("paid")), "m", "looked")
        .await
        .unwrap();
    let one = graph.resume_once(&rig.again().await).await.map(|result| result.error);
    let two = graph.resume_once(&rig.again().await).await.map(|result| result.error);
    // Either the settlement is refused, or the node fails and can be tried anew.
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
}

fn continuing(id: &str, agent: &str, prompt: &str) -> NodeSpec {
    NodeSpec::new(id, Work::Agent { agent: agent.into(), prompt: prompt.into(), continues: true })
}

/// Each run of a graph is a new one: the keys of its calls are new, or whoever gets them takes them for repetitions.
#[tokio::test]
async fn calls_of_a_second_run_have_keys_of_their_own() {
    let rig = Rig::memory().await;
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = keys.clone();
    let pay = tool("pay", "Pays.", move |call, of: Of| {
        noted.lock().unwrap().push(call.idempotency_key().to_owned());
        async move { Ok::<_, ToolError>(of.what) }
    });
    let call = || Turn::calls([Call::new("pay", of("5")).with_id("functions.pay:0")]);
    let (agent, spy) = agent(Script::new("m").turn(call()).text("done").turn(call()).text("done"), |builder| {
        builder.tool(pay.writes().idempotent())
    });
    let graph = Graph::builder("g").agent(agent).node(continuing("work", "tester", "go")).build().unwrap();
    for _ in 0..2 {
        let result = graph.run_once(GraphInput::new(), &rig.again().await).await.unwrap();
        assert!(result.success, "{:?}", result.error);
    }
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
    let _ = spy;
}

/// The conversations of nodes that remember earlier visits begin anew with a new run.
#[tokio::test]
async fn the_conversation_of_a_node_that_continues_begins_anew_with_a_new_run() {
    let rig = Rig::memory().await;
    let (agent, spy) = agent(Script::new("m").text("one").text("two"), |builder| builder);
    let graph = Graph::builder("g").agent(agent).node(continuing("work", "tester", "go")).build().unwrap();
    for _ in 0..2 {
        graph.run_once(GraphInput::new(), &rig.again().await).await.unwrap();
    }
    assert_eq!(spy.last_view().len(), 1, "{:?}", spy.last_view());
}

/// A split inside a split may meet at the node where the outer one meets.
#[tokio::test]
async fn a_split_inside_a_split_may_meet_at_the_same_node() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let node = |id: &str| NodeSpec::tool(id, "note").with("what", id);
    let graph = Graph::builder("g")
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::router("split").fan_out("join"))
        .node(node("a"))
        .node(NodeSpec::router("inner").fan_out("join"))
        .node(node("b"))
        .node(node("c"))
        .node(node("join"))
        .path(["split", "a", "join"])
        .path(["split", "inner", "b", "join"])
        .path(["inner", "c", "join"])
        .build()
        .unwrap();
    let result = soon(graph.run_once(GraphInput::new(), &rig.session)).await;
    let result = result.unwrap_or_else(|error| panic!("{error}"));
    assert!(result.success, "{:?}", result.error);
    assert_eq!(runs(&ledger, "join"), 1);
}

/// A node's output may have any name, also one of the engine's own registers.
#[tokio::test]
async fn an_output_may_be_called_loop() {
    let rig = Rig::memory().await;
    let held = Held::default();
    let script = Script::new("m").call("set_output", json!({"key": "loop", "value": "x"})).call("hold", of("y"));
    let (agent, _) = agent(script, |builder| builder.tool(held.tool("hold")));
    let graph = Graph::builder("g")
        .agent(agent)
        .node(NodeSpec::agent("work", "tester", "go").writes(["loop"]).save("answer", ""))
        .build()
        .unwrap();
    let run = graph.run(GraphInput::new(), &rig.session).await.unwrap();
    held.began().await;
    run.cancel("enough");
    let report = run.report().await;
    assert!(matches!(&report, Ok(report) if report.outcome == RunOutcome::Cancelled), "{report:?}");
}

/// What was under way when a graph is cancelled is settled: it is nobody's doubt any more.
#[tokio::test]
async fn no_call_stays_open_when_a_graph_is_cancelled() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .durability(Durability::Sync)
        .tool(deadly(&faults, &ledger, "pay").writes())
        .node(NodeSpec::tool("pay", "pay").with("what", "5"))
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    operations::cancel(&rig.engine, rig.key(), &ControlOptions::new("maria", "no")).await.unwrap();
    assert_eq!(rig.state().await.open_effects().count(), 0);
}

/// A resume looks again at the edges of a node that led nowhere, with the result the node had.
#[tokio::test]
async fn edges_are_chosen_again_by_the_result_the_node_had() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .tool(noting(&ledger, "note"))
        .node(NodeSpec::tool("judge", "note").with("what", "no").reads(["sure?"]).save("verdict", ""))
        .node(NodeSpec::tool("publish", "note").with("what", "p"))
        .node(NodeSpec::tool("bin", "note").with("what", "b"))
        .edge(EdgeSpec::new("judge", "publish").when(Condition::result().is_not("no")))
        .edge(EdgeSpec::new("judge", "bin").when(Condition::memory("sure").is(true)))
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &rig.session).await.unwrap_err();
    let options = ResumeOptions::new("maria").set("sure", "true");
    let _ = graph.resume_with(&rig.again().await, options).await.unwrap().report().await;
    assert_eq!((runs(&ledger, "publish"), runs(&ledger, "bin")), (0, 1));
}

/// F10: without pending writes a step is repeated whole; those before it are not.
#[tokio::test]
async fn without_pending_writes_completed_nodes_are_still_not_repeated() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let graph = Graph::builder("g")
        .options(RunOptions { pending_writes: false, ..sync() })
        .tool(noting(&ledger, "pay").writes())
        .tool(deadly(&faults, &ledger, "die").writes().idempotent())
        .node(NodeSpec::tool("one", "pay").with("what", "1"))
        .node(NodeSpec::tool("two", "pay").with("what", "2"))
        .node(NodeSpec::tool("three", "die").with("what", "3"))
        .path(["one", "two", "three"])
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    let session = rig.again().await;
    if graph.resume_once(&session).await.is_err() {
        graph.run_once(GraphInput::new(), &session).await.unwrap();
    }
    assert_eq!((runs(&ledger, "one"), runs(&ledger, "two")), (1, 1));
}

/// A call that failed in passing and succeeded at its second try leaves the run clean, as in agents and plans.
#[tokio::test]
async fn a_retry_that_helped_leaves_checkpoints_clean() {
    let rig = Rig::memory().await;
    let tries = Arc::new(AtomicU32::new(0));
    let flaky = tool("flaky", "", move |_, of: Of| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Err(ToolError::retry("not yet")) } else { Ok(of.what) } }
    });
    let graph = Graph::builder("g")
        .tool(flaky.retries(quick(3)))
        .node(NodeSpec::tool("one", "flaky").with("what", "1"))
        .build()
        .unwrap();
    assert!(graph.run_once(GraphInput::new(), &rig.session).await.unwrap().success);
    let marks = crate::common::checkpoints(&rig).await;
    assert!(
        marks.iter().all(|mark| mark.clean),
        "{:?}",
        marks.iter().map(|m| (&m.description, m.clean)).collect::<Vec<_>>()
    );
}

/// Every mark of a run can be gone back to, wherever in a batch it stands, on every store.
#[tokio::test]
async fn every_mark_can_be_resumed_from() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let ledger = rig.world.ledger();
        let graph = Graph::builder("g")
            .tool(noting(&ledger, "note"))
            .node(NodeSpec::tool("one", "note").with("what", "1").save("a", ""))
            .node(NodeSpec::tool("two", "note").with("what", "${memory.a}").reads(["a"]).save("b", ""))
            .node(NodeSpec::tool("three", "note").with("what", "${memory.b}").reads(["b"]).save("c", ""))
            .path(["one", "two", "three"])
            .build()
            .unwrap();
        graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
        let marks = rig.engine.journal().checkpoints(rig.key(), None, None, 100).await.unwrap();
        assert!(marks.len() >= 7, "{}", marks.len());
        for mark in marks.iter().skip(1) {
            let session = rig.again().await;
            let options = ResumeOptions::new("m").from_checkpoint(mark.checkpoint.id.clone());
            let report = graph.resume_with(&session, options).await;
            let report = match report {
                Ok(run) => run.report().await,
                Err(error) => Err(error),
            };
            let report = report.unwrap_or_else(|error| panic!("{kind:?} {}: {error:?}", mark.checkpoint.description));
            assert_eq!(report.outcome, RunOutcome::Succeeded);
            let result = graph.result(&session, report).await.unwrap();
            assert_eq!(result.state.execution_path(), ["one", "two", "three"], "{}", mark.checkpoint.description);
        }
    }
}

/// K3: every kept checkpoint still loads after pruning, also one in the middle of a batch, and so does the head.
#[tokio::test]
async fn marks_in_the_middle_of_batches_survive_pruning() {
    for kind in Kind::ALL {
        for keep in 1..6 {
            let rig = Rig::new(kind).await;
            let ledger = rig.world.ledger();
            let graph = Graph::builder("g")
                .tool(noting(&ledger, "note"))
                .node(NodeSpec::tool("one", "note").with("what", "1").save("a", ""))
                .node(NodeSpec::tool("two", "note").with("what", "${memory.a}").reads(["a"]).save("b", ""))
                .path(["one", "two"])
                .retention(rekindle::core::retention::Policy::new([rekindle::core::retention::Rule::LastN(keep)]))
                .build()
                .unwrap();
            graph.run_once(GraphInput::new(), &rig.session).await.unwrap();
            let engine = rig.world.engine();
            engine.journal().load(rig.key(), None).await.unwrap_or_else(|error| panic!("{kind:?} {keep}: {error}"));
            let marks = engine.journal().checkpoints(rig.key(), None, None, 100).await.unwrap();
            assert!(!marks.is_empty());
            for mark in marks {
                let loaded = engine.journal().load(rig.key(), Some(&mark.position)).await;
                loaded.unwrap_or_else(|error| panic!("{kind:?} {keep} {}: {error}", mark.checkpoint.description));
            }
        }
    }
}

/// What may have happened is not forgotten because its node does something else now.
#[tokio::test]
async fn a_call_in_doubt_is_not_forgotten_with_the_work_of_its_node() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let build = |node: NodeSpec| {
        Graph::builder("g")
            .durability(Durability::Sync)
            .tool(deadly(&faults, &ledger, "pay").writes())
            .tool(noting(&ledger, "note"))
            .node(node)
            .node(NodeSpec::tool("end", "note").with("what", "x"))
            .path(["pay", "end"])
            .build()
            .unwrap()
    };
    build(NodeSpec::tool("pay", "pay").with("what", "5")).run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    let options = ResumeOptions::new("maria").accept_drift("nothing is paid any more");
    let session = rig.again().await;
    let resumed = build(NodeSpec::router("pay")).resume_with(&session, options).await;
    let report = match resumed {
        Ok(run) => run.report().await,
        Err(_) => return,
    };
    let open = rig.state().await.open_effects().count();
    assert!(
        !matches!(&report, Ok(report) if report.outcome == RunOutcome::Succeeded),
        "succeeded with {open} call in doubt"
    );
}
