//! Looking back: log, diff, replay.

use rekindle::core::retention::{Policy, Rule};
use rekindle::operations::{self, At, Change};
use rekindle::{Json, Message};

use crate::scenes;
use crate::support::Place;

#[test]
fn the_log_draws_branches_side_by_side() {
    let place = Place::new();
    scenes::forks(&place, "trip-42");
    let said = place.run(&["log", "trip-42"]);
    place.snapshot("log", &scenes::level(&format!("{}---\n{}", said.out, said.err)));
    place.snapshot("log_patch", &scenes::level(&place.ok(&["log", "trip-42", "-p"])));
    let cut = place.ok(&["log", "trip-42", "-n", "2"]);
    assert_eq!(cut.lines().filter(|line| line.contains('~')).count(), 1, "{cut}");
    let log = place.json(&["log", "trip-42"]);
    let names: Vec<_> =
        log["branches"].as_array().unwrap().iter().map(|branch| branch["branch"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "warm", "hot", "idea"]);
    assert_eq!(
        (log["current"].as_str(), log["branches"][1]["parent"]["branch"].as_str()),
        (Some("main"), Some("main"))
    );
    assert!(
        log["branches"][0]["milestones"]
            .as_array()
            .unwrap()
            .iter()
            .any(|found| found["record"]["run_started"].is_object())
    );
}

#[test]
fn the_short_ids_of_a_log_mean_their_checkpoints() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    let log = place.ok(&["log", "sums-1"]);
    let short = log.lines().find_map(|line| line.strip_prefix("○ ")).unwrap().split(' ').next().unwrap();
    let seen = place.json(&["sessions", "inspect", &format!("sums-1@{short}")]);
    assert!(seen["checkpoint"]["id"].as_str().unwrap().contains(short));
}

#[test]
fn what_a_session_waited_for_is_in_its_log() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    place.snapshot("log_waiting", &scenes::level(&place.ok(&["log", "pay-1"])));
}

#[test]
fn raw_records_are_listed_in_pages() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    let all = place.ok(&["log", "sums-1", "--records", "-n", "100"]);
    place.snapshot("log_records", &scenes::level(&all));
    let said = place.run(&["log", "sums-1", "--records", "--from", "1", "-n", "3"]);
    assert_eq!(said.out.lines().count(), 3);
    assert!(said.err.contains("more: rekindle log sums-1 --records --branch main --from 4"), "{}", said.err);
    let last = place.ok(&["log", "sums-1", "--records", "-n", "1"]);
    assert_eq!(scenes::level(all.lines().last().unwrap()), scenes::level(last.trim_end()));
    let page = place.json(&["log", "sums-1", "--records", "--from", "2", "-n", "2"]);
    assert_eq!((page["records"][0]["position"]["seq"].as_u64(), page["next"].as_u64()), (Some(2), Some(4)));
    place.ok(&["send", "sums-1", "one more"]);
    assert!(place.ok(&["log", "sums-1", "--records", "--branch", "inbox"]).contains("inbox_message"));
    assert_eq!(place.run(&["log", "sums-1", "--records", "-p"]).code, 2);
    assert_eq!(place.run(&["log", "sums-1", "--records", "--branch", "none"]).code, 3);
}

#[test]
fn two_moments_are_compared() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    place.snapshot("diff", &scenes::level(&place.ok(&["diff", "sums-1@main:1", "sums-1@~1"])));
    place.snapshot("diff_one", &scenes::level(&place.ok(&["diff", "sums-1"])));
    place.snapshot("diff_stat", &scenes::level(&place.ok(&["diff", "sums-1@main:1", "sums-1@~1", "--stat"])));
    let conversation = place.ok(&["diff", "sums-1@main:1", "@~1", "--messages"]);
    assert!(
        conversation.contains("+ 0 user: What is 19 + 23?") && !conversation.contains("memory/sum"),
        "{conversation}"
    );
    let patch: serde_json::Value =
        serde_json::from_str(&place.ok(&["diff", "sums-1@main:1", "@", "--json-patch"])).unwrap();
    assert!(patch.as_array().unwrap().iter().any(|step| step["path"] == "/registers/memory~1sum"), "{patch}");
    let diff = place.json(&["diff", "sums-1", "sums-1"]);
    assert_eq!((diff["same"].as_bool(), diff["a"]["session"]["id"].as_str()), (Some(true), Some("sums-1")));
    assert!(place.run(&["diff", "sums-1", "sums-1"]).err.contains("no difference"));
    assert_eq!(place.run(&["diff", "sums-1", "sums-1@none"]).code, 3);
    assert_eq!(place.run(&["diff", "sums-1", "--json-patch", "--stat"]).code, 2);
}

#[test]
fn changed_texts_are_shown_by_what_changed_in_them() {
    let place = Place::new();
    place.talk("letter", "Write it.", "Dear Ada,\nthe train leaves at nine.\nYours, Bob");
    place.with_engine(async |engine| {
        let key = engine.key("letter").unwrap();
        let text = "Dear Ada,\nthe train leaves at ten.\nYours, Bob";
        let changes = [
            Change::ReplaceMessage { index: 1, message: Message::assistant(text) },
            Change::SetMemory { key: "score".into(), value: Json::parse(r#"{"a":3,"b":[1]}"#).unwrap() },
        ];
        operations::edit(&engine, &key, &At::Latest, &changes, "maria", "another train").await.unwrap();
        let set = Change::SetMemory { key: "score".into(), value: Json::parse(r#"{"a":5,"b":[1,2]}"#).unwrap() };
        operations::edit(&engine, &key, &At::Latest, &[set], "maria", "").await.unwrap();
    });
    place.snapshot("diff_text", &place.ok(&["diff", "letter@~2", "letter@~1"]));
    place.snapshot("diff_words", &place.ok(&["diff", "letter@~2", "letter@~1", "--words", "--messages"]));
    let nested = place.ok(&["diff", "letter"]);
    assert!(nested.contains("~ memory/score/a: 3 → 5\n+ memory/score/b/1: 2\n"), "{nested}");
    let coloured = place.ok(&["--color", "always", "diff", "letter"]);
    assert!(coloured.contains("\u{1b}[33m~ memory/score/a"), "{coloured:?}");
}

#[test]
fn branches_of_a_session_are_compared() {
    let place = Place::new();
    scenes::forks(&place, "trip-42");
    place.snapshot("diff_branches", &place.ok(&["diff", "trip-42@main", "@hot"]));
}

#[test]
fn a_session_is_walked_through_again() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    place.snapshot("replay", &scenes::level(&place.ok(&["replay", "sums-1"])));
    let one = place.ok(&["replay", "sums-1", "--by", "record", "--from", "2", "--limit", "1"]);
    assert_eq!(one.lines().count(), 1);
    assert!(one.contains("main:2"), "{one}");
    let said = place.run(&["replay", "sums-1", "--limit", "1"]);
    assert!(said.err.contains("more: rekindle replay sums-1 --from 2"), "{}", said.err);
    let walked = place.json(&["replay", "sums-1@main:3", "--by", "record"]);
    assert_eq!(walked["steps"].as_array().unwrap().len(), 3);
    assert_eq!((walked["steps"][0]["number"].as_u64(), walked["next"].as_u64()), (Some(1), None));
    assert_eq!(place.run(&["replay", "sums-1", "--by", "year"]).code, 2);
}

#[test]
fn two_runs_are_compared_by_what_they_did() {
    let place = Place::new();
    place.talk("one", "hi", "hello");
    place.talk("two", "hi", "hello");
    place.talk("three", "hi", "good day");
    let said = place.run(&["replay", "one", "--against", "two"]);
    assert_eq!((said.code, said.out.as_str()), (0, "the same: 3 deeds, in the same order\n"));
    let said = place.run(&["replay", "one", "--against", "three"]);
    assert_eq!(said.code, 1);
    place.snapshot("replay_against", &said.out);
    let said = place.run(&["replay", "one", "--against", "three", "--json"]);
    let compared: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, compared["same"].as_bool()), (1, Some(false)));
    assert_eq!(place.run(&["replay", "one", "--against", "three", "--from", "2"]).code, 2);
}

#[test]
fn compacted_history_is_said_to_be() {
    let place = Place::new();
    scenes::add(&place, "sums-1");
    place.with_engine(async |engine| {
        let key = engine.key("sums-1").unwrap();
        operations::prune(&engine, &key, &Policy::new([Rule::LastN(1)]), false).await.unwrap();
    });
    let log = place.ok(&["log", "sums-1", "-p"]);
    assert!(log.contains("was compacted"), "{log}");
    let walked = place.ok(&["replay", "sums-1"]);
    assert!(walked.contains("what was before is compacted"), "{walked}");
    place.ok(&["diff", "sums-1"]);
    let said = place.run(&["sessions", "inspect", "sums-1@main:2"]);
    assert_eq!(said.code, 3, "{}", said.err);
}
