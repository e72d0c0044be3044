//! Stores that were set back to an older state: `verify` says so, `resume` repeats nothing, `export` and
//! others say what they show, and a person can accept it. A ledger says what really happened.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::cashier::{cashier, ledger};
use crate::processes::until;
use crate::support::{Place, Said};

/// Charges between two questions, and again after the second.
const CALLS: [&str; 4] = ["ask", "charge", "ask", "charge"];

const STORES: [&str; 2] = ["sqlite:./data", "file:./data"];

/// A session that was charged for once after `older` was copied.
fn charged(store: &str) -> Place {
    let place = Place::new();
    place.write("cashier.yaml", &cashier(&CALLS));
    place.write("rekindle.toml", &format!("store = \"{store}\"\n"));
    assert_eq!(place.run(&["run", "cashier.yaml", "go", "--session", "s"]).code, 4);
    copy(&place.path("data"), &place.path("older"));
    answered(&place);
    assert_eq!(ledger(&place), 1);
    place
}

/// Answers the question, and goes on until the next.
fn answered(place: &Place) {
    place.ok(&["answer", "s", "true"]);
    let said = place.run(&["resume", "s"]);
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn set_back(place: &Place) {
    let data = place.path("data");
    match data.is_dir() {
        true => std::fs::remove_dir_all(&data).unwrap(),
        false => std::fs::remove_file(&data).unwrap(),
    }
    copy(&place.path("older"), &data);
}

fn refused(said: &Said, what: &str) {
    assert_eq!(said.code, 7, "{what}: {}{}", said.out, said.err);
    assert!(said.err.contains("was set back to an older state"), "{what}: {}", said.err);
    assert!(said.err.contains("rekindle verify s --accept --reason"), "{what}: {}", said.err);
}

#[test]
fn an_older_store_is_noticed_and_no_call_is_repeated() {
    for store in STORES {
        let place = charged(store);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "{store}");
        set_back(&place);
        for verify in [&["verify", "s"][..], &["verify", "--all"]] {
            let said = place.run(verify);
            assert_eq!(said.code, 7, "{store}: {}{}", said.out, said.err);
            assert!(said.out.contains("rolled_back"), "{store}: {}", said.out);
        }
        // None of these may go on.
        refused(&place.run(&["answer", "s", "true"]), "answer");
        refused(&place.run(&["resume", "s"]), "resume");
        refused(&place.run(&["run", "cashier.yaml", "again", "--continue", "s"]), "run");
        refused(&place.run(&["send", "s", "hello"]), "send");
        refused(&place.run(&["fork", "s"]), "fork");
        // These show what is there, and say that it is not all.
        let exported = place.run(&["export", "s", "-o", "s.jsonl"]);
        assert_eq!(exported.code, 7, "{store}: {}", exported.err);
        assert!(place.path("s.jsonl").exists() && exported.err.contains("older state"), "{}", exported.err);
        let shown = place.run(&["sessions", "show", "s"]);
        assert!(shown.out.contains("rolled_back"), "{store}: {}", shown.out);
        assert_eq!(ledger(&place), 1, "{store}");

        let reasonless = place.run(&["verify", "s", "--accept"]);
        assert_eq!(reasonless.code, 2, "{}", reasonless.err);
        let accepted = place.ok(&["verify", "s", "--accept", "--reason", "restored on purpose"]);
        assert!(accepted.contains("goes on from its older state"), "{accepted}");
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "{store}");
        let record = place.json(&["log", "s", "--records", "--branch", "inbox"]).to_string();
        for part in ["accepted", "rolled_back", "maria", "restored on purpose", "heads_before"] {
            assert!(record.contains(part), "{part}: {record}");
        }
        let again = place.ok(&["verify", "s", "--accept", "--reason", "again"]);
        assert!(again.contains("nothing to accept"), "{again}");
        // On purpose, and on record: what was lost is done again.
        answered(&place);
        assert_eq!(ledger(&place), 2, "{store}");
    }
}

#[test]
fn a_session_that_is_gone_is_missed() {
    for (store, how) in [(STORES[0], "truncate"), (STORES[0], "delete"), (STORES[1], "delete")] {
        let place = charged(store);
        match (store, how) {
            (_, "truncate") => std::fs::write(place.path("data"), "").unwrap(),
            ("sqlite:./data", _) => {
                let sql = "DELETE FROM sessions; DELETE FROM branches; DELETE FROM frames; DELETE FROM frame_index";
                rusqlite::Connection::open(place.path("data")).unwrap().execute_batch(sql).unwrap();
            }
            _ => std::fs::remove_dir_all(place.path("data/sessions/default/s")).unwrap(),
        }
        let said = place.run(&["verify", "--all"]);
        assert_eq!(said.code, 7, "{how} {store}: {}{}", said.out, said.err);
        assert!(said.out.contains("session `s` was there"), "{how} {store}: {}", said.out);
        for command in [&["resume", "s"][..], &["export", "s"], &["verify", "s"], &["sessions", "show", "s"]] {
            let said = place.run(command);
            assert_eq!(said.code, 3, "{command:?}: {}{}", said.out, said.err);
            assert!(said.err.contains("was there") && said.err.contains("--accept"), "{command:?}: {}", said.err);
        }
        // A new session just works, and so does the old name once it was accepted.
        assert_eq!(place.run(&["run", "cashier.yaml", "go", "--session", "t"]).code, 4);
        let accepted = place.ok(&["verify", "--all", "--accept", "--reason", "deleted"]);
        assert!(accepted.contains("s may be gone"), "{accepted}");
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "{how} {store}");
        assert_eq!(place.run(&["verify", "s"]).code, 3, "{how} {store}");
        assert_eq!(ledger(&place), 1, "{how} {store}");
    }
}

#[test]
fn what_an_earlier_verification_saw_must_be_there() {
    let place = charged(STORES[0]);
    place.write("heads.json", &place.ok(&["verify", "--all", "--json"]));
    assert_eq!(place.run(&["verify", "--all", "--seen", "heads.json"]).code, 0);
    place.ok(&["sessions", "rm", "s", "--yes"]);
    assert_eq!(place.run(&["verify", "--all"]).code, 0);
    let said = place.run(&["verify", "--all", "--seen", "heads.json"]);
    assert_eq!(said.code, 7, "{}", said.out);
    assert!(said.out.contains("session `s` was there"), "{}", said.out);
}

#[test]
fn what_is_lost_on_purpose_is_not_missed() {
    for store in STORES {
        let place = charged(store);
        place.ok(&["export", "s", "-o", "s.jsonl"]);
        place.ok(&["copy", "s", "--to", "sqlite:./copy.db"]);
        place.ok(&["cancel", "s"]);
        place.ok(&["prune", "--all", "--keep-last", "1", "--apply"]);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "pruned, {store}");
        place.ok(&["archive", "s", "--to", "objects:./archive"]);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "archived, {store}");
        place.ok(&["archive", "restore", "s", "--from", "objects:./archive"]);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "restored, {store}");
        place.ok(&["sessions", "rm", "s", "--yes"]);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "removed, {store}");
        // An older state of the same session, brought back on purpose.
        place.ok(&["import", "s.jsonl"]);
        assert_eq!(place.run(&["verify", "--all"]).code, 0, "imported, {store}");
        assert_eq!(place.run(&["--store", "sqlite:./copy.db", "verify", "--all"]).code, 0, "copied, {store}");
    }
}

#[test]
fn without_marks_nothing_is_compared() {
    let place = charged(STORES[0]);
    set_back(&place);
    assert_eq!(place.run(&["-c", "marks=false", "verify", "--all"]).code, 0);
    let told = place.run(&["-c", "marks=false", "verify", "s", "--accept", "--reason", "x"]);
    assert!(told.err.contains("no marks are kept"), "{}", told.err);
}

#[test]
fn a_run_that_is_killed_leaves_no_false_alarm() {
    let slow = cashier(&["charge"; 40])
        .replace("name: cashier", "name: cashier\nsame_call_limit: 1000")
        .replace("echo charged >> ledger.txt", "echo charged >> ledger.txt; sleep 0.05")
        .replace("in_doubt: never", "in_doubt: replay_safe");
    for store in STORES {
        let place = Place::new();
        place.write("cashier.yaml", &slow);
        place.write("rekindle.toml", &format!("store = \"{store}\"\nlease = \"1s\"\n"));
        for kill in 0..6 {
            let wanted = ledger(&place) + 2 + kill;
            let first = ["run", "cashier.yaml", "go", "--session", "s"];
            let arguments: &[&str] = if kill == 0 { &first } else { &["resume", "s"] };
            let mut child = place.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until("calls", || ledger(&place) >= wanted || child.try_wait().unwrap().is_some());
            child.kill().unwrap();
            child.wait().unwrap();
            let said = place.run(&["verify", "--all"]);
            assert_eq!(said.code, 0, "{store}, kill {kill}: {}{}", said.out, said.err);
        }
        let said = place.run(&["resume", "s"]);
        assert!(matches!(said.code, 0 | 6), "{store}: {}{}", said.out, said.err);
    }
}
