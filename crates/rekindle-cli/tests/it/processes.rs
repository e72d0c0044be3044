//! What happens to a run when its process is asked to stop, cut off, or not alone: real processes,
//! real signals, and a ledger that the tools write themselves.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, Said, said};

/// An agent that makes three slow calls at once, then one more, then answers. A call waits until the
/// file `go` is there, so that nothing depends on how fast a machine is.
const WORKER: &str = r#"
name: worker
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls:
          - {name: book, arguments: {what: one}}
          - {name: book, arguments: {what: two}}
          - {name: book, arguments: {what: three}}
      - calls: [{name: book, arguments: {what: four}}]
      - text: all four are booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: |
      echo "$REKINDLE_ARG_WHAT" >> started.txt
      while [ ! -e go ]; do sleep 0.02; done
      echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt
      echo booked
    output: text
    writes: true
    in_doubt: idempotent
    timeout: 60s
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("worker.yaml", WORKER);
    place
}

pub fn start(place: &Place, arguments: &[&str]) -> Child {
    place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until something is so; a minute is more than any machine needs.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

pub fn end(child: Child) -> Said {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// The exact line a person is told to type.
pub fn resume_line(said: &Said) -> Vec<String> {
    let line = said
        .err
        .lines()
        .find_map(|line| line.split_once("go on with: rekindle "))
        .unwrap_or_else(|| panic!("{}", said.err))
        .1;
    line.split_whitespace().map(str::to_owned).collect()
}

/// Every booking was made once: once for each of its keys.
fn assert_booked_once(place: &Place) {
    let booked = lines(&place.path("ledger.txt"));
    let what: Vec<&str> = booked.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    let different: HashSet<&str> = what.iter().copied().collect();
    assert_eq!((what.len(), different.len()), (4, 4), "{booked:?}");
}

fn pauses_safely(stop: Signal) {
    let place = place();
    let child = start(&place, &["run", "worker.yaml", "book all"]);
    until("the first calls", || lines(&place.path("started.txt")).len() == 3);
    signal(&child, stop);
    place.write("go", "");
    let said = end(child);
    assert_eq!(said.code, 130, "{}", said.err);
    assert!(said.err.contains("pausing"), "{}", said.err);
    // Calls under way were let end, and nothing was begun any more.
    assert_eq!(lines(&place.path("ledger.txt")).len(), 3);
    let line = resume_line(&said);
    let resumed = place.run(&line.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((resumed.code, resumed.out.trim()), (0, "all four are booked"), "{}", resumed.err);
    assert_booked_once(&place);
}

#[test]
fn ctrl_c_pauses_and_the_printed_line_resumes() {
    pauses_safely(Signal::INT);
}

#[test]
fn sigterm_pauses_and_the_printed_line_resumes() {
    pauses_safely(Signal::TERM);
}

#[test]
fn a_second_signal_stops_calls_under_way() {
    let place = place();
    let child = start(&place, &["run", "worker.yaml", "book all"]);
    until("the first calls", || lines(&place.path("started.txt")).len() == 3);
    signal(&child, Signal::INT);
    let session = || place.json(&["sessions", "list"])["sessions"][0]["status"].clone();
    assert_eq!(session(), "running");
    signal(&child, Signal::INT);
    let said = end(child);
    assert_eq!(said.code, 130, "{}", said.err);
    assert_eq!(lines(&place.path("ledger.txt")).len(), 0);
    assert_eq!(session(), "paused");
    place.write("go", "");
    assert_eq!(place.ok(&["resume", "@"]).trim(), "all four are booked");
    assert_booked_once(&place);
}

#[test]
fn a_closed_terminal_pauses_the_run() {
    let place = place();
    let mut child = start(&place, &["run", "worker.yaml", "book all"]);
    until("the first calls", || lines(&place.path("started.txt")).len() == 3);
    // Whatever it says from now on fails to be written.
    drop((child.stdout.take(), child.stderr.take()));
    signal(&child, Signal::HUP);
    place.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.ok(&["resume", "@"]).trim(), "all four are booked");
    assert_booked_once(&place);
}

#[test]
fn sigkill_is_survived_and_nobody_waits_for_the_lease() {
    let place = place();
    let mut child = start(&place, &["run", "worker.yaml", "book all", "--session", "killed"]);
    until("the first calls", || lines(&place.path("started.txt")).len() == 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = place.json(&["sessions", "list"]);
    assert_eq!(shown["sessions"][0]["status"], "interrupted", "{shown}");
    // The commands it had started ended with it, so nothing is booked behind its back.
    place.write("go", "");
    let resumed = place.run(&["resume", "killed"]);
    assert_eq!((resumed.code, resumed.out.trim()), (0, "all four are booked"), "{}", resumed.err);
    assert_booked_once(&place);
}

#[test]
fn a_second_process_is_turned_away_and_can_ask_for_a_pause() {
    let place = place();
    let child = start(&place, &["run", "worker.yaml", "book all", "--session", "mine"]);
    until("the first calls", || lines(&place.path("started.txt")).len() == 3);
    let second = place.run(&["resume", "mine"]);
    assert_eq!(second.code, 6, "{}", second.err);
    assert!(second.err.contains("RK0007") && second.err.contains("rekindle pause mine"), "{}", second.err);
    let turn = place.run(&["run", "worker.yaml", "--continue", "mine", "more"]);
    assert_eq!(turn.code, 6, "{}", turn.err);
    place.ok(&["pause", "mine", "--reason", "lunch"]);
    until("the run to hear of it", || place.json(&["sessions", "show", "mine"])["unread"] == 0);
    place.write("go", "");
    let said = end(child);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("rekindle resume mine"), "{}", said.err);
    assert_eq!(place.ok(&["resume", "mine"]).trim(), "all four are booked");
    assert_booked_once(&place);
}

/// Books once, then fills the store with what cannot be compressed.
const FILLING: &str = r#"
name: filling
same_call_limit: 0
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: book, arguments: {what: one}}]
      - calls: [BIG, BIG, BIG, BIG, BIG, BIG, BIG, BIG, BIG, BIG, BIG, BIG]
      - text: the one is booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt
    in_doubt: never
  - name: big
    description: Says much.
    shell: head -c 180000 /dev/urandom | base64 -w0
    output: text
    writes: false
"#;

#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    let place = Place::new();
    place.write("filling.yaml", &FILLING.replace("BIG", "{name: big}"));
    place.talk("before", "hello", "hello");
    let run = format!("exec {} run filling.yaml 'book it' --session full", env!("CARGO_BIN_EXE_rekindle"));
    let mut limited = std::process::Command::new("bash");
    // Writes beyond the limit fail as they do on a full disk.
    limited.arg("-c").arg(format!(r#"trap "" XFSZ; ulimit -f 1500; {run}"#));
    limited.current_dir(place.path("")).env_clear().stdin(Stdio::null());
    for (name, value) in place.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
        limited.env(name, value);
    }
    let said = said(limited);
    assert_eq!(said.code, 8, "{}", said.err);
    assert!(said.err.contains("RK0017") || said.err.contains("RK0016"), "{}", said.err);
    assert!(!said.err.contains("panicked"), "{}", said.err);
    assert_eq!(lines(&place.path("ledger.txt")).len(), 1);
    // With room again it goes on, and what was booked stays booked.
    place.ok(&["verify", "--all"]);
    assert_eq!(place.ok(&["resume", "full"]).trim(), "the one is booked");
    assert_eq!(lines(&place.path("ledger.txt")).len(), 1);
}

#[test]
fn a_folder_nobody_may_write_to_is_said() {
    let place = place();
    place.write("locked/here", "");
    let mut permissions = std::fs::metadata(place.path("locked")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o555);
    std::fs::set_permissions(place.path("locked"), permissions).unwrap();
    if File::create(place.path("locked/probe")).is_ok() {
        // The superuser may write everywhere but here.
        let said = place.run(&["run", "worker.yaml", "book", "--store", "sqlite:/proc/rekindle.db"]);
        assert_eq!(said.code, 8, "{}", said.err);
        assert!(said.err.contains("/proc/rekindle.db"), "{}", said.err);
        return;
    }
    let said = place.run(&["run", "worker.yaml", "book", "--store", "sqlite:locked/rekindle.db"]);
    assert_eq!(said.code, 8, "{}", said.err);
    assert!(said.err.contains("locked/rekindle.db"), "{}", said.err);
}

#[test]
fn whoever_reads_may_go_away() {
    let place = Place::new();
    for number in 0..50 {
        place.talk(&format!("talk-{number}"), "hello", "hello");
    }
    for arguments in
        [&["sessions", "list", "--all"][..], &["sessions", "list", "--all", "--json"], &["explain"], &["--help"]]
    {
        let mut child = start(&place, arguments);
        drop(child.stdout.take());
        let said = end(child);
        assert!(!said.err.contains("panicked"), "{arguments:?}: {}", said.err);
    }
}

/// A cancel that races with the end of a run says what the journal says in the end.
#[test]
fn a_cancel_at_the_end_of_a_run_tells_the_truth() {
    let mut seen = HashSet::new();
    for round in 0..10u64 {
        let place = place();
        let child = start(&place, &["run", "worker.yaml", "book all", "--session", "s"]);
        until("the first calls", || lines(&place.path("started.txt")).len() == 3);
        // The earlier the calls may end, the more of the run is over when it is cancelled.
        place.write("go", "");
        std::thread::sleep(Duration::from_millis(round * 30));
        let said = place.run(&["cancel", "s", "--yes", "--wait", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        let ended = end(child);
        let status = place.json(&["sessions", "show", "s"])["status"].clone();
        let context = format!("{told} {status} {ended:?}");
        match told["result"].as_str() {
            Some("done") => assert_eq!((said.code, &status, ended.code), (0, &"cancelled".into(), 5), "{context}"),
            Some("ended") => assert_eq!((said.code, &status, ended.code), (6, &"succeeded".into(), 0), "{context}"),
            _ => panic!("it is certain: {context}"),
        }
        assert_eq!(told["status"], status, "{context}");
        seen.insert(told["result"].to_string());
        // Whatever came of it, a later turn is not stopped by it.
        let more = place.run(&["run", "worker.yaml", "--continue", "s", "again"]);
        assert_ne!(more.code, 5, "{context} {more:?}");
    }
    assert!(!seen.is_empty());
}
