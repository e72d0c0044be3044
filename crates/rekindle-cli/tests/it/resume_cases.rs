//! Going on: what a session can be told when it is resumed, what is refused, and the exact line that
//! helps. Every run is a process of its own; ledgers say what really happened.

use std::collections::HashSet;
use std::process::Child;

use crate::processes::{lines, start, until};
use crate::support::{Place, Said, said};

/// An agent that asks a person in the middle of its turn, then uses a tool.
const ASKER: &str = r#"
name: asker
system: You ask first.
model:
  provider: scripted
  name: s
  script:
    name: first
    turns:
      - calls: [{name: note, arguments: {what: begun}}]
      - calls: [{name: ask}]
      - calls: [{name: note, arguments: {what: asked}}]
      - text: Thank you.
      - text: You are welcome.
secrets: {token: "@env:OLD_TOKEN"}
tools:
  - {name: ask, description: Asks., question: {prompt: How many?, schema: {type: integer}}}
  - name: note
    description: Notes it.
    parameters: {what: string}
    shell: echo "$REKINDLE_ARG_WHAT $TOKEN" >> ledger.txt
    secret_environment: {TOKEN: token}
    in_doubt: idempotent
"#;

fn ledger(place: &Place) -> Vec<String> {
    lines(&place.path("ledger.txt"))
}

/// The binary with the secrets of these tests.
fn run(place: &Place, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.env("OLD_TOKEN", "old-7f3a91").env("NEW_TOKEN", "new-c0ffee");
    said(command)
}

fn ok(place: &Place, arguments: &[&str]) -> String {
    let said = run(place, arguments);
    assert_eq!(said.code, 0, "{arguments:?}\n{}\n{}", said.out, said.err);
    said.out
}

/// A session that waits for an answer in the middle of its turn.
fn asked() -> Place {
    let place = Place::new();
    place.write("asker.yaml", ASKER);
    let said = run(&place, &["run", "asker.yaml", "go", "--session", "trip"]);
    assert_eq!(said.code, 4, "{}", said.err);
    place
}

/// The same, with the answer given.
fn answered() -> Place {
    let place = asked();
    ok(&place, &["answer", "trip", "3"]);
    place
}

#[test]
fn the_four_cases() {
    let place = asked();
    // A run is unfinished, and there is a message.
    let refused = run(&place, &["run", "asker.yaml", "more", "--continue", "trip"]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    place.snapshot("resume_unfinished", &refused.err);
    for line in ["rekindle resume trip", "rekindle cancel trip", "rekindle send trip"] {
        assert!(refused.err.contains(line), "{}", refused.err);
    }
    // A run is unfinished, and there is none: it goes on.
    ok(&place, &["answer", "trip", "3"]);
    assert_eq!(ok(&place, &["resume", "trip"]).trim(), "Thank you.");
    // Nothing is unfinished, and there is nothing new.
    let refused = run(&place, &["resume", "trip"]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    place.snapshot("resume_nothing", &refused.err);
    assert!(refused.err.contains("rekindle run FILE --continue trip"), "{}", refused.err);
    // Nothing is unfinished, and there is a message: the next turn.
    assert_eq!(ok(&place, &["run", "asker.yaml", "thanks", "--continue", "trip"]).trim(), "You are welcome.");
    assert_eq!(ledger(&place).len(), 2);
}

#[test]
fn the_lines_of_a_refusal_do_what_they_say() {
    let place = asked();
    let queued = ok(&place, &["send", "trip", "thanks"]);
    assert!(!queued.is_empty());
    ok(&place, &["answer", "trip", "3"]);
    // What was queued is read when the turn is over.
    assert_eq!(ok(&place, &["resume", "trip"]).trim(), "You are welcome.");
    let place = asked();
    ok(&place, &["cancel", "trip", "--yes"]);
    assert_eq!(run(&place, &["resume", "trip"]).code, 6);
    assert_eq!(ledger(&place).len(), 1);
}

#[test]
fn memory_is_set_and_secrets_are_named_at_the_resume() {
    let place = answered();
    let arguments =
        ["resume", "trip", "--set", "region=eu", "--set", r#"limits={"a":[1]}"#, "--secret", "token=@env:NEW_TOKEN"];
    assert_eq!(ok(&place, &arguments).trim(), "Thank you.");
    assert_eq!(ledger(&place), ["begun old-7f3a91", "asked new-c0ffee"]);
    let shown = place.json(&["sessions", "inspect", "trip"]).to_string();
    assert!(shown.contains(r#""memory/region":"eu""#) && shown.contains(r#""memory/limits":{"a":[1]}"#), "{shown}");
    assert!(shown.contains(r#""secret/token":"@env:NEW_TOKEN""#), "{shown}");
    let records = ok(&place, &["log", "trip", "--records"]);
    for secret in ["old-7f3a91", "new-c0ffee"] {
        assert!(!records.contains(secret));
        let bytes = std::fs::read(place.path("rekindle.db")).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}

#[test]
fn a_secret_that_was_named_is_named_again() {
    let place = Place::new();
    place.write("asker.yaml", ASKER);
    let arguments = ["run", "asker.yaml", "go", "--session", "trip", "--secret", "token=@env:NEW_TOKEN"];
    assert_eq!(run(&place, &arguments).code, 4);
    ok(&place, &["answer", "trip", "3"]);
    // Neither what the session remembers nor what the file says: both would be a choice nobody made.
    assert!(run(&place, &["resume", "trip"]).err.contains("--secret token=@env:NEW_TOKEN"));
    ok(&place, &["resume", "trip", "--secret", "token=@env:NEW_TOKEN"]);
    assert_eq!(ledger(&place), ["begun new-c0ffee", "asked new-c0ffee"]);
}

#[test]
fn a_file_that_changed_is_refused_until_somebody_accepts_it() {
    let place = answered();
    place.write("asker.yaml", &ASKER.replace("You ask first.", "You never ask."));
    place.ok(&["trust", "asker.yaml", "--yes"]);
    let refused = run(&place, &["resume", "trip"]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    place.snapshot("resume_drift", &refused.err);
    assert!(refused.err.contains("RK0009") && refused.err.contains("system prompt changed"), "{}", refused.err);
    assert!(refused.err.contains("--accept-drift"), "{}", refused.err);
    assert_eq!(ledger(&place).len(), 1);
    assert_eq!(ok(&place, &["resume", "trip", "--accept-drift", "it is better now"]).trim(), "Thank you.");
    let records = ok(&place, &["log", "trip", "--records"]);
    assert!(records.contains("it is better now") && records.contains("system prompt changed"), "{records}");
}

#[test]
fn a_changed_tool_and_another_model_are_drift() {
    let place = answered();
    place.write("asker.yaml", &ASKER.replace("Notes it.", "Notes it twice."));
    place.ok(&["trust", "asker.yaml", "--yes"]);
    let refused = run(&place, &["resume", "trip"]);
    assert!(refused.code == 6 && refused.err.contains("tool note changed"), "{}", refused.err);
    place.write("asker.yaml", ASKER);
    place.write("other.yaml", "name: second\nrepeat_last: true\nturns: [{text: I am another.}]\n");
    let refused = run(&place, &["resume", "trip", "--model", "scripted/other.yaml"]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    assert!(refused.err.contains("model changed from first to second"), "{}", refused.err);
    let said = run(&place, &["resume", "trip", "--model", "scripted/other.yaml", "--accept-drift"]);
    assert_eq!((said.code, said.out.trim()), (0, "I am another."), "{}", said.err);
}

#[test]
fn a_file_that_moved_is_named() {
    let place = answered();
    std::fs::create_dir(place.path("moved")).unwrap();
    std::fs::rename(place.path("asker.yaml"), place.path("moved/asker.yaml")).unwrap();
    let refused = run(&place, &["resume", "trip"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    place.snapshot("resume_moved", &refused.err);
    assert_eq!(run(&place, &["resume", "trip", "--file", "moved/none.yaml"]).code, 3);
    assert_eq!(ok(&place, &["resume", "trip", "--file", "moved/asker.yaml"]).trim(), "Thank you.");
}

#[test]
fn an_earlier_checkpoint_becomes_another_branch() {
    let place = Place::new();
    place.write("asker.yaml", &format!("{ASKER}checkpoints: per_iteration\n"));
    assert_eq!(run(&place, &["run", "asker.yaml", "go", "--session", "trip"]).code, 4);
    ok(&place, &["answer", "trip", "3"]);
    ok(&place, &["resume", "trip"]);
    let before = place.json(&["sessions", "show", "trip"]);
    let checkpoints = place.json(&["sessions", "checkpoints", "trip"])["checkpoints"].as_array().unwrap().clone();
    let first = checkpoints.last().unwrap()["id"].as_str().unwrap().to_owned();
    let said = run(&place, &["resume", "trip", "--checkpoint", &first]);
    assert_eq!(said.code, 4, "{}", said.err);
    let branches = place.json(&["sessions", "show", "trip"])["branches"].clone();
    let main = |shown: &serde_json::Value| {
        shown.as_array().unwrap().iter().find(|branch| branch["branch"] == "main").unwrap()["head"].clone()
    };
    assert_eq!(main(&branches), main(&before["branches"]), "the old one is as it was");
    assert_eq!(branches.as_array().unwrap().len(), before["branches"].as_array().unwrap().len() + 1);
    // Both can be gone on with.
    let refused = run(&place, &["resume", "trip", "--branch", "main"]);
    assert!(refused.code == 6 && refused.err.contains("RK0010"), "{}", refused.err);
    assert_eq!(run(&place, &["resume", "trip", "--branch", "none"]).code, 3);
    ok(&place, &["answer", "trip", "4"]);
    assert_eq!(ok(&place, &["resume", "trip"]).trim(), "Thank you.");
    let refused = run(&place, &["resume", "trip", "--checkpoint", "main"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert_eq!(run(&place, &["resume", "trip", "--checkpoint", "ckpt_none"]).code, 3);
}

#[test]
fn a_spent_budget_is_raised() {
    let place = Place::new();
    place.write(
        "asker.yaml",
        &ASKER
            .replace("{name: ask}", "{name: note, arguments: {what: more}}")
            .replace("secrets:", "budgets: {iterations: 2}\nsecrets:"),
    );
    let spent = run(&place, &["run", "asker.yaml", "go", "--session", "trip"]);
    assert_eq!(spent.code, 1, "{}", spent.err);
    assert!(
        spent.err.contains("used up: 2 of 2") && spent.err.contains("rekindle resume trip --raise iterations=4"),
        "{}",
        spent.err
    );
    place.snapshot("resume_budget", &spent.err);
    // A resume alone refills nothing.
    assert_eq!(run(&place, &["resume", "trip"]).code, 1);
    assert_eq!(run(&place, &["resume", "trip", "--raise", "iterations=2"]).code, 1);
    assert_eq!(ok(&place, &["resume", "trip", "--raise", "iterations=9"]).trim(), "Thank you.");
    assert_eq!(ledger(&place).len(), 3);
    assert!(ok(&place, &["log", "trip", "--records"]).contains("iterations"));
}

const PLAN: &str = r#"
name: report
tools:
  - {name: fetch, description: Fetches., shell: echo fetched | tee -a ledger.txt, output: text}
  - {name: print, description: Prints., shell: cat paper && echo printed | tee -a ledger.txt, output: text}
steps:
  - {id: data, action: fetch}
  - {id: paper, action: print, dependencies: [data]}
"#;

#[test]
fn a_failed_step_is_mended_and_resumed() {
    let place = Place::new();
    place.write("report.yaml", PLAN);
    let failed = run(&place, &["run", "report.yaml", "--session", "report"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(failed.err.contains("paper") && failed.err.contains("rekindle resume report"), "{}", failed.err);
    assert_eq!(ledger(&place), ["fetched"]);
    assert_eq!(run(&place, &["resume", "report"]).code, 1);
    place.write("paper", "A4\n");
    ok(&place, &["resume", "report"]);
    assert_eq!(ledger(&place), ["fetched", "printed"]);
    assert_eq!(run(&place, &["resume", "report"]).code, 6);
}

const GRAPH: &str = r#"
name: essay
entry: draft
memory: {words: 5}
tools:
  - name: write
    description: Writes.
    parameters: {words: integer}
    shell: echo "$REKINDLE_ARG_WORDS words" | tee -a ledger.txt
    output: text
nodes:
  - {id: draft, kind: tool, tool: write, arguments: {words: "${memory.words}"}, reads: [words], writes: [text]}
  - {id: judge, kind: wait, prompt: Good enough?, schema: {enum: ["yes", "no"]}, writes: [verdict]}
  - {id: print, kind: tool, tool: write, arguments: {words: "${memory.words}"}, reads: [words]}
edges:
  - {from: draft, to: judge}
  - {from: judge, to: print, when: {memory: verdict, is: "yes"}}
  - {from: judge, to: draft, default: true}
"#;

#[test]
fn a_graph_asks_a_person_and_takes_only_what_fits() {
    let place = Place::new();
    place.write("essay.yaml", GRAPH);
    let waits = run(&place, &["run", "essay.yaml", "--session", "essay"]);
    assert_eq!(waits.code, 4, "{}", waits.err);
    assert!(waits.err.contains("Good enough?") && waits.err.contains("rekindle answer essay"), "{}", waits.err);
    let refused = run(&place, &["answer", "essay", "perhaps"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    place.snapshot("resume_answer_does_not_fit", &refused.err);
    ok(&place, &["answer", "essay", "no"]);
    assert_eq!(run(&place, &["resume", "essay", "--set", "words=9"]).code, 4);
    assert_eq!(ledger(&place), ["5 words", "9 words"]);
    ok(&place, &["answer", "essay", "yes"]);
    ok(&place, &["resume", "essay"]);
    assert_eq!(ledger(&place), ["5 words", "9 words", "9 words"]);
}

/// An agent that has another do the work: one call that is done soon, and one that waits for `go`.
const PARENT: &str = r#"
name: parent
model:
  provider: scripted
  name: s
  script: {name: p, turns: [{calls: [{name: helper, arguments: {task: work}}]}, {expect: {last_contains: worked}, text: It is done.}]}
tools: [{name: helper, agent: child.yaml}]
"#;

const CHILD: &str = r#"
name: child
description: Works.
model:
  provider: scripted
  name: s
  script:
    name: c
    turns:
      - calls: [{name: note, arguments: {what: first}}]
      - calls: [{name: wait}]
      - text: I have worked.
tools:
  - name: note
    description: Notes it.
    parameters: {what: string}
    shell: echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt
  - name: wait
    description: Waits.
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> begun.txt
      for _ in $(seq 3000); do [ -e go ] && break; sleep 0.02; done
    in_doubt: idempotent
"#;

/// Kills a run once `begun.txt` says that its slow call has begun, and lets that call end.
fn kill(place: &Place, mut child: Child) {
    until("the slow call", || lines(&place.path("begun.txt")).len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
}

/// The slow call was made again under its key, all others once.
fn assert_worked_once(place: &Place) {
    assert_eq!(ledger(place).len(), 1);
    let begun = lines(&place.path("begun.txt"));
    let keys: HashSet<&String> = begun.iter().collect();
    assert_eq!((begun.len(), keys.len()), (2, 1), "{begun:?}");
}

#[test]
fn a_killed_parent_goes_on_with_its_child() {
    let place = Place::new();
    place.write("parent.yaml", PARENT);
    place.write("child.yaml", CHILD);
    // Nobody waits until the leases of a dead process end, the child's neither.
    place.write("rekindle.toml", "lease = \"10m\"\n");
    kill(&place, start(&place, &["run", "parent.yaml", "go", "--session", "family"]));
    let listed = place.json(&["sessions", "list", "--children"]);
    let child = listed["sessions"].as_array().unwrap().iter().find(|session| session["session"] != "family").unwrap()
        ["session"]
        .as_str()
        .unwrap()
        .to_owned();
    // A child is not resumed on its own.
    let refused = place.run(&["resume", &child]);
    assert!(refused.code == 3 && refused.err.contains("rekindle resume family"), "{}", refused.err);
    assert_eq!(place.ok(&["resume", "family"]).trim(), "It is done.");
    assert_worked_once(&place);
    assert_eq!(place.json(&["sessions", "list", "--children"])["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn an_encrypted_session_is_killed_and_resumed() {
    let place = Place::new();
    place.write("child.yaml", CHILD);
    place.configure("[encryption]\nkey = \"@file:key\"\n[signing]\nkey = \"@file:key\"\n");
    place.write("key", &"5a".repeat(32));
    kill(&place, start(&place, &["run", "child.yaml", "a very private task", "--session", "secret"]));
    assert_eq!(place.ok(&["resume", "secret"]).trim(), "I have worked.");
    assert_worked_once(&place);
    assert!(place.ok(&["sessions", "show", "secret"]).contains("secret"));
    assert!(place.ok(&["sessions", "inspect", "secret", "--json"]).contains("a very private task"));
    place.ok(&["verify", "secret"]);
    for name in ["rekindle.db", "rekindle.db-wal"] {
        let bytes = std::fs::read(place.path(name)).unwrap_or_default();
        for text in ["I have worked", "a very private task"] {
            assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{name} has `{text}`");
        }
    }
}

#[test]
fn a_session_in_files_is_killed_and_resumed() {
    let place = Place::new();
    place.write("child.yaml", CHILD);
    kill(&place, start(&place, &["--store", "file:sessions", "run", "child.yaml", "go", "--session", "filed"]));
    assert_eq!(place.ok(&["--store", "file:sessions", "resume", "@"]).trim(), "I have worked.");
    assert_worked_once(&place);
    place.ok(&["--store", "file:sessions", "verify", "--all"]);
    assert!(!place.path("rekindle.db").exists());
}
