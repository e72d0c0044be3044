//! One owner at a time: processes that race for a session, processes that were frozen past their
//! lease, and processes whose session was taken over while they worked.

use std::path::Path;
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::core::{Record, Seq};
use rekindle::{BranchId, ResumeOptions, RunId};
use rekindle_models::{Call, Script};
use serde_json::json;
use tempfile::TempDir;

use crate::child::{DEAD, LONG, LOST, Order, Process, SESSION, agent, engine, ledger};
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
    while has_live_lease(directory).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the process of that name began, by the ledger.
fn begun_by(directory: &Path, name: &str) -> Vec<String> {
    let prefix = format!("begin {name} ");
    ledger(directory).lines().into_iter().filter(|line| line.starts_with(&prefix)).collect()
}

/// A process that was frozen right after it said `line`, in a directory of its own, while its lease
/// was live. On a busy machine it may lose a short lease before that: then another one with a longer
/// lease is tried. So it is with one that holds the lock of the database while it is frozen, which
/// keeps everybody out, so that nobody can take over.
async fn frozen(order: &Order, line: &str) -> (TempDir, Order, Process) {
    let hold = Some(line.to_owned());
    for lease in (0..7).map(|doubled| Duration::from_millis(500) * (1 << doubled)) {
        let directory = TempDir::new().unwrap();
        let order = Order { directory: directory.path().into(), lease, hold: hold.clone(), ..order.clone() };
        let mut process = order.start();
        let held = process.is_held_at(line);
        process.freeze();
        if held && has_live_lease(directory.path()).await && can_be_written(directory.path()).await {
            return (directory, order, process);
        }
        let end = process.kill();
        let lost = end.as_ref().is_none_or(|end| end.code.as_deref() == Some(LOST));
        assert!(lost, "it ended before it was frozen: {end:?}");
    }
    panic!("it always froze while it wrote, or lost even a long lease");
}

async fn has_live_lease(directory: &Path) -> bool {
    let session = engine(directory).open_session(SESSION).await.unwrap();
    session.info().await.unwrap().live_lease().is_some()
}

async fn can_be_written(directory: &Path) -> bool {
    engine(directory).create("can anybody write?").await.is_ok()
}

/// The process that goes on with what a frozen one left, with a lease that it does not lose.
fn successor(order: Order) -> Order {
    Order { name: "successor".into(), lease: LONG, hold: None, ..order }
}

/// The frozen process wakes up, and must find out before it does anything.
fn wakes_up_fenced(mut process: Process, context: &str) {
    process.go_on();
    process.signal("CONT");
    let (said, end) = process.end();
    assert_eq!(end.code.as_deref(), Some(LOST), "{context}: {end:?}");
    let began = said.iter().find(|line| line.starts_with("begin ") || line.starts_with("asked "));
    assert_eq!(began, None, "{context}: it began something although its lease was gone");
}

#[tokio::test]
async fn of_two_processes_that_resume_at_once_one_runs_and_the_other_is_told_who() {
    let unbroken = Unbroken::new(Durability::Async).await;
    for round in 0..4 {
        let directory = TempDir::new().unwrap();
        paused_after(&Order::new(directory.path(), "first", script()), "begin read a");
        // The one that runs is held until the other has ended: it must not be done before that asks.
        let hold = "begin append 1";
        let order =
            |name| Order { gated: true, hold: Some(hold.into()), ..Order::new(directory.path(), name, script()) };
        let mut racers = ["anna", "bert"].map(|name| order(name).start());
        racers.iter_mut().for_each(|racer| drop(racer.wait_for("ready")));
        racers.iter_mut().for_each(|racer| racer.tell("go"));
        let held = racers.each_mut().map(|racer| racer.is_held_at(hold));
        assert!(held[0] != held[1], "round {round}: one of them runs");
        racers[usize::from(held[1])].go_on();
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

/// The owner is killed while its lease has an hour to go. Everybody knows that it is dead, and all take
/// over at once: one becomes the owner, and the others, who saw the same dead process, do not evict it.
#[tokio::test]
async fn of_three_processes_that_resume_at_once_after_a_kill_one_runs_and_is_not_evicted() {
    let unbroken = Unbroken::new(Durability::Async).await;
    let names = ["anna", "bert", "carl"];
    for round in 0..4 {
        let directory = TempDir::new().unwrap();
        let mut dead = Order::new(directory.path(), DEAD, script()).start();
        dead.wait_for("begin read a");
        assert!(dead.kill().is_none(), "round {round}: it ended before it was killed");
        let hold = "begin append 1";
        let order =
            |name| Order { gated: true, hold: Some(hold.into()), ..Order::new(directory.path(), name, script()) };
        let mut racers = names.map(|name| order(name).start());
        racers.iter_mut().for_each(|racer| drop(racer.wait_for("ready")));
        racers.iter_mut().for_each(|racer| racer.tell("go"));
        let held = racers.each_mut().map(|racer| racer.is_held_at(hold));
        let won = held.iter().position(|held| *held).unwrap_or_else(|| panic!("round {round}: nobody runs"));
        racers[won].go_on();
        let ends = racers.map(|racer| racer.end().1);
        let context = format!("round {round}: {ends:?}");
        for (name, end) in names.iter().zip(&ends) {
            if *name == names[won] {
                assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{context}");
                continue;
            }
            assert_eq!(end.code.as_deref(), Some("RK0007"), "{context}");
            assert!(end.owner.as_ref().unwrap().starts_with(names[won]), "{context}");
            assert_eq!(begun_by(directory.path(), name), Vec::<String>::new(), "{context}");
        }
        unbroken.check(directory.path(), &context).await;
        check_only_the_last_writes(&stored(directory.path()).await, &context);
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
            let order = Order { durability, ..Order::new(Path::new(""), "frozen", script.clone()) };
            let (directory, order, frozen) = frozen(&order, line).await;
            let (_, end) = Order { patience: LONG, ..successor(order) }.start().end();
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
            let order = Order { durability, ..Order::new(Path::new(""), "frozen", script.clone()) };
            let (directory, order, frozen) = frozen(&order, line).await;
            lease_expired(directory.path()).await;
            let before = stored(directory.path()).await;
            wakes_up_fenced(frozen, &context);
            assert_eq!(stored(directory.path()).await, before, "{context}");
            // It is nobody's now, and anybody can go on at once.
            let (_, end) = successor(order).start().end();
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
            let mut new = Order { take_over: true, gated: true, ..order("new") }.start();
            new.wait_for("ready");
            let mut old = Order { hold: Some(line.into()), ..order("old") }.start();
            old.wait_for(line);
            new.tell("go");
            new.wait_for("running");
            old.go_on();
            let (_, fenced) = old.end();
            assert_eq!(fenced.code.as_deref(), Some(LOST), "{context}: {fenced:?}");
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
        let hold = Some("begin slow z".into());
        let mut old = Order { gated: false, take_over: false, hold, ..order("old") }.start();
        old.wait_for("begin slow z");
        let mut heirs = ["anna", "bert"].map(|name| order(name).start());
        heirs.iter_mut().for_each(|heir| drop(heir.wait_for("ready")));
        heirs.iter_mut().for_each(|heir| heir.tell("go"));
        let [anna, bert] = heirs.map(|heir| heir.end().1);
        old.go_on();
        let ends = [old.end().1, anna, bert];
        let done = ends.iter().filter(|end| end.outcome == Some(RunOutcome::Succeeded)).count();
        let context = format!("round {round}: {ends:?}");
        assert_eq!(done, 1, "{context}");
        assert_eq!(ends[0].code.as_deref(), Some(LOST), "the old owner is fenced out: {context}");
        // The other heir was fenced out by the one that runs, or found it running or done.
        let refused = ends.iter().filter_map(|end| end.code.as_deref());
        assert!(refused.clone().all(|code| [LOST, "RK0007", "RK0010"].contains(&code)), "{context}");
        assert_eq!(refused.count(), 2, "{context}");
        check_only_the_last_writes(&stored(directory.path()).await, &context);
        let engine = engine(directory.path());
        assert_eq!(messages(&engine, &engine.key(SESSION).unwrap()).await, unbroken.messages, "{context}");
    }
}

#[tokio::test]
async fn the_events_of_a_run_that_lost_its_session_end() {
    let directory = TempDir::new().unwrap();
    // Its lease is short, so that it soon finds out; it is held, so that it is not done before.
    let (lease, hold) = (Duration::from_millis(200), Some("begin slow z".into()));
    let order = Order { lease, hold, ..Order::new(directory.path(), "old", script()) };
    let engine = order.engine();
    let session = engine.create(SESSION).await.unwrap();
    let mut old = agent(&order).run("go", &session).await.unwrap();
    assert!(old.next_event().await.unwrap().is_some());
    let heir = Order { name: "new".into(), lease: LONG, hold: None, ..order.clone() };
    let session = heir.engine().open_session(SESSION).await.unwrap();
    let new = agent(&heir).resume_with(&session, ResumeOptions::new("new").take_over()).await.unwrap();
    let read = async { while old.next_event().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(120), read).await.expect("nothing more will come, and it says so");
    assert_eq!(old.report().await.unwrap_err().code(), LOST);
    assert_eq!(new.report().await.unwrap().outcome, RunOutcome::Succeeded);
}
