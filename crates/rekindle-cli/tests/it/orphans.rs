//! Tools whose run is killed or frozen while they work: real processes, real signals, and a ledger
//! that the tools write themselves.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{lines, signal, until};
use crate::support::Place;

/// Enters its key into a ledger after a while, and can tell afterwards whether it did.
const ENTERS: &str = r#"
name: clerk
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: enter}]
      - text: entered
tools:
  - name: enter
    description: Enters it.
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> started.txt
      WORK
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> ledger.txt
    output: text
    timeout: 60s
    check_command: [sh, -c, 'grep "$0" ledger.txt || exit 3', "${idempotency_key}"]
"#;

fn place(work: &str) -> Place {
    let place = Place::new();
    place.write("clerk.yaml", &ENTERS.replace("WORK", work));
    place
}

/// A run whose tool is at work.
fn at_work(place: &Place, lease: &str) -> Child {
    let mut command = place.command(&["run", "clerk.yaml", "enter it", "--session", "s"]);
    let child = command.env("REKINDLE_LEASE", lease).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the call", || lines(&place.path("started.txt")).len() == 1);
    child
}

/// The processes of the call that run.
fn of_call(place: &Place) -> Vec<i32> {
    let wanted = format!("REKINDLE_IDEMPOTENCY_KEY={}", lines(&place.path("started.txt"))[0]);
    let carries = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == wanted.as_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_tool_of_a_killed_run_does_nothing_behind_the_back_of_the_next() {
    let place = place("sleep 1");
    kill(at_work(&place, "15s"));
    // The second try takes as long as the first one would have had left.
    let resumed = place.run(&["resume", "s"]);
    assert_eq!((resumed.code, resumed.out.trim()), (0, "entered"), "{}", resumed.err);
    let entered = lines(&place.path("ledger.txt"));
    assert_eq!(entered.len(), 1, "{entered:?}");
    assert_eq!(lines(&place.path("started.txt")), [entered[0].clone(), entered[0].clone()], "one key, two tries");
    assert_eq!(of_call(&place), [0; 0]);
}

#[test]
fn a_tool_of_a_frozen_run_ends_before_another_may_take_over() {
    let place = place("if [ -e again ]; then :; else sleep 1000; fi");
    // A sixth of the lease is what a busy machine may be late.
    let child = at_work(&place, "9s");
    signal(&child, Signal::STOP);
    let status = || place.json(&["sessions", "show", "s"])["status"].clone();
    until("the end of the lease", || status() == "interrupted");
    assert_eq!(of_call(&place), [0; 0], "its tool is gone when its lease is");
    place.write("again", "");
    let resumed = place.run(&["resume", "s"]);
    assert_eq!((resumed.code, resumed.out.trim()), (0, "entered"), "{}", resumed.err);
    assert_eq!(lines(&place.path("ledger.txt")).len(), 1);
    kill(child);
}

#[test]
fn a_process_that_escaped_is_named_and_a_person_is_asked() {
    let place = place("setsid sh -c 'echo $$ > new; mv new escaped; sleep 1000; :' & sleep 1000");
    let child = at_work(&place, "15s");
    until("the escape", || place.path("escaped").exists());
    kill(child);
    let escaped: i32 = lines(&place.path("escaped"))[0].parse().unwrap();
    let asked = place.run(&["resume", "s"]);
    let waits = place.json(&["waits"]).to_string();
    let _ = kill_process(Pid::from_raw(escaped).unwrap(), Signal::KILL);
    assert_eq!(asked.code, 4, "{}", asked.err);
    let named = format!("still running: process {escaped} (");
    assert!(asked.err.contains(&named) && waits.contains(&named), "{}\n{waits}", asked.err);
    assert_eq!(lines(&place.path("started.txt")).len(), 1, "it was not repeated");
    assert_eq!(lines(&place.path("ledger.txt")).len(), 0);
}
