//! A definition that changed starts nothing before the change is accepted.

use super::{used, write_spy};
use crate::support::Place;

const AGENT: &str = r#"
name: clerk
system: You note things.
model: {provider: scripted, name: s, script: {turns: [{calls: [{name: ask, arguments: {}}]}, {text: done}]}}
mcp: {notes: {command: [python3, mcp_server.py], timeout: 60s}}
tools:
  - name: ask
    description: Asks.
    question: {prompt: May I?}
"#;

/// A session that waits, and that was run with a server.
fn waiting(agent: &str) -> Place {
    let place = Place::new();
    write_spy(&place);
    place.write("mcp_server.py", include_str!("../mcp_server.py"));
    place.write("clerk.yaml", agent);
    assert_eq!(place.run(&["run", "clerk.yaml", "go", "--session", "s"]).code, 4);
    place.ok(&["answer", "s", "yes"]);
    place
}

#[test]
fn no_server_of_a_changed_definition_is_started() {
    let without = AGENT.replace("mcp: {notes: {command: [python3, mcp_server.py], timeout: 60s}}\n", "");
    let spied = AGENT.replace("[python3, mcp_server.py]", "[sh, spy.sh]");
    let added = AGENT.replace("mcp: {notes", "mcp: {evil: {command: [sh, spy.sh]}, notes");
    let check = |before: &str, after: &str, change: &str| {
        let place = waiting(before);
        place.write("clerk.yaml", after);
        let said = place.run(&["resume", "s", "--file", "clerk.yaml"]);
        assert_eq!(said.code, 6, "{change}: {}", said.err);
        assert!(said.err.contains("RK0009") && said.err.contains(change), "{change}: {}", said.err);
        assert_eq!(used(&place), 0, "{change}: it was started");
        // The worker has no other opinion, although the file is trusted now.
        place.ok(&["enqueue", "s"]);
        place.run(&["worker", "--until-idle", "--attempts", "1"]);
        assert_eq!(used(&place), 0, "{change}: a worker started it");
        place.run(&["resume", "s", "--file", "clerk.yaml", "--accept-drift", "meant"]);
        assert_eq!(used(&place), 1, "{change}: accepted");
    };
    check(AGENT, &spied, "MCP server notes changed");
    check(AGENT, &added, "MCP server evil was added");
    check(&without, &spied, "MCP server notes was added");
    let prompted = spied.replace("You note things.", "You note nothing.");
    check(AGENT, &prompted, "system prompt changed");
}

#[test]
fn what_is_as_it_was_goes_on() {
    let place = waiting(AGENT);
    let said = place.run(&["resume", "s"]);
    assert_eq!((said.code, said.out.trim()), (0, "done"), "{}", said.err);
    // A comment is no change of what is run.
    let place = waiting(AGENT);
    place.write("clerk.yaml", &format!("# notes\n{AGENT}"));
    let said = place.run(&["resume", "s", "--file", "clerk.yaml"]);
    assert_eq!((said.code, said.out.trim()), (0, "done"), "{}", said.err);
}

#[test]
fn an_accepted_change_is_accepted_once() {
    let place = waiting(AGENT);
    place.write("clerk.yaml", &AGENT.replace("timeout: 60s", "timeout: 60s, environment: {A: b}"));
    let said = place.run(&["resume", "s", "--file", "clerk.yaml"]);
    assert!(said.err.contains("MCP server notes changed"), "{}", said.err);
    let said = place.run(&["resume", "s", "--file", "clerk.yaml", "--accept-drift", "meant"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let shown = place.ok(&["log", "s", "--records"]);
    assert!(shown.contains("drift"), "{shown}");
}
