//! Damage as people and programs are told of it by commands that read past it.

use serde_json::json;

use crate::support::Place;

const AGENT: &str = r#"
name: clerk
model:
  provider: scripted
  script:
    name: clerk
    turns:
      - calls: [{name: pay, arguments: {}}]
      - text: Paid.
tools:
  - name: pay
    description: Pays.
    command: [sh, -c, "echo paid >> ledger"]
    approval: {prompt: "Pay?"}
"#;

impl Place {
    /// Damages the last frame of a branch of the only session.
    fn damage_end(&self, branch: &str) {
        let connection = rusqlite::Connection::open(self.path("rekindle.db")).unwrap();
        let damaged = "UPDATE frames SET body = CAST(substr(body, 1, length(body) - 1) || x'ff' AS BLOB) WHERE id = (SELECT max(id) \
                       FROM frames WHERE branch = (SELECT id FROM branches WHERE name = ?1))";
        assert_eq!(connection.execute(damaged, [branch]).unwrap(), 1);
    }
}

#[test]
fn commands_that_look_before_damage_say_so() {
    let place = Place::new();
    place.turns("trip", 3);
    let earlier = place.json(&["sessions", "checkpoints", "trip"])["checkpoints"][1]["id"].as_str().unwrap().to_owned();
    place.damage_end("main");
    let earlier = format!("trip@{earlier}");
    for arguments in [
        &["sessions", "inspect", &earlier][..],
        &["diff", &earlier],
        &["log", "trip"],
        &["fork", &earlier, "--name", "other"],
        &["edit", &earlier, "--set", "a=1"],
    ] {
        let said = place.run(arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}", said.err);
        assert!(said.err.contains("damaged: main:"), "{arguments:?}\n{}", said.err);
        assert!(said.err.contains("rekindle verify trip"), "{arguments:?}\n{}", said.err);
    }
    assert_eq!(place.json(&["sessions", "inspect", &earlier])["damage"][0]["branch"], "main");
    assert_eq!(place.json(&["log", "trip"])["damage"][0]["branch"], "main");
    assert_eq!(place.json(&["diff", &earlier])["b"]["damage"][0]["branch"], "main");
    assert_eq!(place.json(&["fork", &earlier])["damage"][0]["branch"], "main");
    let lost = place.json(&["sessions", "inspect", "trip@other"])["lost"].clone();
    assert_eq!((lost[0]["branch"].as_str(), lost[0]["author"].as_str()), (Some("main"), Some("maria")), "{lost}");
    assert_eq!(place.run(&["export", "trip", "-o", "trip.export"]).code, 7);
    assert!(!place.path("trip.export").exists());
}

#[test]
fn a_run_whose_answer_is_lost_says_how_to_go_on() {
    let place = Place::new();
    place.write("clerk.yaml", AGENT);
    let said = place.run(&["run", "clerk.yaml", "go", "--session", "pay-1"]);
    assert!(said.err.contains("Pay?") || said.out.contains("Pay?"), "{}\n{}", said.out, said.err);
    let waits = place.json(&["waits"]);
    let (wait, digest) = (&waits["waits"][0]["wait"]["wait"], &waits["waits"][0]["wait"]["approve_digest"]);
    let approve = ["answer", "pay-1", wait.as_str().unwrap(), "--approve", "--digest", digest.as_str().unwrap()];
    place.ok(&approve);
    place.damage_end("inbox");
    let error = place.fails(&["resume", "pay-1"], 7);
    assert_eq!(error["error"]["code"], "RK0011");
    assert_eq!(error["error"]["position"], "inbox:1");
    let hint = error["error"]["hint"].as_str().unwrap();
    for line in ["rekindle verify pay-1", "--branch inbox", "rekindle resume pay-1 --ignore-damaged-inbox"] {
        assert!(hint.contains(line), "{hint}");
    }
    assert!(place.run(&["waits"]).err.contains("damaged: inbox:1"));
    assert_eq!(place.json(&["sessions", "show", "pay-1"])["damage"][0]["branch"], "inbox");
    assert!(!place.path("ledger").exists());

    let said = place.run(&["resume", "pay-1", "--ignore-damaged-inbox"]);
    assert!(said.err.contains("record 1 of branch `inbox`"), "{}", said.err);
    let shown = place.json(&["sessions", "show", "pay-1"]);
    assert_eq!((&shown["status"], &shown["lost"][0]["branch"]), (&json!("waiting"), &json!("inbox")));
    place.ok(&approve);
    place.ok(&["resume", "pay-1"]);
    assert_eq!(std::fs::read_to_string(place.path("ledger")).unwrap(), "paid\n");
}
