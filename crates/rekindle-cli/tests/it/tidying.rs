//! Pruning and verifying.

use crate::support::{Place, on_narrow_terminal, without_sizes};

#[test]
fn pruning_is_tried_first() {
    let place = Place::new();
    place.turns("trip", 4);
    let dry = place.run(&["prune", "trip", "--keep-last", "2"]);
    assert_eq!(dry.code, 0, "{}", dry.err);
    place.snapshot("prune_dry", &without_sizes(&format!("{}{}", dry.out, dry.err)));
    let json = place.json(&["prune", "trip", "--keep-last", "2"]);
    assert_eq!((json["dry_run"].as_bool(), json["plan"]["remove"].as_array().unwrap().len()), (Some(true), 2));
    assert!(json["history_bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["session"]["id"], "trip");

    let done = place.run(&["prune", "trip", "--keep-last", "2", "--apply"]);
    place.snapshot("prune_done", &without_sizes(&format!("{}{}", done.out, done.err)));
    assert_eq!(place.json(&["prune", "trip", "--keep-last", "2", "--apply"])["plan"]["remove"], serde_json::json!([]));
    assert_eq!(place.run(&["verify", "trip"]).code, 0);
}

#[test]
fn a_narrow_terminal_is_enough() {
    let place = Place::new();
    place.turns("trip", 3);
    let said = on_narrow_terminal(place.command(&["prune", "trip", "--keep-last", "2"]));
    assert_eq!(said.code, 0, "{}", said.err);
    let table: Vec<_> = said.err.lines().filter(|line| line.contains("main:")).collect();
    assert!(table.len() == 3 && table.iter().all(|line| line.chars().count() <= 40), "{}", said.err);
    let all = on_narrow_terminal(place.command(&["verify", "--all"]));
    assert!(all.err.contains("all sound"), "{}", all.err);
}

#[test]
fn all_sessions_are_pruned_at_once() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 3);
    let dry = place.run(&["prune", "--all", "--latest-only"]);
    place.snapshot("prune_all", &without_sizes(&format!("{}{}", dry.out, dry.err)));
    let done = place.json(&["prune", "--all", "--latest-only", "--apply"]);
    assert_eq!(
        (done["dry_run"].as_bool(), done["removed"].as_u64(), done["kept"].as_u64()),
        (Some(false), Some(2), Some(2))
    );
    assert!(done["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn what_to_keep_comes_from_the_configuration_too() {
    let place = Place::new();
    place.turns("trip", 3);
    assert_eq!(place.fails(&["prune", "trip"], 2)["error"]["message"], "nothing says what to keep");
    assert_eq!(place.fails(&["prune", "--keep-last", "1"], 2)["error"]["code"], "RK0001");
    place.write("rekindle.toml", "[checkpoints]\nmax_checkpoints_per_session = 1\n");
    assert_eq!(place.json(&["prune", "trip"])["plan"]["remove"].as_array().unwrap().len(), 2);
    assert_eq!(place.run(&["prune", "trip", "--max-bytes", "lots"]).code, 2);
    assert_eq!(place.run(&["prune", "trip", "--max-age", "30"]).code, 2);
    assert_eq!(place.fails(&["prune", "trap", "--latest-only"], 3)["error"]["code"], "RK0003");
}

#[test]
fn checkpoints_go_by_their_ids() {
    let place = Place::new();
    place.turns("trip", 3);
    let planned = place.json(&["prune", "trip", "--latest-only"]);
    let id = |list: &str| planned["plan"][list][0]["checkpoint"].as_str().unwrap().to_owned();
    let (goes, stays) = (id("remove"), id("keep"));
    let dry = place.run(&["prune", "checkpoints", "trip", &goes]);
    place.snapshot("prune_checkpoints", &format!("{}{}", dry.out, dry.err));
    assert_eq!(place.json(&["prune", "checkpoints", "trip", &goes, "--apply"])["checkpoints"][0], goes);
    assert_eq!(place.fails(&["prune", "checkpoints", "trip", &stays, "--apply"], 6)["error"]["code"], "RK0014");
    assert_eq!(place.fails(&["prune", "checkpoints", "trip", "ckpt_nothing"], 3)["error"]["code"], "RK0003");
    assert_eq!(place.fails(&["prune", "checkpoints", "trip", "main"], 2)["error"]["code"], "RK0001");
}

#[test]
fn inactive_sessions_go() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 1);
    let young = place.run(&["prune", "inactive", "--older-than", "90d"]);
    assert_eq!((young.code, young.out.as_str()), (0, ""));
    let dry = place.run(&["prune", "inactive", "--older-than", "0s"]);
    place.snapshot("prune_inactive", &without_sizes(&format!("{}{}", dry.out, dry.err)));
    let none = place.json(&["prune", "inactive", "--older-than", "0s", "--status", "failed", "--apply"]);
    assert_eq!(none["plan"]["delete"], serde_json::json!([]));
    let gone = place.json(&["prune", "inactive", "--older-than", "0s", "--status", "succeeded", "--apply"]);
    assert_eq!((gone["dry_run"].as_bool(), gone["plan"]["delete"].as_array().unwrap().len()), (Some(false), 2));
    assert_eq!(place.json(&["sessions"])["sessions"], serde_json::json!([]));
    assert_eq!(place.run(&["prune", "inactive", "--older-than", "0s", "--status", "happy"]).code, 2);
    assert_eq!(place.run(&["prune", "inactive"]).code, 2);
}

#[test]
fn sound_sessions_verify() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 2);
    place.snapshot("verify", &without_sizes(&place.ok(&["verify", "one", "two"])));
    let all = place.json(&["verify", "--all"]);
    assert_eq!((all["sound"].as_bool(), all["verified"].as_u64()), (Some(true), Some(2)));
    assert_eq!(all["sessions"][0]["session"]["id"], "one");
    assert_eq!(place.run(&["verify"]).code, 2);
    assert_eq!(place.fails(&["verify", "three"], 3)["error"]["code"], "RK0003");
}

#[test]
fn damage_is_found_with_its_place() {
    let place = Place::new();
    place.turns("one", 1);
    place.turns("two", 2);
    place.spoil(3);
    let said = place.run(&["verify", "--all"]);
    assert_eq!(said.code, 7, "{}", said.err);
    place.snapshot("verify_damage", &without_sizes(&format!("{}{}", said.out, said.err)));
    let json = place.run(&["verify", "--all", "--json"]);
    assert_eq!(json.code, 7);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json["sound"].as_bool(), json["damaged"].as_u64()), (Some(false), Some(1)));
    assert_eq!((&json["sessions"][0]["sound"], &json["sessions"][1]["sound"]), (&false.into(), &true.into()));
    assert_eq!(place.run(&["verify", "two"]).code, 0);
}

#[test]
fn a_store_that_was_set_back_is_found() {
    let place = Place::new();
    place.turns("one", 1);
    std::fs::copy(place.path("rekindle.db"), place.path("old.db")).unwrap();
    place.ok(&["edit", "one", "--set", "a=1"]);
    place.turns("two", 1);
    place.write("heads.json", &place.ok(&["verify", "--all", "--json"]));
    assert_eq!(place.run(&["verify", "--all", "--seen", "heads.json"]).code, 0);
    let back = place.run(&["verify", "--all", "--seen", "heads.json", "--store", "sqlite:old.db"]);
    assert_eq!(back.code, 7, "{}", back.out);
    assert!(back.out.contains("session `two` was there"), "{}", back.out);
    place.write("heads.json", "{}");
    assert_eq!(place.fails(&["verify", "--all", "--seen", "heads.json"], 2)["error"]["code"], "RK0001");
}
