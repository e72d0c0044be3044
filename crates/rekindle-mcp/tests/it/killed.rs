//! Server and worker in one process that is killed between the call that starts a run and the
//! question what became of it, and again while it works: the run is found, goes on and ends, and
//! each call was made once.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Checked, tool};
use rekindle::worker::Worker;
use rekindle::{Agent, Json};
use rekindle_mcp::rmcp::ServiceExt as _;
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::tasks_kit::{Client, Ledger, Place, engine, server};

/// Tells the test below that it is the server, and where its store is.
const DIRECTORY: &str = "REKINDLE_MCP_TEST_DIRECTORY";
/// How many calls the agent makes.
const CALLS: usize = 12;

#[derive(serde::Deserialize, JsonSchema)]
struct Line {
    number: usize,
}

/// Writes twelve lines into a ledger, one after the other. What became of a call whose process died,
/// the ledger says.
fn writer(directory: &Path) -> Agent {
    let ledger = Ledger(directory.join("ledger"));
    let book = ledger.clone();
    let note = tool("note", "Notes.", move |call, line: Line| {
        let ledger = ledger.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            ledger.write(&format!("{} {}", line.number, call.idempotency_key()));
            Ok("noted")
        }
    });
    let note = note.writes().check(move |call, line: Line| {
        let happened = book.lines().contains(&format!("{} {}", line.number, call.idempotency_key()));
        async move { Ok(if happened { Checked::Happened(Json::from("noted")) } else { Checked::DidNotHappen }) }
    });
    let turns = (0..CALLS).map(|number| Turn::call("note", json!({ "number": number })));
    let script = turns.fold(Script::new("m"), Script::turn).text("All is noted.");
    Agent::builder("writer", ScriptedModel::new(script)).tool(note).build().unwrap()
}

/// Not a test of its own: what the started process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let worker = Worker::builder(engine(&directory)).sweep(Duration::from_millis(200)).work(writer(&directory));
    tokio::spawn(worker.build().unwrap().run(CancellationToken::new()));
    let transport = (tokio::io::stdin(), tokio::io::stdout());
    server(engine(&directory)).serve(transport).await.unwrap().waiting().await.unwrap();
}

fn spawn(directory: &Path) -> (Child, Client) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed::server_process", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let client = Client::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    (child, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_outlives_the_kill_of_its_process() {
    let place = Place::new();
    let (mut child, mut client) = spawn(place.path());
    let task = client.start("writer", "book").await;
    child.kill().await.unwrap();
    // Killed again and again while it works, and asked only then.
    for lines in [1, 5, 9] {
        let (mut child, client) = spawn(place.path());
        while place.ledger().lines().len() < lines {
            assert!(child.try_wait().unwrap().is_none(), "the server ended by itself");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child.kill().await.unwrap();
        drop(client);
    }
    let (mut child, mut client) = spawn(place.path());
    let done = client.until(&task, "completed").await;
    let told = &done["result"]["structuredContent"];
    assert_eq!(told["answer"], "All is noted.");
    assert_ne!(told["latest_run_id"], told["run_id"]);
    let numbers: Vec<usize> =
        place.ledger().lines().iter().map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect();
    assert_eq!(numbers, (0..CALLS).collect::<Vec<_>>());
    child.kill().await.unwrap();
}
