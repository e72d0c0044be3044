//! A stop in good order: the run pauses, everything is on disk, and the session is free at once.

use std::sync::mpsc;
use std::time::Duration;

use rekindle::Durability;
use rekindle::Status;
use rekindle::core::record::{EffectKind, RunOutcome};
use rekindle_models::{Call, Script, Turn};
use serde_json::json;
use tempfile::TempDir;

use crate::child::{Order, Process, SESSION, engine, ledger};
use crate::killed::{Unbroken, script};
use crate::support::state;

/// A process that was told to stop while it was held at `line`, and then went on.
fn stopped_at(order: Order, line: &str) -> Process {
    let mut process = Order { hold: Some(line.into()), ..order }.start();
    process.wait_for(line);
    process.tell("stop");
    process.wait_for("stopping");
    process.go_on();
    process
}

#[tokio::test]
async fn a_stopped_run_is_paused_and_free_at_once() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let unbroken = Unbroken::new(durability).await;
        for line in ["asked", "answered", "begin slow z", "begin email carol", "begin append 1", "begin charge ten"] {
            let context = format!("{durability:?}, stopped after `{line}`");
            let directory = TempDir::new().unwrap();
            let order = |name: &str| Order { durability, ..Order::new(directory.path(), name, script()) };
            let (said, end) = stopped_at(order("first"), line).end();
            assert_eq!(end.outcome, Some(RunOutcome::Paused), "{context}: {end:?}");
            let engine = engine(directory.path());
            let session = engine.open_session(SESSION).await.unwrap();
            let info = session.info().await.unwrap();
            assert_eq!(info.status(), Status::Paused, "{context}");
            assert_eq!(info.live_lease(), None, "{context}: the lease was given back");
            // Calls that were under way ended; of those that never began it is known.
            let state = state(&engine, session.key()).await;
            let in_doubt: Vec<_> = state.open_effects().filter(|effect| effect.outcome.is_none()).collect();
            let in_doubt: Vec<_> = in_doubt.iter().filter(|effect| effect.intent.kind == EffectKind::Tool).collect();
            assert!(in_doubt.is_empty(), "{context}: {in_doubt:?} after {said:?}");
            let (_, end) = order("second").start().end();
            assert_eq!(end.outcome, Some(RunOutcome::Succeeded), "{context}: {end:?}");
            unbroken.check(directory.path(), &context).await;
            let lines = ledger(directory.path()).lines();
            let begun = |line: &&String| line.starts_with("begin ");
            let calls: std::collections::BTreeSet<_> =
                lines.iter().filter(begun).map(|line| line.splitn(3, ' ').nth(2)).collect();
            assert_eq!(lines.iter().filter(begun).count(), calls.len(), "{context}: no call twice: {lines:#?}");
        }
    }
}

#[tokio::test]
async fn a_second_stop_does_not_wait_for_calls_under_way() {
    let of = |what: &str| json!({ "what": what });
    let directory = TempDir::new().unwrap();
    let stuck = Script::new("m").calls([Call::new("endless", of("a")), Call::new("charge", of("five"))]).text("done");
    let order = |name: &str| Order::new(directory.path(), name, stuck.clone());
    let mut process = order("first").start();
    process.wait_for("charge five");
    process.tell("stop");
    process.wait_for("stopping");
    process.tell("stop");
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(process.end().1));
    let end = end.recv_timeout(Duration::from_secs(120)).expect("it does not wait for the grace period, an hour");
    assert_eq!(end.outcome, Some(RunOutcome::Paused), "{end:?}");
    let session = engine(directory.path()).open_session(SESSION).await.unwrap();
    assert_eq!(session.info().await.unwrap().live_lease(), None);
    // What had ended is not made again; what had not is.
    let mut process = order("second").start();
    process.wait_for("begin endless a");
    assert!(process.kill().is_none());
    let lines = ledger(directory.path()).lines();
    assert_eq!(lines.iter().filter(|line| line.ends_with("charge five")).count(), 1, "{lines:#?}");
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_ends_or_does_not_begin() {
    let slow = Turn::call("transfer", json!({ "what": "all" })).delayed(Duration::from_millis(100));
    let script = Script::new("m").turn(slow).text("done");
    // While it is under way, and while the model is still about to ask for it.
    for line in ["begin transfer", "asked"] {
        let directory = TempDir::new().unwrap();
        let order = |name: &str| Order::new(directory.path(), name, script.clone());
        assert_eq!(stopped_at(order("first"), line).end().1.outcome, Some(RunOutcome::Paused));
        let (_, end) = order("second").start().end();
        let expected = (Some(RunOutcome::Succeeded), "done");
        assert_eq!((end.outcome, end.text.as_str()), expected, "stopped after `{line}`, and nobody had to be asked");
        let lines = ledger(directory.path()).lines();
        assert_eq!(lines.iter().filter(|line| line.starts_with("transfer all ")).count(), 1, "{lines:#?}");
    }
}

#[tokio::test]
async fn calls_that_wait_for_room_do_not_begin_after_a_stop() {
    let directory = TempDir::new().unwrap();
    let calls = ["a", "b", "c"].map(|what| Call::new("single", json!({ "what": what })));
    let script = Script::new("m").calls(calls).text("done");
    let order = |name: &str| Order::new(directory.path(), name, script.clone());
    let (said, end) = stopped_at(order("first"), "begin single").end();
    assert_eq!(end.outcome, Some(RunOutcome::Paused), "{end:?}");
    let begun: Vec<_> = said.iter().filter(|line| line.starts_with("begin ")).collect();
    assert!(begun.is_empty(), "they began although the run was to stop: {begun:?}");
    let (_, end) = order("second").start().end();
    assert_eq!((end.outcome, end.text.as_str()), (Some(RunOutcome::Succeeded), "done"), "nobody had to be asked");
    let lines = ledger(directory.path()).lines();
    for what in ["a", "b", "c"] {
        let count = lines.iter().filter(|line| line.starts_with(&format!("single {what} "))).count();
        assert_eq!(count, 1, "{what}: {lines:#?}");
    }
}
