//! A session of an executor that Rekindle does not know is shown, listed, inspected, resumed, worked off and served like
//! any other.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::operations::{self, At, Enqueue, HistoryOptions, JobInput, Settlement};
use rekindle::worker::{CancellationToken, Worker, work};
use rekindle::{Engine, Executor, Input, Json, ResumeOptions, RunOptions, RunOutcome, Session, SessionHeader, Status};
use rekindle_example_executor::{Checklist, Checklists};
use rekindle_mcp::McpServer;
use rekindle_mcp::rmcp::service::serve_server;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, duplex, split};

/// A store, and a ledger that only the work writes.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// As a new process would open it.
    fn engine(&self) -> Engine {
        Engine::open(&format!("sqlite:{}", self.path("store.db").display())).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ledger(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A checklist that writes each item into the ledger, and fails at one as long as the file `broken` is there.
    fn checklist(&self) -> Arc<dyn Executor> {
        let folder = self.folder.path().to_owned();
        Arc::new(Checklist::new("packing", move |item, _| {
            if item == "hat" && folder.join("broken").exists() {
                return Err("there is no hat".to_owned());
            }
            note(&folder, item);
            Ok(Json::from(format!("packed {item}").as_str()))
        }))
    }
}

fn note(folder: &Path, item: &str) {
    use std::io::Write as _;
    let mut ledger = fs::File::options().create(true).append(true).open(folder.join("ledger")).unwrap();
    writeln!(ledger, "{item}").unwrap();
}

fn items(items: &[&str]) -> Json {
    Json::of(&items).unwrap()
}

async fn start(session: &Session, executor: Arc<dyn Executor>, input: Json) -> rekindle::Result<rekindle::RunReport> {
    let (input, run) = (Input::Value(input), RunOptions::default());
    operations::start(session.engine(), session.key(), executor, input, run, ResumeOptions::new("maria"))
        .await?
        .report()
        .await
}

/// A checklist that failed at its second item of three.
async fn failed(place: &Place) -> Session {
    fs::write(place.path("broken"), "").unwrap();
    let session = place.engine().create("trip").await.unwrap();
    let report = start(&session, place.checklist(), items(&["map", "hat", "rope"])).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Failed);
    fs::remove_file(place.path("broken")).unwrap();
    session
}

#[tokio::test]
async fn a_run_ends_with_its_result_and_is_listed() {
    let place = Place::new();
    let session = place.engine().create("trip").await.unwrap();
    let report = start(&session, place.checklist(), items(&["map", "hat"])).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded);
    assert_eq!(report.value, Some(items(&["packed map", "packed hat"])));
    assert_eq!(place.ledger(), ["map", "hat"]);

    // Another process, which runs no checklists: it was told of them.
    let engine = place.engine().with_executor(Checklists);
    let shown = operations::show(&engine, session.key()).await.unwrap();
    assert_eq!((shown.status, shown.resumable.resumable), (Status::Succeeded, false));
    assert!(shown.resumable.why.contains("run it anew"), "{}", shown.resumable.why);
    let seen = operations::inspect(&engine, session.key(), &At::Latest).await.unwrap();
    let view = operations::view(&engine, &seen.state).unwrap();
    assert_eq!(view.path, ["map", "hat"]);
    assert_eq!(view.outputs["hat"], Json::from("packed hat"));
    let log = operations::history(&engine, session.key(), &HistoryOptions::default()).await.unwrap();
    let log: Vec<_> = log.checkpoints.iter().map(|info| info.checkpoint.description.as_str()).collect();
    assert_eq!(log, ["hat is done", "map is done"]);
}

#[tokio::test]
async fn what_failed_is_resumed_and_finished_items_are_not_repeated() {
    let place = Place::new();
    let session = failed(&place).await;
    let engine = place.engine().with_executor(Checklists);
    let shown = operations::show(&engine, session.key()).await.unwrap();
    assert!(shown.resumable.resumable && shown.resumable.why.contains("not finished"), "{:?}", shown.resumable);
    // New input would give up what is unfinished, and a checklist does not.
    let again = start(&session, place.checklist(), items(&["map"])).await.unwrap_err();
    assert_eq!(again.code(), "RK0019");
    let sent = operations::send(&engine, session.key(), "hurry".into(), Default::default(), "maria", None).await;
    assert!(sent.unwrap_err().message().contains("that of a checklist, which reads no messages"));

    let (run, options) = (RunOptions::default(), ResumeOptions::new("maria"));
    let resumed = operations::resume(&engine, session.key(), place.checklist(), run, options).await.unwrap();
    assert_eq!(resumed.report().await.unwrap().value, Some(items(&["packed map", "packed hat", "packed rope"])));
    assert_eq!(place.ledger(), ["map", "hat", "rope"]);
}

#[tokio::test]
async fn a_worker_works_off_a_checklist() {
    let place = Place::new();
    let engine = place.engine();
    let header = SessionHeader { agent: Some("packing".into()), ..SessionHeader::new(engine.key("trip").unwrap()) };
    let enqueue = Enqueue::new(header, "maria").input(JobInput::Input(items(&["map", "rope"])));
    operations::enqueue(&engine, &enqueue).await.unwrap();
    let packing = work("packing", place.checklist(), RunOptions::default());
    let worker = Worker::builder(engine.clone()).work(packing).until_idle().build().unwrap();
    worker.run(CancellationToken::new()).await.unwrap();
    assert_eq!(place.ledger(), ["map", "rope"]);
    let shown = operations::show(&engine, &engine.key("trip").unwrap()).await.unwrap();
    assert_eq!(shown.status, Status::Succeeded);
}

#[tokio::test]
async fn a_call_in_doubt_is_settled_by_a_person_and_not_made_again() {
    let place = Place::new();
    let engine = place.engine();
    let session = engine.create("trip").await.unwrap();
    // Its process dies in the middle of the call: the work never comes back, and the runtime goes.
    let folder = place.folder.path().to_owned();
    let (began, begun) = std::sync::mpsc::channel();
    let key = session.key().clone();
    let dying = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let began = std::sync::Mutex::new(began);
        let stuck = Arc::new(Checklist::new("packing", move |item, _| {
            note(&folder, item);
            began.lock().unwrap().send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(2));
            Err("never said".to_owned())
        }));
        let (input, run) = (Input::Value(items(&["map", "rope"])), RunOptions::default());
        runtime.block_on(async {
            let run = operations::start(&engine, &key, stuck, input, run, ResumeOptions::new("maria")).await.unwrap();
            begun.recv().unwrap();
            run.detach();
        });
        runtime.shutdown_background();
    });
    dying.join().unwrap();

    let engine = place.engine().with_executor(Checklists);
    let resume = async || {
        let options = ResumeOptions::new("maria").take_over();
        let run = operations::resume(&engine, session.key(), place.checklist(), RunOptions::default(), options);
        run.await.unwrap().report().await.unwrap()
    };
    let doubt = resume().await;
    assert_eq!((doubt.outcome, doubt.reason.as_str()), (RunOutcome::Paused, "`map`: its outcome was not recorded"));
    let effect = rekindle::EffectId::new("1.0.0").unwrap();
    let settlement = Settlement::Ok(Json::from("packed map"));
    operations::settle(&engine, session.key(), &effect, &settlement, "maria", "I looked").await.unwrap();
    assert_eq!(resume().await.outcome, RunOutcome::Succeeded);
    assert_eq!(place.ledger(), ["map", "rope"]);
}

#[tokio::test]
async fn mcp_clients_see_it_too() {
    let place = Place::new();
    failed(&place).await;
    let server = McpServer::builder(place.engine().with_executor(Checklists)).author("tester").build();
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(async move { serve_server(server, split(theirs)).await.unwrap().waiting().await });
    let (read, mut write) = split(ours);
    let mut lines = BufReader::new(read).lines();
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let call = |id: u64, tool: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    let mut answers = Vec::new();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        call(2, "inspect_checkpoint", json!({"session_id": "trip"})),
        call(3, "list_resumable_sessions", json!({})),
    ] {
        write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        while message.get("id").is_some() {
            let answer: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            if answer["id"] == message["id"] {
                answers.push(answer["result"]["structuredContent"].clone());
                break;
            }
        }
    }
    assert_eq!(answers[1]["run"]["executor"], "checklist", "{}", answers[1]);
    assert_eq!(answers[1]["execution_path"], json!(["map"]));
    assert_eq!(answers[1]["accumulated_outputs"], json!({"map": "packed map"}));
    assert_eq!(answers[2]["sessions"][0]["session_id"], "trip", "{}", answers[2]);
}
