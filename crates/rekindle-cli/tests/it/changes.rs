//! Forks and edits.

use rekindle::Json;
use rekindle::operations::{self, At, Change};

use crate::support::{Place, at_terminal};

/// A place with the session `trip`, whose memory has a budget and a colour.
fn place() -> Place {
    let place = Place::new();
    place.turns("trip", 2);
    place.with_engine(async |engine| {
        let set = |key: &str, value: &str| Change::SetMemory { key: key.into(), value: Json::parse(value).unwrap() };
        let changes = [set("budget", "500"), set("colour", "\"blue\"")];
        operations::edit(&engine, &engine.key("trip").unwrap(), &At::Latest, &changes, "maria", "").await.unwrap();
    });
    place
}

/// A key of the memory at the end of a branch.
fn memory(place: &Place, branch: &str, key: &str) -> Option<String> {
    place.with_engine(async |engine| {
        let at = At::Head(branch.parse().unwrap());
        let seen = operations::inspect(&engine, &engine.key("trip").unwrap(), &at).await.unwrap();
        seen.state.register(&format!("memory/{key}")).map(ToString::to_string)
    })
}

#[test]
fn a_fork_says_how_to_go_on() {
    let place = place();
    let said = place.run(&[
        "fork",
        "trip",
        "--name",
        "what-if",
        "--set",
        "budget=900",
        "--set",
        "note=hi there",
        "--unset",
        "colour",
    ]);
    assert_eq!(said.code, 0, "{}", said.err);
    place.snapshot("fork", &format!("{}{}", said.out, said.err));
    assert_eq!(memory(&place, "what-if", "budget").as_deref(), Some("900"));
    assert_eq!(memory(&place, "what-if", "note").as_deref(), Some("\"hi there\""));
    assert_eq!(memory(&place, "what-if", "colour"), None);
    assert_eq!(memory(&place, "main", "budget").as_deref(), Some("500"));
}

#[test]
fn a_fork_is_for_programs_too() {
    let place = place();
    let store = format!("sqlite:{}", place.path("rekindle.db").display());
    let forked = place.json(&["fork", "trip@~1", "--name", "b", "--message", "And then?", "--store", &store]);
    assert_eq!((&forked["branch"], &forked["from"]["branch"]), (&"b".into(), &"main".into()));
    assert_eq!(forked["next"], format!("rekindle --store {store} resume trip --branch b"));
    assert!(forked["checkpoint"].is_string());
    let plain = place.json(&["fork", "@"]);
    assert!(plain["checkpoint"].is_null() && plain["branch"].as_str().unwrap().starts_with("br_"));
    // The same again is the same branch; the same name elsewhere is not.
    assert_eq!(place.json(&["fork", "trip@~1", "--name", "c"])["branch"], "c");
    assert_eq!(place.json(&["fork", "trip@~1", "--name", "c"])["branch"], "c");
    assert_eq!(place.fails(&["fork", "trip", "--name", "c"], 6)["error"]["code"], "RK0004");
}

#[test]
fn patches_come_from_a_file_or_from_a_diff() {
    let place = place();
    place.write(
        "changes.json",
        r#"[{"set_memory": {"key": "budget", "value": 1}}, {"unset_memory": {"key": "colour"}}]"#,
    );
    place.ok(&["fork", "trip", "--name", "one", "--patch", "changes.json"]);
    assert_eq!((memory(&place, "one", "budget").as_deref(), memory(&place, "one", "colour")), (Some("1"), None));
    place.write("patch.json", r#"[{"op": "replace", "path": "/registers/memory~1budget", "value": {"eur": 2}}]"#);
    place.ok(&["fork", "trip", "--name", "two", "--patch", "patch.json"]);
    assert_eq!(memory(&place, "two", "budget").as_deref(), Some(r#"{"eur":2}"#));
    place.write("wrong.json", r#"[{"op": "remove", "path": "/registers/nothing"}]"#);
    assert_eq!(place.fails(&["fork", "trip", "--patch", "wrong.json"], 2)["error"]["code"], "RK0001");
    place.write("wrong.json", r#"{"a": 1"#);
    assert_eq!(place.fails(&["fork", "trip", "--patch", "wrong.json"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["fork", "trip", "--patch", "missing.json"], 3)["error"]["code"], "RK0003");
}

#[test]
fn an_edit_is_on_the_record() {
    let place = place();
    let said = place.run(&["edit", "trip", "--set", "budget=900", "--reason", "more money"]);
    assert_eq!(said.code, 0, "{}", said.err);
    place.snapshot("edit", &format!("{}{}", said.out, said.err));
    assert_eq!(memory(&place, "main", "budget").as_deref(), Some("900"));
    place.with_engine(async |engine| {
        let seen = operations::inspect(&engine, &engine.key("trip").unwrap(), &At::Latest).await.unwrap();
        assert_eq!(seen.checkpoint.unwrap().checkpoint.description, "edited by maria: more money");
    });
    // Anywhere but at the end, a branch begins.
    let elsewhere = place.json(&["edit", "trip@~1", "--set", "budget=1"]);
    assert_eq!(elsewhere["forked"], true);
    assert!(elsewhere["next"].as_str().unwrap().contains("--branch br_"));
    let register = place.json(&["edit", "trip", "--register", "--set", "memory/budget=2"]);
    assert_eq!(register["forked"], false);
    assert_eq!(memory(&place, "main", "budget").as_deref(), Some("2"));
}

#[test]
fn what_cannot_be_changed_is_said() {
    let place = place();
    let nothing = place.run(&["edit", "trip"]);
    assert_eq!(nothing.code, 2);
    place.snapshot("edit_nothing", &nothing.err);
    assert_eq!(place.fails(&["edit", "trip", "--set", "budget"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["edit", "trip", "--unset", "nothing"], 3)["error"]["code"], "RK0003");
    assert_eq!(place.fails(&["edit", "trip", "--skip-step", "one"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["edit", "trap", "--set", "a=1"], 3)["error"]["code"], "RK0003");
    assert_eq!(place.fails(&["fork", "trip@nowhere"], 3)["error"]["code"], "RK0003");
    assert_eq!(place.fails(&["fork", "trip", "--edit"], 2)["error"]["message"], "an editor needs a terminal");
    place.turns("trip-2", 1);
    let several = place.fails(&["fork", "tri"], 2);
    assert!(several["error"]["message"].as_str().unwrap().contains("trip-2"), "{several}");
}

#[test]
fn the_memory_is_edited_in_an_editor() {
    let place = place();
    let edit = |editor: &str, arguments: &[&str], typed: &str| {
        let mut command = place.command(arguments);
        command.env("EDITOR", editor).env("TERM", "xterm");
        at_terminal(command, typed)
    };
    let said = edit("sed -i s/blue/red/", &["edit", "trip", "--edit"], "");
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(memory(&place, "main", "colour").as_deref(), Some("\"red\""));
    let unchanged = edit("true", &["fork", "trip", "--name", "none", "--edit"], "");
    assert_eq!((unchanged.code, unchanged.out.as_str()), (0, ""));
    assert!(unchanged.err.contains("nothing was forked"), "{}", unchanged.err);
    let broken = edit("sed -i s/{/x/", &["edit", "trip", "--edit"], "n\n");
    assert_eq!(broken.code, 2, "{}", broken.err);
    assert!(broken.err.contains("must be a JSON object"), "{}", broken.err);
    let failed = edit("false", &["edit", "trip", "--edit"], "");
    assert_eq!(failed.code, 2, "{}", failed.err);
    let missing = edit("no-such-editor-anywhere", &["edit", "trip", "--edit"], "");
    assert!(missing.err.contains("set $EDITOR"), "{}", missing.err);
}
