//! A journal written by an earlier version is continued by this one: by the binary of the previous
//! commit if `REKINDLE_PREVIOUS` names it (`scripts/mixed-versions` does), and from a store that an
//! earlier version left behind in any case.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::processes::{lines, until};
use crate::support::{Place, said};

/// Books one after the other; the second waits until the file `go` is there, the third for a person.
const CLERK: &str = include_str!("../fixtures/previous/clerk.yaml");

/// The binary of an earlier version, in a place.
fn earlier(binary: &Path, place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).current_dir(place.path("")).env_clear().stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", place.path("")).env("USER", "maria");
    command
}

/// What an earlier version leaves behind: a finished session with a fork, and one whose process was
/// killed in the middle of its second call.
fn leave_behind(binary: &Path, place: &Place) {
    place.write("clerk.yaml", CLERK);
    place.write("go", "");
    let run = said(earlier(binary, place, &["run", "clerk.yaml", "book all", "--session", "finished"]));
    assert!(run.err.contains("rekindle answer"), "{}", run.err);
    for arguments in [
        &["answer", "finished", "--approve"][..],
        &["resume", "finished"],
        &["checkpoint", "finished", "the end"],
        &["fork", "finished", "--name", "again"],
    ] {
        let said = said(earlier(binary, place, arguments));
        assert_eq!(said.code, 0, "{arguments:?}: {}{}", said.out, said.err);
    }
    std::fs::remove_file(place.path("go")).unwrap();
    let before = lines(&place.path("started.txt")).len();
    let mut child = earlier(binary, place, &["run", "clerk.yaml", "book all", "--session", "killed"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the second call", || lines(&place.path("started.txt")).len() == before + 2);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// This version finds everything whole, goes on with what was killed, and books nothing twice.
fn go_on(place: &Place) {
    place.ok(&["verify", "--all"]);
    place.write("go", "");
    let resumed = place.run(&["resume", "killed", "--file", "clerk.yaml"]);
    assert!(resumed.err.contains("rekindle answer"), "{}\n{}", resumed.out, resumed.err);
    place.ok(&["answer", "killed", "--approve"]);
    let done = place.ok(&["resume", "killed", "--file", "clerk.yaml"]);
    assert_eq!(done.trim(), "all three are booked");
    let booked = lines(&place.path("ledger.txt"));
    let mut keys: Vec<&str> = booked.iter().map(|line| line.split_once(' ').unwrap().0).collect();
    keys.sort_unstable();
    keys.dedup();
    // Two sessions with three bookings each; the one that was under way may have been made again
    // under its key.
    assert_eq!(keys.len(), 6, "{booked:?}");
    place.ok(&["verify", "--all"]);
}

#[test]
fn what_the_previous_binary_left_is_continued() {
    let Some(binary) = std::env::var_os("REKINDLE_PREVIOUS") else {
        eprintln!("skipped: REKINDLE_PREVIOUS does not name a binary; run scripts/mixed-versions");
        return;
    };
    let key = "ab".repeat(32);
    for (store, keys) in [
        ("sqlite:./rekindle.db", ""),
        ("file:./store", ""),
        ("sqlite:./rekindle.db", "[signing]\nkey = \"@file:key\"\n"),
        ("sqlite:./rekindle.db", "[encryption]\nkey = \"@file:key\"\n"),
    ] {
        let place = Place::new();
        place.write("key", &key);
        place.configure(&format!("store = \"{store}\"\n{keys}"));
        leave_behind(Path::new(&binary), &place);
        go_on(&place);
    }
}

#[test]
fn a_store_of_an_earlier_version_is_continued() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/previous");
    let place = Place::new();
    for name in ["rekindle.db", "ledger.txt", "started.txt", "clerk.yaml"] {
        std::fs::copy(fixture.join(name), place.path(name)).unwrap();
    }
    go_on(&place);
}
