//! Workers as processes that share a store: killed, frozen, told to stop, and out of work. Tools write
//! a ledger themselves. Everything works over the URL of a store, so that any store can be put below.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::processes::{end, lines, signal, until};
use crate::support::{Place, Said, said};

/// An agent that books one thing at once, another when the file `go` is there, and answers. A booking
/// is made once for each key, however often its tool is called.
const CLERK: &str = r#"
name: clerk
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: book, arguments: {what: one, wait: no}}]
      - calls: [{name: book, arguments: {what: two, wait: go}}]
      - text: both are booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string, wait: string}
    shell: |
      echo "$REKINDLE_ARG_WHAT" >> started.txt
      while [ "$REKINDLE_ARG_WAIT" = go ] && [ ! -e go ]; do sleep 0.02; done
      flock ledger.lock sh -c 'grep -qs "^$REKINDLE_IDEMPOTENCY_KEY " ledger.txt || echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt'
      echo booked
    output: text
    writes: true
    in_doubt: idempotent
    timeout: 60s
"#;

/// An agent whose tool kills whoever runs it.
const POISON: &str = r#"
name: poison
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: bite, arguments: {}}]
      - text: never said
tools:
  - name: bite
    description: Bites.
    shell: |
      echo bitten >> started.txt
      kill -9 $PPID
    output: text
    in_doubt: idempotent
"#;

/// What was booked, in the order it was. A booking is one write, so that a tool that is killed has made
/// it or not.
pub fn booked(place: &Place) -> Vec<String> {
    let entries = lines(&place.path("ledger.txt"));
    entries.iter().map(|entry| entry.split_once(' ').unwrap().1.to_owned()).collect()
}

/// A place whose processes share a store.
pub struct Shared {
    pub place: Place,
    store: String,
}

impl Shared {
    /// Over one SQLite file.
    fn sqlite() -> Self {
        let place = Place::new();
        let store = format!("sqlite:{}", place.path("shared.db").display());
        Self::over(place, store)
    }

    pub fn over(place: Place, store: String) -> Self {
        place.write("clerk.yaml", CLERK);
        place.write("poison.yaml", POISON);
        Self { place, store }
    }

    fn words<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        arguments.iter().copied().chain(["--store", self.store.as_str(), "-c", "lease=2s"]).collect()
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.place.command(&self.words(arguments)))
    }

    pub fn ok(&self, arguments: &[&str]) -> Said {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}\n{}", said.out, said.err);
        said
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments).out).unwrap()
    }

    pub fn worker(&self) -> Child {
        self.worker_with(&[])
    }

    pub fn worker_with(&self, words: &[&str]) -> Child {
        let words: Vec<&str> = ["worker"].iter().chain(words).copied().collect();
        let mut command = self.place.command(&self.words(&words));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn status(&self, session: &str) -> String {
        let shown = self.json(&["sessions", "show", session]);
        shown["status"].as_str().unwrap().to_owned()
    }

    pub fn jobs(&self) -> Vec<Value> {
        self.json(&["queues", "--jobs"])["jobs"].as_array().unwrap().clone()
    }

    pub fn until_started(&self, calls: usize) {
        until("the call is under way", || lines(&self.place.path("started.txt")).len() >= calls);
    }

    /// What was booked, which must be each once.
    pub fn assert_booked(&self) {
        let mut booked = booked(&self.place);
        booked.sort();
        assert_eq!(booked, ["one", "two"]);
        let calls = lines(&self.place.path("started.txt"));
        assert_eq!(
            calls.iter().filter(|call| *call == "one").count(),
            1,
            "a call that ended was made again: {calls:?}"
        );
        assert_eq!(self.status("trip"), "succeeded");
        self.ok(&["verify", "trip"]);
    }
}

#[test]
fn another_worker_goes_on_when_one_is_killed() {
    another_goes_on_when_one_is_killed(&Shared::sqlite());
}

/// Two workers, of which one is killed in a tool.
pub fn another_goes_on_when_one_is_killed(shared: &Shared) {
    let mut first = shared.worker();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.until_started(2);
    let second = shared.worker();
    until("both are on the list", || shared.json(&["workers"])["workers"].as_array().unwrap().len() == 2);
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    shared.place.write("go", "");
    until("the other is done", || shared.status("trip") == "succeeded");
    until("the job is gone", || shared.jobs().is_empty());
    shared.assert_booked();
    signal(&second, Signal::TERM);
    assert_eq!(end(second).code, 0);
    until("the dead one is off the list", || shared.json(&["workers"])["workers"].as_array().unwrap().is_empty());
}

#[test]
fn a_worker_that_was_frozen_past_its_lease_writes_nothing_more() {
    let shared = Shared::sqlite();
    let first = shared.worker();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.until_started(2);
    signal(&first, Signal::STOP);
    let second = shared.worker();
    // The second has taken over once it makes the call again.
    shared.until_started(3);
    shared.place.write("go", "");
    until("the other is done", || shared.status("trip") == "succeeded");
    let before = shared.json(&["sessions", "show", "trip"]);
    signal(&first, Signal::CONT);
    signal(&first, Signal::TERM);
    let told = end(first);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("lost") && !told.err.contains("succeeded"), "{}", told.err);
    assert_eq!(shared.json(&["sessions", "show", "trip"])["branches"], before["branches"]);
    signal(&second, Signal::TERM);
    assert_eq!(end(second).code, 0);
    shared.assert_booked();
}

#[test]
fn sigterm_drains_and_another_worker_goes_on_at_once() {
    let shared = Shared::sqlite();
    let worker = shared.worker();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.until_started(2);
    signal(&worker, Signal::TERM);
    until("it drains", || shared.json(&["workers"])["workers"][0]["draining"] == true);
    shared.place.write("go", "");
    let told = end(worker);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("SIGTERM: draining") && told.err.contains("stopped: 1 job"), "{}", told.err);
    assert_eq!(shared.status("trip"), "paused");
    let job = shared.jobs().remove(0);
    assert_eq!((job["state"].as_str(), job["attempts"].as_u64()), (Some("ready"), Some(0)), "{job}");
    shared.ok(&["worker", "--until-idle"]);
    shared.assert_booked();
}

#[test]
fn a_second_signal_does_not_wait_for_calls() {
    let shared = Shared::sqlite();
    let worker = shared.worker();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.until_started(2);
    signal(&worker, Signal::TERM);
    until("it drains", || shared.json(&["workers"])["workers"][0]["draining"] == true);
    signal(&worker, Signal::TERM);
    let told = end(worker);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("at once"), "{}", told.err);
    shared.place.write("go", "");
    shared.ok(&["worker", "--until-idle"]);
    shared.assert_booked();
}

#[test]
fn a_session_that_kills_its_workers_is_given_up() {
    let shared = Shared::sqlite();
    shared.ok(&["enqueue", "poison.yaml", "bite", "--session", "snake"]);
    let worker = || shared.run(&["worker", "--until-idle", "--attempts", "2"]);
    assert_eq!(worker().code, -1, "the first is killed");
    assert_eq!(worker().code, -1, "and the second");
    let third = worker();
    assert_eq!(third.code, 0, "{}", third.err);
    assert!(third.err.contains("gave up snake: gave up after 2 attempts without progress"), "{}", third.err);
    assert_eq!(shared.status("snake"), "failed");
    assert_eq!(lines(&shared.place.path("started.txt")).len(), 2);
    assert!(shared.jobs().is_empty());
    let reason = shared.json(&["sessions", "show", "snake"])["run"]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("gave up after 2 attempts"), "{reason}");
}

#[test]
fn an_answer_is_taken_up_by_a_worker() {
    let shared = Shared::sqlite();
    let approved = CLERK.replace("writes: true", "writes: true\n    approval: true");
    shared.place.write("asking.yaml", &approved);
    shared.place.write("go", "");
    shared.ok(&["enqueue", "asking.yaml", "book", "--session", "trip"]);
    for _ in 0..2 {
        shared.ok(&["worker", "--until-idle"]);
        assert_eq!(shared.jobs()[0]["state"], "parked");
        let told = shared.ok(&["answer", "trip", "--approve"]);
        assert!(told.err.contains("a worker of the queue default goes on with it"), "{}", told.err);
        assert_eq!(shared.jobs()[0]["state"], "ready");
    }
    shared.ok(&["worker", "--until-idle"]);
    shared.assert_booked();
    let told = shared.ok(&["send", "trip", "and now?"]);
    assert!(told.err.contains("resume trip"), "{}", told.err);
}

#[test]
fn a_worker_says_what_it_does() {
    let shared = Shared::sqlite();
    shared.place.write("go", "");
    let enqueued = shared.json(&["enqueue", "clerk.yaml", "book", "--session", "trip", "--priority", "-3"]);
    assert_eq!((enqueued["created"].as_bool(), enqueued["job"]["priority"].as_i64()), (Some(true), Some(-3)));
    assert_eq!(shared.json(&["enqueue", "clerk.yaml", "book", "--session", "trip"])["repeated"], true);
    assert_eq!(shared.json(&["queues"])["queues"][0]["ready"], 1);
    let told = shared.ok(&["worker", "clerk.yaml", "--until-idle", "--json"]);
    let events: Vec<Value> = told.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["started", "claimed", "ran", "done", "stopped", "report"]);
    assert_eq!(events[5]["succeeded"], 1);
    shared.assert_booked();
    // Later, and out again.
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "later", "--in", "1h", "--queue", "slow", "--key", "c"]);
    assert_eq!(shared.jobs()[0]["state"], "scheduled");
    assert_eq!(shared.json(&["queues", "slow"])["jobs"][0]["key"]["key"], "c");
    assert_eq!(shared.json(&["dequeue", "later"])["removed"], true);
    assert_eq!(shared.json(&["dequeue", "later"])["removed"], false);
}

#[test]
fn a_worker_takes_the_jobs_of_its_files_and_queues_alone() {
    let shared = Shared::sqlite();
    shared.place.write("go", "");
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip", "--queue", "nightly"]);
    shared.ok(&["worker", "poison.yaml", "--until-idle"]);
    shared.ok(&["worker", "--queue", "default", "--until-idle"]);
    assert_eq!(shared.jobs()[0]["attempts"], 0, "nobody took it");
    shared.ok(&["worker", "clerk.yaml", "--queue", "nightly", "--until-idle"]);
    shared.assert_booked();
}

#[test]
fn bad_input_is_refused_with_what_helps() {
    let shared = Shared::sqlite();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.place.write("broken.yaml", "name: [");
    shared.place.write("later.yaml", "nothing");
    let check = |arguments: &[&str], code: i32, words: &str| {
        let said = shared.run(arguments);
        assert_eq!(said.code, code, "{arguments:?}\n{}\n{}", said.out, said.err);
        assert!(said.err.contains(words), "{arguments:?}\n{}", said.err);
    };
    check(&["worker", "--concurrency", "0"], 2, "nothing would ever run");
    check(&["worker", "--concurrency=-1"], 2, "--concurrency");
    check(&["worker", "--agent-limit", "clerk"], 2, "NAME=N");
    check(&["worker", "--agent-limit", "clerk=0"], 2, "at least 1");
    check(&["worker", "broken.yaml"], 2, "broken.yaml");
    check(&["worker", "clerk.yaml", "clerk.yaml"], 2, "two works named `clerk`");
    check(&["enqueue", "missing.yaml", "x"], 2, "missing.yaml");
    check(&["enqueue", "nobody"], 3, "no session");
    check(&["enqueue", "clerk.yaml"], 2, "must be told something");
    check(&["enqueue", "clerk.yaml", "x", "--input", "a=b"], 2, "takes text and no values");
    check(&["enqueue", "clerk.yaml", "x", "--at", "tomorrow"], 2, "is no time");
    check(&["enqueue", "clerk.yaml", "x", "--key", "c", "--key-limit", "0"], 2, "never let the job run");
    check(&["enqueue", "trip", "--title", "T"], 2, "--title is for a new session");
    check(&["queues", "--state", "lost"], 2, "is no state of a job");
    check(&["queues", "--jobs", "-n", "0"], 2, "a page has");
    check(&["dequeue", "nobody"], 3, "no session");
    let files = |arguments: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--store", "file:./files"]).collect();
        shared.place.run(&arguments)
    };
    for arguments in [&["enqueue", "clerk.yaml", "x"][..], &["worker"]] {
        let said = files(arguments);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("keeps no queue") && said.err.contains("sqlite:"), "{}", said.err);
    }
}
