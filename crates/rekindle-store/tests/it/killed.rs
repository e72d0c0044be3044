//! A real process, killed with SIGKILL again and again: everything it was told is durable is
//! there, in order, once.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::record::Durability;
use rekindle_core::{BranchId, Journal, Position, SessionHeader, SessionId, SessionKey, Target};
use rekindle_store::{BranchWriter, StoreOptions, SystemClock, WriterOptions, open, system_ids};
use rekindle_testkit::{message, register};

const KILLS: usize = 15;
const SESSIONS: usize = 3;

/// Tells the test below that it is the child: `<store URL> <number of the run>`.
const CHILD: &str = "REKINDLE_KILLED_CHILD";

fn journal(url: &str) -> Journal {
    let store = open(url, StoreOptions::new()).unwrap();
    Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().unwrap())
}

fn session(number: usize) -> SessionKey {
    SessionId::new(format!("session {number}")).unwrap().into()
}

/// Not a test of its own: what the killed process runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (url, run) = order.rsplit_once(' ').unwrap();
    let journal = journal(url);
    let writers = (0..SESSIONS).map(|number| tokio::spawn(write_for_ever(journal.clone(), number, run.to_owned())));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// One session commits synchronously, one asynchronously with barriers, one in larger batches.
async fn write_for_ever(journal: Journal, number: usize, run: String) {
    let key = session(number);
    let info = journal.open_or_create(SessionHeader::new(key.clone())).await.unwrap();
    let head = info.branch(&BranchId::main()).unwrap().head;
    let durability = if number == 1 { Durability::Async } else { Durability::Sync };
    let target = Target::new(key.clone(), BranchId::main(), head);
    let mut writer = BranchWriter::new(journal, target, WriterOptions::new(durability));
    let mut unflushed = Vec::new();
    for step in 0.. {
        let text = format!("{run}.{step}");
        let padding = "x".repeat(step * 131 % 9_000);
        let mut records = vec![message(&text), register("padding", &padding)];
        if number == 2 {
            records.extend((0..20).map(|n| register(&format!("k{n}"), &text)));
        }
        writer.commit(&records).await.unwrap();
        unflushed.push(text);
        if durability == Durability::Sync || step % 7 == 6 {
            writer.flush().await.unwrap();
            let acknowledged: String = unflushed.drain(..).map(|text| format!("ack {number} {text}\n")).collect();
            std::io::stdout().lock().write_all(acknowledged.as_bytes()).unwrap();
        }
    }
}

/// Runs the child until it has acknowledged about `count` batches, kills it, and gives what it
/// had acknowledged by then, by session.
fn run_and_kill(url: &str, run: usize, count: usize) -> Vec<Vec<String>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_process", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{url} {run}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = vec![Vec::new(); SESSIONS];
    let mut seen = 0;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Reading goes on behind the kill: what is in the pipe was said before it.
    for line in lines.map_while(Result::ok) {
        // The test runner's own words may stand before the first line.
        let Some((_, rest)) = line.split_once("ack ") else { continue };
        let (number, text) = rest.split_once(' ').unwrap();
        acknowledged[number.parse::<usize>().unwrap()].push(text.to_owned());
        seen += 1;
        if seen == count {
            child.kill().unwrap();
        }
    }
    assert!(seen >= count, "the child ended by itself after {seen} batches");
    assert!(!child.wait().unwrap().success());
    acknowledged
}

async fn survives_being_killed(url: &str) {
    let mut acknowledged: Vec<Vec<String>> = vec![Vec::new(); SESSIONS];
    for run in 0..KILLS {
        // From right after the first commit to a hundred and more later.
        for (all, new) in acknowledged.iter_mut().zip(run_and_kill(url, run, 1 + run * run * 5 / 7)) {
            all.extend(new);
        }
        let journal = journal(url);
        for (number, expected) in acknowledged.iter().enumerate() {
            let Ok(info) = journal.open(&session(number)).await else {
                assert!(expected.is_empty());
                continue;
            };
            let head = info.branch(&BranchId::main()).unwrap().head;
            let restored =
                journal.load(&session(number), Some(&Position::new(BranchId::main(), head.seq))).await.unwrap();
            let found: Vec<String> =
                restored.state.logs().flat_map(|(_, items)| items.iter().map(|item| item.decode().unwrap())).collect();
            assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len(), "something is there twice");
            let mut rest = found.iter();
            for text in expected {
                assert!(
                    rest.any(|other| other == text),
                    "run {run}, session {number}: `{text}` is missing or out of order"
                );
            }
            let report = journal.verify(&session(number), &Default::default()).await.unwrap();
            assert!(report.is_sound(), "run {run}, session {number}: {report:?}");
        }
    }
    let total: usize = acknowledged.iter().map(Vec::len).sum();
    assert!(total > KILLS * 10, "only {total} batches were acknowledged");
}

#[tokio::test]
async fn sqlite_survives_being_killed() {
    let directory = tempfile::tempdir().unwrap();
    survives_being_killed(&format!("sqlite:{}/rekindle.db", directory.path().display())).await;
}

#[tokio::test]
async fn files_survive_being_killed() {
    let directory = tempfile::tempdir().unwrap();
    survives_being_killed(&format!("file:{}/store", directory.path().display())).await;
}
