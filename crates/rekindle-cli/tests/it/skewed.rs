//! Processes of one machine whose wall clocks differ.

use std::process::Stdio;

use rekindle_fixtures::{Postgres, Redis};

use crate::processes::{end, lines, start, until};
use crate::support::{Place, Said, said};

/// One call that is on the ledger before anything else, and lasts until it is told to end.
const AGENT: &str = r#"
name: booker
model:
  provider: scripted
  name: script
  script:
    turns:
      - calls: [{name: book, arguments: {what: one}}]
      - text: booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: echo "$REKINDLE_ARG_WHAT" >> ledger.txt; while [ ! -e go ]; do sleep 0.02; done; echo booked
    output: text
    check_command: [sh, -c, 'exit 3']
    timeout: 60s
"#;

fn off(place: &Place, seconds: &str, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.env("REKINDLE_TEST_CLOCK_OFFSET", seconds);
    said(command)
}

/// A day ahead or behind, the session of a live process is nobody else's.
fn check(store: &str) {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    let mut owner = place.command(&["run", "agent.yaml", "go", "--session", "held", "--store", store]);
    let owner = owner.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a call", || !lines(&place.path("ledger.txt")).is_empty());
    for seconds in ["86400", "-86400"] {
        let refused = off(&place, seconds, &["resume", "held", "--store", store]);
        assert_eq!(refused.code, 6, "{refused:#?}");
        assert!(refused.err.contains(&format!("process {} on", owner.id())), "{refused:#?}");
    }
    place.write("go", "");
    let owner = end(owner);
    assert_eq!(owner.code, 0, "{owner:#?}");
    assert_eq!(lines(&place.path("ledger.txt")).len(), 1, "{owner:#?}");
}

#[test]
fn a_clock_that_is_off_takes_no_session_from_a_live_process_on_sqlite() {
    check("sqlite:sessions.db");
}

#[test]
fn a_clock_that_is_off_takes_no_session_from_a_live_process_on_files() {
    check("file:sessions");
}

#[test]
fn a_clock_that_is_off_takes_no_session_from_a_live_process_on_a_directory_of_objects() {
    check("objects:sessions");
}

#[test]
fn a_clock_that_is_off_takes_no_session_from_a_live_process_on_servers() {
    check(&format!("{}?schema=skewed", Postgres::shared().url()));
    check(&format!("{}?prefix=skewed", Redis::shared().url()));
}

#[test]
fn an_offset_is_a_number_and_shifts_what_a_local_store_says() {
    let place = Place::new();
    let refused = off(&place, "noon", &["sessions"]);
    assert!(refused.code != 0 && refused.err.contains("REKINDLE_TEST_CLOCK_OFFSET"), "{refused:#?}");
    place.write("agent.yaml", AGENT);
    place.write("go", "");
    let run = start(&place, &["run", "agent.yaml", "go", "--session", "now"]);
    assert_eq!(end(run).code, 0);
    let run = off(&place, "864000", &["run", "agent.yaml", "go", "--session", "later"]);
    assert_eq!(run.code, 0, "{run:#?}");
    let created = |id: &str| place.json(&["sessions", "show", id])["created_at"].as_u64().unwrap();
    assert!(created("later") - created("now") > 9 * 86_400 * 1_000_000, "{} {}", created("later"), created("now"));
}
