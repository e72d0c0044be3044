//! Agents with the tools of an MCP server: what becomes of a call whose server or whose run dies, by
//! the policy its file gives it.

use std::fs::File;
use std::process::Stdio;

use crate::processes::{lines, start, until};
use crate::support::{Place, Said};

/// A folder with the server and an agent that calls `tool` once, with such a policy.
fn place(tool: &str, policy: &str) -> Place {
    let place = Place::new();
    place.write("mcp_server.py", include_str!("mcp_server.py"));
    let agent = AGENT.replace("TOOL", tool).replace("POLICY", policy);
    place.write("clerk.yaml", &agent);
    place
}

const AGENT: &str = r#"
name: clerk
model:
  provider: scripted
  name: s
  script:
    turns:
      - calls: [{name: notes_TOOL, arguments: {text: milk}}]
      - expect: {last_contains: TOOL is done}
        text: All is noted.
mcp:
  notes:
    command: [python3, mcp_server.py]
    prefix: notes_
    timeout: 60s
    policies: {TOOL: POLICY}
"#;

fn run(place: &Place) -> Said {
    place.run(&["run", "clerk.yaml", "note it", "--session", "notes"])
}

fn assert_noted(said: &Said) {
    assert_eq!((said.code, said.out.trim()), (0, "All is noted."), "{}", said.err);
}

/// The calls the server got: the tool and its key.
fn ledger(place: &Place) -> Vec<(String, String)> {
    let words = |line: &String| {
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    lines(&place.path("ledger.txt")).iter().map(words).collect()
}

/// `tool` was called twice, as the same call.
fn assert_repeated(place: &Place, tool: &str) {
    let called = ledger(place);
    assert_eq!(called.len(), 2, "{called:?}");
    assert!(called[0] == called[1] && called[0].0 == tool && !called[0].1.is_empty(), "{called:?}");
}

/// Without the lines of calls: where they are cut depends on how long the call took.
fn without_calls(said: &str) -> String {
    said.lines().filter(|line| !line.starts_with("├─")).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_tools_of_a_server_read_and_write() {
    for (tool, policy) in [("read", "{writes: false}"), ("write", "{writes: true}")] {
        let place = place(tool, policy);
        assert_noted(&run(&place));
        assert_eq!(ledger(&place).len(), 1);
    }
}

#[test]
fn progress_is_told() {
    let place = place("walk", "{writes: false}");
    let told = place.ok(&["run", "clerk.yaml", "walk", "--events"]);
    let steps = told.lines().filter(|line| line.contains(r#""event":"progress""#) && line.contains("step")).count();
    assert_eq!(steps, 3, "{told}");
}

#[test]
fn a_reading_call_is_made_again_when_the_server_dies() {
    let place = place("die", "{writes: false, retry: {attempts: 3, first_pause: 1ms}}");
    let said = run(&place);
    assert_noted(&said);
    assert!(said.err.contains("died during the call"), "{}", said.err);
    assert_repeated(&place, "die");
}

#[test]
fn an_idempotent_call_is_made_again_with_its_key() {
    let place = place("die", "{in_doubt: idempotent, retry: {attempts: 3, first_pause: 1ms}}");
    assert_noted(&run(&place));
    assert_repeated(&place, "die");
}

#[test]
fn a_person_is_asked_about_a_writing_call_that_broke_off() {
    let place = place("die", "{in_doubt: ask}");
    let said = run(&place);
    assert_eq!(said.code, 4, "{}", said.err);
    place.snapshot("mcp_in_doubt", &without_calls(&said.err));
    assert_eq!(ledger(&place).len(), 1);
    let waits = place.json(&["waits"]);
    let prompt = waits["waits"][0]["wait"]["prompt"].as_str().unwrap();
    assert!(prompt.contains("the disk is on fire") && prompt.contains("`notes_die`"), "{prompt}");
    // Nothing was answered yet, so there is nothing new to do.
    assert_eq!(place.run(&["resume", "notes"]).code, 4);
    assert_eq!(place.run(&["answer", "notes", r#"{"action":"perhaps"}"#]).code, 2);
    place.ok(&["answer", "notes", r#"{"action":"retry"}"#]);
    assert_noted(&place.run(&["resume", "notes"]));
    assert_repeated(&place, "die");
}

#[test]
fn what_a_person_found_out_is_the_result() {
    let place = place("die", "{in_doubt: ask}");
    assert_eq!(run(&place).code, 4);
    place.ok(&["answer", "notes", r#"{"action":"done","result":"die is done, I looked"}"#]);
    assert_noted(&place.run(&["resume", "notes"]));
    assert_eq!(ledger(&place).len(), 1);
}

#[test]
fn a_call_that_must_not_be_repeated_fails_the_run_until_it_is_settled() {
    let place = place("die", "{in_doubt: never}");
    let said = run(&place);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("RK0022"), "{}", said.err);
    place.snapshot("mcp_never", &without_calls(&said.err));
    let again = place.run(&["resume", "notes"]);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(again.err.contains("RK0022"), "{}", again.err);
    assert_eq!(ledger(&place).len(), 1);
    place.ok(&["settle", "notes", "--happened", r#""die is done, says the log""#]);
    assert_noted(&place.run(&["resume", "notes"]));
    assert_eq!(ledger(&place).len(), 1);
}

/// Starts the run, kills its process while `hang` is called, and lets what hangs go.
fn killed(place: &Place) {
    let mut command = place.command(&["run", "clerk.yaml", "note it", "--session", "notes"]);
    let output = File::create(place.path("output.txt")).unwrap();
    let mut child = command.stdout(output.try_clone().unwrap()).stderr(output).stdin(Stdio::null()).spawn().unwrap();
    until("the call that hangs", || ledger(place).len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
}

#[test]
fn a_run_that_dies_in_a_call_follows_its_policy() {
    let place = place("hang", "{writes: false}");
    killed(&place);
    assert_noted(&place.run(&["resume", "notes"]));
    assert_repeated(&place, "hang");
}

#[test]
fn a_run_that_dies_in_a_writing_call_asks() {
    let place = place("hang", "{writes: true}");
    killed(&place);
    assert_eq!(place.run(&["resume", "notes"]).code, 4);
    place.ok(&["answer", "notes", r#"{"action":"done","result":"hang is done"}"#]);
    assert_noted(&place.run(&["resume", "notes"]));
    assert_eq!(ledger(&place).len(), 1);
}

#[test]
fn a_call_that_takes_too_long_is_in_doubt() {
    let place = place("hang", "{writes: true, timeout: 100ms}");
    let said = run(&place);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("did not come back within 100ms"), "{}", said.err);
    place.write("go", "");
}

#[test]
fn calls_wait_for_approval() {
    let place = place("write", "{approval: {prompt: May it write?}}");
    let said = run(&place);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("May it write?") && said.err.contains("milk"), "{}", said.err);
    assert_eq!(ledger(&place).len(), 0);
    place.ok(&["answer", "notes", "--approve", "--arguments", r#"{"text":"bread"}"#]);
    assert_noted(&place.run(&["resume", "notes"]));
    assert!(lines(&place.path("ledger.txt"))[0].ends_with(" bread"));
}

#[test]
fn a_server_that_does_not_start_is_told_with_its_last_words() {
    let place = place("read", "{writes: false}");
    let broken =
        "import sys\nprint('no such library', file=sys.stderr)\nprint('giving up', file=sys.stderr)\nsys.exit(3)\n";
    place.write("mcp_server.py", broken);
    let said = run(&place);
    assert_eq!(said.code, 2, "{}", said.err);
    place.snapshot("mcp_does_not_start", &said.err);
    assert_eq!(place.run(&["sessions"]).code, 3, "there is no session");
    let agent = std::fs::read_to_string(place.path("clerk.yaml")).unwrap();
    place.write("clerk.yaml", &agent.replace("python3", "python-that-is-not-there"));
    let mut command = place.command(&["run", "clerk.yaml", "note it"]);
    command.env("PATH", "/usr/bin:/bin");
    let said = crate::support::said(command);
    assert_eq!(said.code, 2, "{}", said.err);
    place.snapshot("mcp_is_not_there", &said.err);
    assert!(!place.path("rekindle.db").exists());
}

#[test]
fn a_server_that_is_gone_at_the_resume_leaves_the_session_as_it_was() {
    let place = place("die", "{in_doubt: ask}");
    assert_eq!(run(&place).code, 4);
    place.ok(&["answer", "notes", r#"{"action":"retry"}"#]);
    place.write("mcp_server.py", "raise SystemExit('gone')\n");
    let said = place.run(&["resume", "notes"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("it said last: gone"), "{}", said.err);
    place.write("mcp_server.py", include_str!("mcp_server.py"));
    assert_noted(&place.run(&["resume", "notes"]));
}

#[test]
fn servers_end_with_the_run() {
    let place = place("hang", "{writes: false}");
    let mut child = start(&place, &["run", "clerk.yaml", "note it", "--session", "notes"]);
    until("the call that hangs", || ledger(&place).len() == 1);
    place.write("go", "");
    assert!(child.wait().unwrap().success());
    let there = |entry: std::io::Result<std::fs::DirEntry>| {
        let cwd = std::fs::read_link(entry.ok()?.path().join("cwd")).ok()?;
        Some(cwd == place.path("").canonicalize().unwrap())
    };
    let left = std::fs::read_dir("/proc").map_or(0, |processes| processes.filter_map(there).filter(|is| *is).count());
    assert_eq!(left, 0, "the server outlived its run");
}
