//! Looking at sessions: show, checkpoints, inspect, rm.

use rekindle::SessionHeader;
use serde_json::json;

use crate::scenes;
use crate::support::{Place, Said};

/// What a command says to a person, standard output first.
fn told(said: &Said) -> String {
    format!("{}---\n{}", said.out, said.err)
}

#[test]
fn a_session_is_shown_on_one_page() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    let said = place.run(&["sessions", "show", "sums-1"]);
    assert_eq!(said.code, 0);
    assert!(!said.out.contains('\u{1b}'), "{:?}", said.out);
    place.snapshot("show", &told(&said));
    let shown = place.json(&["sessions", "show", "@"]);
    assert_eq!((shown["status"].as_str(), shown["logs"]["messages"].as_u64()), (Some("succeeded"), Some(6)));
    assert_eq!(shown["spent"]["session"]["cost_micros"], 8_400);
    assert_eq!(shown["resumable"]["resumable"], false);
}

#[test]
fn a_session_that_waits_shows_how_to_answer() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    place.snapshot("show_waiting", &told(&place.run(&["sessions", "show", "pay-1"])));
    // The lines are exact: where it was told to look is part of them.
    let url = format!("sqlite:{}", place.path("rekindle.db").display());
    let said = place.run(&["--store", &url, "sessions", "show", "pay-1"]);
    assert!(said.out.contains(&format!("rekindle --store {url} answer pay-1 wait_")), "{}", said.out);
    assert!(place.run(&["sessions", "show", "pay-1", "--quiet"]).err.is_empty());
}

#[test]
fn a_session_whose_process_died_shows_what_is_in_doubt() {
    let place = Place::new();
    scenes::dead(&place, "dead-1");
    place.with_engine(async |engine| {
        let parent = engine.key("dead-1").unwrap();
        for (id, parent) in [("child", parent), ("grandchild", engine.key("child").unwrap())] {
            let header = SessionHeader { parent: Some(parent), ..SessionHeader::new(engine.key(id).unwrap()) };
            engine.create_with(header).await.unwrap();
        }
    });
    place.snapshot("show_in_doubt", &told(&place.run(&["sessions", "show", "dead-1"])));
    assert_eq!(place.json(&["sessions", "show", "dead-1"])["effects"][0]["effect"], "t1.0.c1");
}

#[test]
fn sessions_are_named_by_beginnings() {
    let place = Place::new();
    place.talk("trip-42", "hi", "hello");
    place.talk("trip-43", "hi", "hello");
    let said = place.run(&["sessions", "show", "trip"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("trip-42, trip-43") || said.err.contains("trip-43, trip-42"), "{}", said.err);
    let said = place.run(&["sessions", "show", "nothing"]);
    assert_eq!(said.code, 3);
    place.snapshot("show_unknown", &said.err);
    assert_eq!(place.json(&["sessions", "show", "@-1"])["header"]["key"]["id"], "trip-42");
}

#[test]
fn checkpoints_are_listed_newest_first() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    place.ok(&["checkpoint", "sums-1", "by hand"]);
    place.snapshot("checkpoints", &scenes::level(&place.ok(&["sessions", "checkpoints", "sums-1"])));
    let page = place.json(&["sessions", "checkpoints", "sums-1", "--limit", "1"]);
    assert_eq!(page["checkpoints"][0]["description"], "by hand");
    let next = page["next"].as_str().unwrap();
    let older = place.json(&["sessions", "checkpoints", "sums-1", "--before", next]);
    assert_ne!(older["checkpoints"][0]["id"], page["checkpoints"][0]["id"]);
    let said = place.run(&["sessions", "checkpoints", "sums-1", "-n", "1"]);
    assert!(said.err.contains(&format!("more: rekindle sessions checkpoints sums-1 --before {next}")), "{}", said.err);
    assert_eq!(place.run(&["sessions", "checkpoints", "sums-1", "--branch", "none"]).code, 3);
    assert_eq!(place.run(&["sessions", "checkpoints", "sums-1", "--before", "none"]).code, 3);
}

#[test]
fn the_state_at_a_moment_can_be_looked_into() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    place.snapshot("inspect", &scenes::level(&place.ok(&["sessions", "inspect", "sums-1"])));
    place.snapshot("inspect_messages", &place.ok(&["sessions", "inspect", "sums-1", "--messages"]));
    assert_eq!(place.ok(&["sessions", "inspect", "@", "memory/sum"]), "42\n");
    assert_eq!(place.json(&["sessions", "inspect", "@", "memory"]), json!({"sum": 42}));
    assert_eq!(place.json(&["sessions", "inspect", "@", "messages/0/parts/0/text"]), "What is 19 + 23?");
    assert_eq!(place.json(&["sessions", "inspect", "@", "--messages"]).as_array().unwrap().len(), 6);
    let early = place.json(&["sessions", "inspect", "sums-1@main:2"]);
    assert_eq!((early["position"]["seq"].as_u64(), early["is_head"].as_bool()), (Some(2), Some(false)));
    let said = place.run(&["sessions", "inspect", "sums-1", "memory/none"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("rekindle sessions inspect sums-1"), "{}", said.err);
    assert_eq!(place.run(&["sessions", "inspect", "sums-1@nowhere"]).code, 3);
}

#[test]
fn long_values_are_cut_unless_asked_for() {
    let place = Place::new();
    place.talk("long", "hi", &"a long answer\n".repeat(200));
    let said = place.run(&["sessions", "inspect", "long", "--messages"]);
    assert!(said.out.lines().count() < 60 && said.err.contains("--full"), "{}", said.err);
    assert!(place.ok(&["sessions", "inspect", "long", "--messages", "--full"]).lines().count() > 200);
}

#[test]
fn sessions_are_removed_only_with_a_yes() {
    let place = Place::new();
    for id in ["a-1", "a-2", "b-1"] {
        place.talk(id, "hi", "hello");
    }
    let said = place.run(&["sessions", "rm", "a-1", "a-2"]);
    assert_eq!(said.code, 2);
    place.snapshot("rm_without_yes", &told(&said));
    let said = place.run(&["sessions", "rm", "a-1", "--dry-run"]);
    assert_eq!((said.code, place.json(&["sessions"])["sessions"].as_array().unwrap().len()), (0, 3));
    assert!(said.out.contains("a-1") && said.err.contains("nothing was removed"));
    let plan = place.json(&["sessions", "rm", "a-1", "--dry-run"]);
    assert_eq!((plan[0]["dry_run"].as_bool(), plan[0]["session"]["id"].as_str()), (Some(true), Some("a-1")));
    // One that does not exist keeps all the others.
    assert_eq!(place.run(&["sessions", "rm", "a-1", "none", "--yes"]).code, 3);
    assert!(place.ok(&["sessions", "rm", "a-1", "a-1", "--yes"]).starts_with("removed a-1, "));
    let removed = place.json(&["sessions", "rm", "a-2", "--yes"]);
    assert!(removed[0]["freed"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(place.run(&["sessions", "show", "a-1"]).code, 3);
}

#[test]
fn a_damaged_session_is_shown_as_far_as_it_can_be_read() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    let database = rusqlite::Connection::open(place.path("rekindle.db")).unwrap();
    // The last byte of the frame that holds record 24, behind which the second turn stands.
    let harm = "UPDATE frames SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB) WHERE last = 24";
    assert_eq!(database.execute(harm, []).unwrap(), 1);
    drop(database);
    let said = place.run(&["sessions", "show", "sums-1"]);
    assert_eq!(said.code, 0, "{}", told(&said));
    assert!(said.out.contains("unreadable") && said.out.contains("main:2"), "{}", told(&said));
    assert!(said.err.contains("[tip] rekindle verify sums-1"), "{}", said.err);
    let said = place.run(&["log", "sums-1", "-p"]);
    assert_eq!(said.code, 0, "{}", told(&said));
    assert!(said.out.contains("cannot be read") && said.err.contains("damaged:"), "{}", told(&said));
    let said = place.run(&["log", "sums-1", "--records", "-n", "100"]);
    assert!(said.out.contains("checksum") || said.out.contains("format"), "{}", told(&said));
    assert_eq!(place.run(&["sessions", "inspect", "sums-1"]).code, 7);
    assert_eq!(place.run(&["diff", "sums-1"]).code, 7);
    assert_eq!(place.run(&["replay", "sums-1"]).code, 7);
}
