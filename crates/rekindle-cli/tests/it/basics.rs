//! Lists, errors and configuration.

use crate::support::Place;

#[test]
fn sessions_are_listed() {
    let place = Place::new();
    place.talk("trip-42", "What should I pack?", "A hat.");
    place.talk("trip-43", "And now?", "An umbrella.");
    place.snapshot("sessions_list", &place.ok(&["sessions"]));
    let listed = place.json(&["sessions", "list", "--limit", "1"]);
    assert_eq!(listed["sessions"][0]["session"], "trip-43");
    assert_eq!(listed["sessions"][0]["status"], "succeeded");
    assert!(listed["next"].is_string());
}

#[test]
fn looking_never_makes_a_store() {
    let place = Place::new();
    let said = place.run(&["sessions"]);
    assert_eq!(said.code, 3);
    place.snapshot("no_store", &said.err);
    assert!(!place.path("rekindle.db").exists());
}

#[test]
fn codes_are_explained() {
    let place = Place::new();
    place.snapshot("explain", &place.ok(&["explain", "rk0009"]));
    assert_eq!(place.run(&["explain", "RK9999"]).code, 3);
    assert!(place.json(&["explain"]).as_array().unwrap().len() > 20);
}

#[test]
fn later_layers_of_the_configuration_win() {
    let place = Place::new();
    place.write("rekindle.toml", "author = \"file\"\nlease = \"20s\"\n[run]\ndurability = \"sync\"\n");
    let mut command = place.command(&["-c", "lease=5s", "config", "show", "--json"]);
    command.env("REKINDLE_AUTHOR", "environment");
    let shown: serde_json::Value = serde_json::from_str(&crate::support::said(command).out).unwrap();
    let find = |key: &str| shown.as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap().clone();
    assert_eq!(
        (find("author")["value"].as_str(), find("author")["origin"].as_str()),
        (Some("environment"), Some("$REKINDLE_AUTHOR"))
    );
    assert_eq!((find("lease")["value"].as_str(), find("lease")["origin"].as_str()), (Some("5s"), Some("-c")));
    assert_eq!(find("run.durability")["origin"], "rekindle.toml");
    assert_eq!(find("namespace")["origin"], "default");
}

#[test]
fn a_new_store_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.ok(&["init"]);
    place.ok(&["run", "agent.yaml", "hello"]);
    let mode = std::fs::metadata(place.path("rekindle.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_variable_that_is_almost_a_key_is_named() {
    let place = Place::new();
    let mut command = place.command(&["explain", "RK0001"]);
    command.env("REKINDLE_STOER", "memory:").env("REKINDLE_OWN_THING", "1");
    let said = crate::support::said(command);
    assert!(said.err.contains("$REKINDLE_STOER means nothing; did you mean $REKINDLE_STORE?"), "{}", said.err);
    assert!(!said.err.contains("OWN_THING"), "{}", said.err);
}
