//! One owner at a time: processes that race for a session, processes that were frozen past their
//! lease, and processes whose session was taken over while they worked.

use std::path::Path;
use std::time::Duration;

use rekindle::record::{Durability, RunOutcome};
use rekindle::{BranchId, Record, ResumeOptions, RunId, Seq};
use rekindle_models::{Call, Script};
use serde_json::json;
use tempfile::TempDir;

use crate::child::{Order, Process, SESSION, agent, engine, ledger};
use crate::killed::{Unbroken, script};
use crate::support::{messages, records};

const BOTH: [Durability; 2] = [Durability::Sync, Durability::Async];

/// A process that ran a few steps and was stopped in good order: its session is anybody's.
fn paused_after(order: &Order, line: &str) {
    let mut process = order.start();
    process.wait_for(line);
    process.tell("stop");
    let (_, end) = process.end();
    assert_eq!(end.outcome, Some(RunOutcome::Paused), "{end:?}");
}

async fn stored(directory: &Path) -> Vec<(Seq, Record)> {
    let engine = engine(directory);
    records(&engine, &engine.key(SESSION).unwrap(), &BranchId::main()).await
}

/// The runs of a history, each with where it began.
fn runs(records: &[(Seq, Record)]) -> Vec<(Seq, RunId)> {
    let started = records.iter().filter_map(|(seq, record)| match record {
        Record::RunStarted(started) => Some((*seq, started.run.clone())),
        _ => None,
    });
    started.collect()
}

/// The run a record belongs to, where it says so.
fn run_of(record: &Record) -> Option<&RunId> {
    match record {
        Record::EffectIntent(intent) => intent.run.as_ref(),
        Record::Checkpoint(checkpoint) => checkpoint.run.as_ref(),
        Record::RunEnded(ended) => Some(&ended.run),
        _ => None,
    }
}

/// Nothing behind the start of the last run belongs to another.
fn check_only_the_last_writes(records: &[(Seq, Record)], context: &str) {
    let (began, last) = runs(records).pop().unwrap();
    let foreign = records.iter().filter(|(seq, _)| *seq > began).filter_map(|(_, record)| run_of(record));
    let foreign: Vec<_> = foreign.filter(|run| **run != last).collect();
    assert!(foreign.is_empty(), "{context}: {foreign:?} wrote behind the start of {last}");
}

/// Waits until nobody's lease is live, by the store's clock.
async fn lease_expired(directory: &Path) {
    let session = engine(directory).open_session(SESSION).await.unwrap();
    while session.info().await.unwrap().live_lease().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the process of that name began, by the ledger.
fn begun_by(directory: &Path, name: &str) -> Vec<String> {
    let prefix = format!("begin {name} ");
    ledger(directory).lines().into_iter().filter(|line| line.starts_with(&prefix)).collect()
}

/// A process that was frozen right after it said `line`, in a directory of its own. A process that
/// holds the lock of the database while it is frozen keeps everybody out, so that nobody can take
/// over: then another one is tried.
async fn frozen(order: &Order, line: &str) -> (TempDir, Order, Process) {
    for _ in 0..5 {
        let directory = TempDir::new().unwrap();
        let order = Order { directory: directory.path().into(), ..order.clone() };
        let mut process = order.start();
        process.wait_for(line);
        process.signal("STOP");
        if engine(directory.path()).create("can anybody write?").await.is_ok() {
            return (directory, order, process);
        }
        process.kill();
    }
    panic!("it always froze while it wrote");
}

/// The frozen process wakes up, and must find out before it does anything.
fn wakes_up_fenced(process: Process, context: &str) {
    process.signal("CONT");
    let (said, end) = process.end();
    assert_eq!(end.code.as_deref(), Some("RK0006"), "{context}: {end:?}");
    let began = said.iter().find(|line| line.starts_with("begin ") || line.starts_with("asked "));
    assert_eq!(began, None, "{context}: it began something although its lease was gone");
}

#[tokio::test]
async fn of_two_processes_that_resume_at_once_one_runs_and_the_other_is_told_who() {
    let unbroken = Unbroken::new(Durability::Async).await;
    for round in 0..4 {
        let directory = TempDir::new().unwrap();
        paused_after(&Order::new(directory.path(), "first", script()), "begin read a");
        let order = |name| Order { gated: true, ..Order::new(directory.path(), name, script()) };
        let mut racers = ["anna", "bert"].map(|name| order(name).start());
        racers.iter_mut().for_each(|racer| drop(racer.wait_for("ready")));
        racers.iter_mut().for_each(|racer| racer.tell("go"));
        let ends = racers.map(|racer| racer.end().1);
        let won = usize::from(ends[1].outcome.is_some());
        let (winner, loser) = (&ends[won], &ends[1 - won]);
        let context = format!("round {round}: {ends:?}");
        assert_eq!(winner.outcome, Some(RunOutcome::Succeeded), "{context}");
        assert_eq!(loser.code.as_deref(), Some("RK0007"), "{context}");
        let name = ["anna/", "bert/"][won];
        assert!(loser.owner.as_ref().unwrap().starts_with(name), "{context}");
        assert!(loser.text.contains(name), "the error names the owner to people too: {context}");
        assert_eq!(begun_by(directory.path(), ["anna", "bert"][1 - won]), Vec::<String>::new(), "{context}");
        unbroken.check(directory.path(), &context).await;
        let runs = runs(&stored(directory.path()).await);
        assert_eq!(runs.len(), 2, "the loser left no record: {context}");
    }
}

/// Where a process is frozen: what it says right before, in which script.
fn moments() -> [(&'static str, &'static str, Script); 4] {
    let of = |what: &str| json!({ "what": what });
    let then = |script: Script| script.calls([Call::new("charge", of("five"))]).text("done");
    let slow_model = Script::new("m").turn(
        rekindle_models::Turn::calls([Call::new("read", of("a")), Call::new("read", of("b"))])
            .delayed(Duration::from_millis(300)),
    );
    [
        // The model is asked next.
        ("in a reading tool", "amid long", then(Script::new("m").calls([Call::new("long", of("a"))]))),
        // Tools that need no barrier are next.
        ("in the model", "asked", then(slow_model)),
        // A tool of the same step is next, one that needs no barrier.
        (
            "between two tools of a step",
            "amid lengthy a",
            then(Script::new("m").calls([Call::new("lengthy", of("a")), Call::new("lengthy", of("b"))])),
        ),
        // A writing tool of the same step is next.
        (
            "before a writing tool of the step",
            "amid lengthy a",
            then(Script::new("m").calls([Call::new("lengthy", of("a")), Call::new("append", of("b"))])),
        ),
    ]
}

#[tokio::test]
async fn a_process_frozen_past_its_lease_can_do_nothing_after_another_took_over() {
    for durability in BOTH {
        for (place, line, script) in moments() {
            let context = format!("{durability:?}, frozen {place}");
            let lease = Duration::from_millis(500);
            let order = Order { durability, lease, ..Order::new(Path::new(""), "frozen", script.clone()) };
            let (directory, order, frozen) = frozen(&order, line).await;
            let successor = Order { name: "successor".into(), patience: Duration::from_secs(20), ..order };
            let (_, end) = successor.start().end();
            assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{context}: {end:?}");
            let before = (stored(directory.path()).await, begun_by(directory.path(), "frozen"));
            let head = engine(directory.path()).open_session(SESSION).await.unwrap().info().await.unwrap().branches;
            wakes_up_fenced(frozen, &context);
            let after = (stored(directory.path()).await, begun_by(directory.path(), "frozen"));
            assert_eq!(after, before, "{context}: it changed the journal, or began something");
            let now = engine(directory.path()).open_session(SESSION).await.unwrap().info().await.unwrap().branches;
            assert_eq!(now, head, "{context}: it moved a head, a status or a lease");
        }
    }
}

#[tokio::test]
async fn a_process_frozen_past_its_lease_finds_out_even_if_nobody_took_over() {
    for durability in BOTH {
        for (place, line, script) in moments() {
            let context = format!("{durability:?}, frozen {place}, and nobody took over");
            let lease = Duration::from_millis(500);
            let order = Order { durability, lease, ..Order::new(Path::new(""), "frozen", script.clone()) };
            let (directory, order, frozen) = frozen(&order, line).await;
            lease_expired(directory.path()).await;
            let before = stored(directory.path()).await;
            wakes_up_fenced(frozen, &context);
            assert_eq!(stored(directory.path()).await, before, "{context}");
            // It is nobody's now, and anybody can go on at once.
            let (_, end) = Order { name: "successor".into(), ..order }.start().end();
            assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{context}: {end:?}");
            let records = stored(directory.path()).await;
            check_only_the_last_writes(&records, &context);
        }
    }
}

#[tokio::test]
async fn a_process_whose_session_is_taken_over_while_it_works_is_fenced_out() {
    for durability in BOTH {
        let unbroken = Unbroken::new(durability).await;
        // While it thinks, reads, and writes.
        for line in ["asked", "begin slow z", "begin email carol", "begin append 1"] {
            let context = format!("{durability:?}, taken over after `{line}`");
            let directory = TempDir::new().unwrap();
            let order = |name: &str| Order { durability, ..Order::new(directory.path(), name, script()) };
            // Started first: a busy machine may take longer to start a process than the other has work.
            let mut new = Order { take_over: true, gated: true, ..order("new") }.start();
            new.wait_for("ready");
            let mut old = order("old").start();
            old.wait_for(line);
            new.tell("go");
            let (_, fenced) = old.end();
            assert_eq!(fenced.code.as_deref(), Some("RK0006"), "{context}: {fenced:?}");
            let (_, end) = new.end();
            assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{context}: {end:?}");
            let records = stored(directory.path()).await;
            check_only_the_last_writes(&records, &context);
            let engine = engine(directory.path());
            assert_eq!(messages(&engine, &engine.key(SESSION).unwrap()).await, unbroken.messages, "{context}");
        }
    }
}

#[tokio::test]
async fn of_processes_that_take_over_at_once_one_runs_and_the_others_do_not() {
    let unbroken = Unbroken::new(Durability::Async).await;
    for round in 0..3 {
        let directory = TempDir::new().unwrap();
        let order = |name: &str| Order { gated: true, take_over: true, ..Order::new(directory.path(), name, script()) };
        let mut old = Order { gated: false, ..order("old") }.start();
        old.wait_for("begin slow z");
        let mut heirs = ["anna", "bert"].map(|name| order(name).start());
        heirs.iter_mut().for_each(|heir| drop(heir.wait_for("ready")));
        heirs.iter_mut().for_each(|heir| heir.tell("go"));
        let mut ends = vec![old.end().1];
        ends.extend(heirs.map(|heir| heir.end().1));
        let done = ends.iter().filter(|end| end.outcome == Some(RunOutcome::Succeeded)).count();
        let context = format!("round {round}: {ends:?}");
        assert_eq!(done, 1, "{context}");
        assert_eq!(ends[0].code.as_deref(), Some("RK0006"), "the old owner is fenced out: {context}");
        // The other heir was fenced out by the one that runs, or found it running.
        let refused = ends.iter().filter_map(|end| end.code.as_deref());
        assert!(refused.clone().all(|code| ["RK0006", "RK0007"].contains(&code)), "{context}");
        assert_eq!(refused.count(), 2, "{context}");
        check_only_the_last_writes(&stored(directory.path()).await, &context);
        let engine = engine(directory.path());
        assert_eq!(messages(&engine, &engine.key(SESSION).unwrap()).await, unbroken.messages, "{context}");
    }
}

#[tokio::test]
async fn the_events_of_a_run_that_lost_its_session_end() {
    let directory = TempDir::new().unwrap();
    let order = Order { lease: Duration::from_millis(200), ..Order::new(directory.path(), "old", script()) };
    let engine = order.engine();
    let session = engine.create(SESSION).await.unwrap();
    let mut old = agent(&order).run("go", &session).await.unwrap();
    assert!(old.next_event().await.unwrap().is_some());
    let heir = Order { name: "new".into(), ..order.clone() };
    let session = heir.engine().open_session(SESSION).await.unwrap();
    let new = agent(&heir).resume_with(&session, ResumeOptions::new("new").take_over()).await.unwrap();
    let read = async { while old.next_event().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("nothing more will come, and it says so");
    assert_eq!(old.report().await.unwrap_err().code(), "RK0006");
    assert_eq!(new.report().await.unwrap().outcome, RunOutcome::Succeeded);
}
