//! Copies from one store to another.

use std::process::{Command, Stdio};

use rekindle::core::record::RegisterSet;
use rekindle::core::{Append, Record, RegisterKey, Target};
use rekindle::{BranchId, Json};

use crate::moving::frames;
use crate::support::{Place, on_narrow_terminal, without_sizes};

#[test]
fn sessions_are_copied_once() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 2);
    place.ok(&["fork", "two", "--name", "what-if", "--set", "a=1"]);
    let dry = place.json(&["copy", "--to", "file:./backup", "--dry-run"]);
    assert_eq!(
        (dry["dry_run"].as_bool(), dry["copied"].as_u64(), dry["bytes"].as_u64()),
        (Some(true), Some(2), Some(0))
    );
    assert!(!place.path("backup").exists());
    place.snapshot("copy", &without_sizes(&place.ok(&["copy", "--to", "file:./backup"])));
    place.snapshot("copy_again", &without_sizes(&place.ok(&["copy", "--to", "file:./backup"])));
    for session in ["one", "two"] {
        let there = place.ok(&["export", session, "--store", "file:./backup"]);
        assert!(frames(&place.ok(&["export", session])) == frames(&there), "{session}");
    }
    let back = place.json(&["copy", "--from", "file:./backup", "--to", "sqlite:./back/new.db", "two", "--verify"]);
    let first = &back["sessions"][0];
    assert_eq!(
        (&first["outcome"], &first["verified"], back["copied"].as_u64()),
        (&"copied".into(), &true.into(), Some(1))
    );
    assert_eq!(place.json(&["verify", "--all", "--store", "sqlite:./back/new.db"])["verified"], 1);
    let watched = on_narrow_terminal(place.command(&["copy", "--to", "file:./watched"]));
    assert!(watched.err.contains("copied 2 sessions"), "{}", watched.err);
}

#[test]
fn an_older_copy_is_brought_up_to_date_and_another_history_is_left_to_choice() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 1);
    place.ok(&["copy", "--to", "file:./backup"]);
    place.ok(&["edit", "one", "--set", "a=1"]);
    place.snapshot("copy_older", &without_sizes(&place.ok(&["copy", "--to", "file:./backup"])));
    place.ok(&["edit", "one", "--set", "a=2", "--store", "file:./backup"]);
    let refused = place.run(&["copy", "--to", "file:./backup"]);
    assert_eq!(refused.code, 6);
    place.snapshot("copy_differs", &without_sizes(&format!("{}{}", refused.out, refused.err)));
    let refused = place.run(&["copy", "--to", "file:./backup", "--json"]);
    let refused: serde_json::Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((refused["failed"].as_u64(), refused["there"].as_u64()), (Some(1), Some(1)));
    let outcome = |what: &str| {
        let done = place.json(&["copy", "one", "--to", "file:./backup", "--existing", what]);
        let first = &done["sessions"][0];
        (first["outcome"].as_str().unwrap().to_owned(), first["renamed"]["id"].as_str().map(str::to_owned))
    };
    assert_eq!(outcome("skip"), ("skipped".to_owned(), None));
    let (copied, renamed) = outcome("rename");
    assert_eq!((copied.as_str(), renamed.is_some_and(|id| id.starts_with("one-"))), ("copied", true));
    assert_eq!(outcome("replace"), ("replaced".to_owned(), None));
    assert_eq!(place.json(&["verify", "--all", "--store", "file:./backup"])["verified"], 3);
}

#[test]
fn several_namespaces_are_copied() {
    let place = Place::new();
    place.turns("one", 1);
    place.ok(&["export", "one", "-o", "one.jsonl"]);
    place.ok(&["import", "one.jsonl", "--namespace", "team"]);
    let copied = place.json(&["copy", "--to", "sqlite:./all.db", "--namespaces", "default,team"]);
    assert_eq!(copied["copied"], 2);
    let there = place.json(&["sessions", "--namespace", "team", "--store", "sqlite:./all.db"]);
    assert_eq!(there["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_copy_that_was_stopped_is_completed() {
    let place = Place::new();
    place.turns("trip", 2);
    let exported = place.ok(&["export", "trip"]);
    place.write("half", &exported[..exported.len() / 2]);
    assert_eq!(place.run(&["import", "half", "--store", "file:./backup"]).code, 7);
    let completed = place.json(&["copy", "--to", "file:./backup"]);
    assert_eq!(completed["sessions"][0]["outcome"], "updated");
    assert!(frames(&place.ok(&["export", "trip", "--store", "file:./backup"])) == frames(&exported));
}

#[test]
fn damaged_sessions_are_left_out_of_a_copy() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 1);
    place.spoil(3);
    let said = place.run(&["copy", "--to", "file:./backup"]);
    assert_eq!(said.code, 7, "{}", said.err);
    place.snapshot("copy_damaged", &without_sizes(&format!("{}{}", said.out, said.err)));
    let there = place.json(&["sessions", "--store", "file:./backup"]);
    assert_eq!(there["sessions"].as_array().unwrap().len(), 1);
    let exported = place.run(&["export", "--all", "-o", "out"]);
    assert_eq!(exported.code, 7);
    assert_eq!(std::fs::read_dir(place.path("out")).unwrap().count(), 1);
    assert_eq!(place.fails(&["copy", "--to", "sqlite:./rekindle.db"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["copy", "--from", "sqlite:./none.db", "--to", "file:./x"], 3)["error"]["code"], "RK0003");
    assert!(!place.path("x").exists());
    assert_eq!(place.run(&["copy"]).code, 2);
    assert_eq!(place.run(&["copy", "--to", "file:./x", "--jobs", "0"]).code, 2);
}

#[test]
fn an_encrypted_store_is_copied_without_its_key() {
    let place = Place::new();
    place.write("store.key", &"ab".repeat(32));
    place.write("keyed.toml", "[encryption]\nkey = \"@file:store.key\"\n");
    place.write(
        "agent.yaml",
        "name: guide\nmodel: {provider: scripted, name: s, script: {turns: [{text: Secret answer.}]}}\n",
    );
    let keyed = |words: &[&str]| place.run(&[&["--config", "keyed.toml"], words].concat());
    let ran = keyed(&["run", "agent.yaml", "Hello", "--session", "trip"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let copied = place.run(&["copy", "--to", "file:./backup", "--verify"]);
    assert_eq!(copied.code, 0, "{}", copied.err);
    assert!(!copied.err.contains("not set here"), "its hashes cover the ciphertext: {}", copied.err);
    let verified = keyed(&["verify", "--all", "--store", "file:./backup", "--json"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    assert!(keyed(&["export", "trip", "--store", "file:./backup"]).out.contains("Secret answer."));
}

/// Sessions with thousands of frames each.
fn long_sessions(place: &Place, sessions: usize, frames: u64) {
    place.with_engine(async |engine| {
        for number in 0..sessions {
            let session = engine.create(&format!("s{number}")).await.unwrap();
            let journal = engine.journal();
            let head = session.info().await.unwrap().branch(&BranchId::main()).unwrap().head;
            let mut target = Target::new(session.key().clone(), BranchId::main(), head);
            let mut all = Vec::new();
            for value in 0..frames {
                let json = Json::parse(format!("\"{value} {}\"", "x".repeat(400))).unwrap();
                let record: Record = RegisterSet::new(RegisterKey::new("n").unwrap(), json).into();
                let append = journal.prepare(&target, &[record]).unwrap();
                target.expected = append.head();
                all.extend(append.frames);
            }
            let append = Append::new(session.key().clone(), BranchId::main(), head, all);
            journal.store().append(&append).await.unwrap();
        }
    });
}

fn stored_frames(place: &Place, name: &str) -> Option<u64> {
    let path = place.path(name);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags).ok()?;
    connection.query_row("SELECT count(*) FROM frames", [], |row| row.get::<_, u32>(0)).ok().map(u64::from)
}

/// Kills a copy as soon as more than `known` frames have arrived; how many there are then.
fn killed(mut copy: Command, place: &Place, known: u64) -> u64 {
    let mut child = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if stored_frames(place, "copy.db").is_some_and(|frames| frames > known) {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    stored_frames(place, "copy.db").unwrap_or(0)
}

#[test]
fn a_copy_killed_again_and_again_is_completed() {
    let place = Place::new();
    long_sessions(&place, 4, 2_000);
    let total = stored_frames(&place, "rekindle.db").unwrap();
    assert!(total >= 8_000, "{total}");
    let copy = ["copy", "--to", "sqlite:./copy.db", "--jobs", "2"];
    let (mut known, mut kills) = (0, 0);
    while kills < 5 && known < total {
        known = killed(place.command(&copy), &place, known);
        kills += u64::from(known < total);
    }
    assert!(kills >= 1, "the copy was never killed in the middle");
    let finished = place.json(&copy);
    assert_eq!(finished["failed"], 0, "{finished}");
    assert_eq!(stored_frames(&place, "copy.db").unwrap(), total);
    for session in ["s0", "s1", "s2", "s3"] {
        let copied = place.ok(&["export", session, "--store", "sqlite:./copy.db"]);
        assert!(frames(&place.ok(&["export", session])) == frames(&copied), "{session}");
    }
    assert_eq!(place.json(&copy)["there"], 4);
    assert_eq!(place.json(&["verify", "--all", "--store", "sqlite:./copy.db"])["verified"], 4);
}
