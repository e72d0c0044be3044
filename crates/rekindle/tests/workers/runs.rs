//! What workers run: agents, plans, graphs and flows, in order and within limits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rekindle::core::QueueName;
use rekindle::core::queue::KeyLimit;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{GraphInput, NodeSpec};
use rekindle::operations::{self, Enqueue};
use rekindle::plan::StepSpec;
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::worker::WorkerEvent;
use rekindle::{Agent, Flow, Graph, Plan, Status};
use rekindle_models::{Script, ScriptedModel};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::kit::{Place, header, job, job_of, noting, on_each_store, open_gate, put, status, until_over, working};
use crate::support::{Ledger, Of, messages};

on_each_store! {
    agents_take_messages_one_turn_after_the_other
    plans_graphs_and_flows_begin_with_their_input
    inputs_follow_each_other_and_none_is_lost
    priority_goes_first_and_queues_are_kept_apart
    limits_hold_over_all_workers
    many_jobs_are_each_run_once_by_many_workers
}

async fn agents_take_messages_one_turn_after_the_other(place: Place) {
    let engine = place.engine();
    let agent = Agent::builder("guide", ScriptedModel::new(Script::new("m").text("one").text("two"))).build().unwrap();
    let first = Enqueue::new(header(&engine, "s", "guide"), "maria").message("first");
    assert!(operations::enqueue(&engine, &first).await.unwrap().created);
    assert!(operations::enqueue(&engine, &first).await.unwrap().repeated, "the same id counts once");
    let second = Enqueue::existing(first.session.clone(), "maria").message("second");
    operations::enqueue(&engine, &second).await.unwrap();
    let report = working(place.worker().work(agent).until_idle()).end().await;
    assert_eq!((report.failed, report.held, report.lost), (0, 0, 0), "{report:?}");
    let said: Vec<String> = messages(&engine, &first.session).await.iter().map(|message| message.text()).collect();
    assert_eq!(said, ["first", "one", "second", "two"]);
    assert!(job_of(&engine, "s").await.is_none());
}

/// A tool that writes what it is told into the ledger.
fn writing(name: &str, ledger: &Ledger) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool(name, "Writes.", move |_, of: Of| {
        ledger.write(&of.what);
        async move { Ok::<_, ToolError>(of.what) }
    })
}

async fn plans_graphs_and_flows_begin_with_their_input(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    let note = writing("note", &ledger);
    let step = StepSpec::new("a", "note").with("what", "plan ${context.what}");
    let plan = Plan::builder("plan").tool(note).step(step).build().unwrap();
    let write = writing("write", &ledger);
    let graph = Graph::builder("graph")
        .inputs(["what"])
        .tool(write)
        .node(NodeSpec::tool("write", "write").with("what", "graph ${memory.what}").reads(["what"]))
        .entry("write")
        .build()
        .unwrap();
    put(&engine, "p", "plan", json!({"context": {"what": "one"}})).await;
    put(&engine, "g", "graph", json!(GraphInput::new().with("what", "two"))).await;
    put(&engine, "f", "flow", json!("flow three")).await;
    let worker = place.worker().work(plan).work(graph).work(noting("flow", &ledger, &open_gate()));
    let report = working(worker.until_idle()).end().await;
    assert_eq!(report.succeeded, 3, "{report:?}");
    let mut lines = ledger.lines();
    lines.sort();
    assert_eq!(lines, ["flow three", "graph two", "plan one"]);
    for id in ["p", "g", "f"] {
        until_over(&engine, id, Status::Succeeded).await;
    }
}

async fn inputs_follow_each_other_and_none_is_lost(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    for what in ["one", "two", "three"] {
        let mut job = job(&engine, "f", "flow", what);
        job.message = Some(rekindle::MessageId::new(what).unwrap());
        operations::enqueue(&engine, &job).await.unwrap();
        operations::enqueue(&engine, &job).await.unwrap();
    }
    let report = working(place.worker().work(noting("flow", &ledger, &open_gate())).until_idle()).end().await;
    assert_eq!(ledger.lines(), ["one", "two", "three"]);
    assert_eq!(report.succeeded, 3);
}

async fn priority_goes_first_and_queues_are_kept_apart(place: Place) {
    let (engine, ledger, gate) = (place.engine(), place.ledger(), Arc::new(Semaphore::new(0)));
    for (id, priority, queue) in [("a", 0, "default"), ("b", 5, "default"), ("c", -5, "default"), ("d", 9, "other")] {
        let mut job = job(&engine, id, "flow", id);
        (job.priority, job.queue) = (priority, QueueName::new(queue).unwrap());
        operations::enqueue(&engine, &job).await.unwrap();
    }
    gate.add_permits(10);
    let worker = place.worker().work(noting("flow", &ledger, &gate)).concurrency(1).queue(QueueName::default());
    working(worker.until_idle()).end().await;
    assert_eq!(ledger.lines(), ["b", "a", "c"]);
    let left = operations::queues(&engine).await.unwrap();
    assert_eq!((left.len(), left[0].queue.as_str(), left[0].ready), (1, "other", 1));
}

/// A flow that says how many of it are under way at once.
fn counting(name: &str, now: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Flow {
    let (now, most) = (Arc::clone(now), Arc::clone(most));
    Flow::new(name, move |context, what: String| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            let work = async |_| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // On a busy machine the next may begin late; it must be able to overtake the limit.
                while most.load(Ordering::SeqCst) < 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_millis(30)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(true)
            };
            context.step("work", &what, work).await
        }
    })
}

async fn limits_hold_over_all_workers(place: Place) {
    let engine = place.engine();
    let (now, most) = (Arc::default(), Arc::default());
    let (now_keyed, most_keyed) = (Arc::default(), Arc::default());
    for number in 0..6 {
        put(&engine, &format!("limited-{number}"), "limited", "x").await;
        let mut keyed = job(&engine, &format!("keyed-{number}"), "keyed", "x");
        keyed.key = Some(KeyLimit { key: "customer".to_owned(), most: 2 });
        operations::enqueue(&engine, &keyed).await.unwrap();
    }
    let worker = || {
        let two = NonZeroU32::new(2).unwrap();
        let worker = place.worker().concurrency(6).agent_limit("limited", two).until_idle();
        worker.work(counting("limited", &now, &most)).work(counting("keyed", &now_keyed, &most_keyed))
    };
    let (one, other) = (working(worker()), working(worker()));
    let done = one.end().await.succeeded + other.end().await.succeeded;
    assert_eq!(done, 12);
    assert_eq!((most.load(Ordering::SeqCst), most_keyed.load(Ordering::SeqCst)), (2, 2));
}

async fn many_jobs_are_each_run_once_by_many_workers(place: Place) {
    let (engine, ledger) = (place.engine(), place.ledger());
    for number in 0..30 {
        let id = format!("s{number}");
        put(&engine, &id, "flow", id.as_str()).await;
    }
    let worker = || working(place.worker().work(noting("flow", &ledger, &open_gate())).until_idle());
    let hands = [worker(), worker(), worker()];
    let mut ran = 0;
    for hand in hands {
        ran += hand.end().await.succeeded;
    }
    assert_eq!(ran, 30);
    assert!(ledger.counts().values().all(|times| *times == 1));
    assert_eq!(ledger.lines().len(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_on_the_list_while_it_lives_and_a_failed_run_is_not_repeated() {
    let place = Place::new(crate::kit::Kind::Memory);
    let engine = place.engine();
    let failing = Flow::new("failing", async |_, _: String| {
        Err::<(), _>(rekindle::Error::new(rekindle::ErrorKind::StepFailed, "no luck"))
    });
    put(&engine, "f", "failing", "x").await;
    let hand = working(place.worker().work(failing));
    until_over(&engine, "f", Status::Failed).await;
    let workers = operations::workers(&engine).await.unwrap();
    assert_eq!((workers.len(), workers[0].slots, workers[0].draining), (1, 4, false));
    let ran = hand.events().into_iter().filter(|event| matches!(event, WorkerEvent::Ran { .. }));
    let ran: Vec<_> = ran.collect();
    assert!(matches!(&ran[..], [WorkerEvent::Ran { outcome: RunOutcome::Failed, .. }]), "{ran:?}");
    hand.stop().await;
    assert!(operations::workers(&engine).await.unwrap().is_empty());
    // Somebody wants it tried once more.
    let again = Enqueue::existing(engine.key("f").unwrap(), "maria");
    operations::enqueue(&engine, &again).await.unwrap();
    let fixed = Flow::new("failing", async |_, _: String| Ok(true));
    let report = working(place.worker().work(fixed).until_idle()).end().await;
    assert_eq!((report.succeeded, status(&engine, "f").await), (1, Status::Succeeded));
}
