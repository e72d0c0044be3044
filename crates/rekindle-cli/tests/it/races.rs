//! Several processes that go on with one session at the same time: one becomes its owner, none
//! evicts a live one, and no call is made twice.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};

use rekindle_fixtures::{Postgres, Redis};

use crate::processes::{end, lines, start, until};
use crate::support::{Place, Said};

/// Three calls one after the other. Each is on the ledger before anything else happens, and its check
/// looks there.
const AGENT: &str = r#"
name: booker
model:
  provider: scripted
  name: script
  script:
    turns:
      - calls: [{name: book, arguments: {what: one}}]
      - calls: [{name: book, arguments: {what: two}}]
      - calls: [{name: book, arguments: {what: three}}]
      - text: booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt; sleep 0.05; echo booked
    output: text
    check_command: [sh, -c, 'grep "$0" ledger.txt || exit 3', "${idempotency_key}"]
"#;

const ROUNDS: usize = 6;
const RIVALS: usize = 3;

/// Kills a run in its first or second call, then has rivals resume it at the same instant.
fn check(store: &str) {
    for round in 0..ROUNDS {
        let place = Place::new();
        place.write("agent.yaml", AGENT);
        let id = format!("round-{round}");
        let mut run = start(&place, &["run", "agent.yaml", "go", "--session", &id, "--store", store]);
        until("a call", || lines(&place.path("ledger.txt")).len() > round % 2);
        run.kill().unwrap();
        run.wait().unwrap();
        let rivals: Vec<Child> = (0..RIVALS).map(|_| start(&place, &["resume", &id, "--store", store])).collect();
        let said: Vec<Said> = rivals.into_iter().map(end).collect();
        assert!(said.iter().any(|said| said.code == 0 && said.out.contains("booked")), "{said:#?}");
        for said in &said {
            // An owner that is alive is never fenced; whoever comes second is told who runs it.
            assert!(!said.err.contains("RK0006") && !said.err.contains("evicted"), "{said:#?}");
        }
        assert_each_once(&place, &said);
    }
}

fn assert_each_once(place: &Place, said: &[Said]) {
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(&place.path("ledger.txt")) {
        *calls.entry(line).or_default() += 1;
    }
    assert!(calls.len() == 3 && calls.values().all(|times| *times == 1), "{calls:?}\n{said:#?}");
}

#[test]
fn rivals_resume_a_killed_run_on_sqlite() {
    check("sqlite:sessions.db");
}

#[test]
fn rivals_resume_a_killed_run_on_files() {
    check("file:sessions");
}

#[test]
fn rivals_resume_a_killed_run_on_postgres() {
    check(&format!("{}?schema=rivals", Postgres::shared().url()));
}

#[test]
fn rivals_resume_a_killed_run_on_redis() {
    check(&format!("{}?prefix=rivals", Redis::shared().url()));
}

/// A worker and a resume at the same instant, after the run's process was killed.
#[test]
fn a_worker_and_a_resume_do_not_both_go_on() {
    for round in 0..ROUNDS {
        let place = Place::new();
        place.write("agent.yaml", AGENT);
        place.ok(&["enqueue", "agent.yaml", "go", "--session", "both"]);
        let mut first = start(&place, &["worker", "--until-idle"]);
        until("a call", || lines(&place.path("ledger.txt")).len() > round % 2);
        first.kill().unwrap();
        first.wait().unwrap();
        let rivals = [start(&place, &["resume", "both"]), start(&place, &["worker", "--until-idle"])];
        let said: Vec<Said> = rivals.into_iter().map(end).collect();
        until("the end", || place.run(&["sessions", "show", "both", "--json"]).out.contains("\"succeeded\""));
        assert_each_once(&place, &said);
    }
}

/// An eviction is explicit, and says who was evicted.
#[test]
fn an_eviction_names_the_process() {
    let place = Place::new();
    let slow = AGENT.replace("sleep 0.05", "while [ ! -e go ]; do sleep 0.02; done");
    place.write("agent.yaml", &slow);
    let owner = start(&place, &["run", "agent.yaml", "go", "--session", "held"]);
    until("a call", || !lines(&place.path("ledger.txt")).is_empty());
    let refused = place.run(&["resume", "held"]);
    let process = format!("process {} on", owner.id());
    assert!(refused.code != 0 && refused.err.contains(&process), "{refused:#?}");
    let mut resume = place.command(&["resume", "held", "--take-over"]);
    let resume = resume.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the new owner's run", || place.run(&["log", "held", "--json"]).out.contains("\"evicted\""));
    place.write("go", "");
    let (evicted, resumed) = (end(owner), end(resume));
    assert_eq!(resumed.code, 0, "{resumed:#?}");
    assert!(resumed.err.contains("evicted") && resumed.err.contains(&process), "{resumed:#?}");
    assert_ne!(evicted.code, 0, "{evicted:#?}");
}
