//! Stores that fail under a run: killed, full, locked, restarted. What is said is true, and no call is
//! made twice; the ledger is written by the tools alone.

use std::process::{Child, Command, Stdio};

use rekindle_fixtures::{Postgres, Redis};
use rustix::process::Signal;

use crate::processes::{end, lines, signal, start, until};
use crate::support::{Place, Said, said};

/// An agent that pays when the file `go` is there.
const PAYER: &str = r#"
name: payer
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: pay, arguments: {what: rent}}]
      - text: the rent is paid
tools:
  - name: pay
    description: Pays.
    parameters: {what: string}
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> started.txt
      while [ ! -e go ]; do sleep 0.02; done
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> ledger.txt
      RESULT
    output: text
    in_doubt: POLICY
    check_command: [sh, -c, 'grep -qs "$0" ledger.txt && echo paid || exit 3', "${idempotency_key}"]
    timeout: 120s
"#;

fn payer(policy: &str, result: &str, options: &str) -> Place {
    let place = Place::new();
    let file = PAYER.replace("POLICY", policy).replace("RESULT", result);
    let file = if policy == "check" { file } else { file.replace("    check_command", "    # check_command") };
    place.write("payer.yaml", &format!("{file}{options}"));
    place
}

fn paid(place: &Place) -> usize {
    lines(&place.path("ledger.txt")).len()
}

/// Runs in `exit` mode and is killed while it pays; what is shown of the session then.
fn killed_in_exit_mode(policy: &str) -> (Place, serde_json::Value) {
    let place = payer(policy, "echo paid", "durability: exit\n");
    let mut run = start(&place, &["run", "payer.yaml", "pay", "--session", "rent"]);
    until("it pays", || lines(&place.path("started.txt")).len() == 1);
    run.kill().unwrap();
    run.wait().unwrap();
    // If the tool outlives its run it comes to its end; if it does not, the effect is missing.
    place.write("go", "");
    let shown = place.json(&["sessions", "show", "rent"]);
    (place, shown)
}

#[test]
fn a_call_under_way_is_on_record_in_exit_mode_when_its_process_is_killed() {
    let (place, shown) = killed_in_exit_mode("never");
    assert_eq!(shown["status"], "interrupted", "{shown}");
    let effects = shown["effects"].as_array().unwrap();
    assert!(effects.iter().any(|effect| effect["name"] == "pay" && effect["settled"] == false), "{shown}");
    let resumed = place.run(&["resume", "rent"]);
    assert_ne!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.err.contains("RK0022") && resumed.err.contains("its outcome was not recorded"), "{}", resumed.err);
    assert!(resumed.err.contains("rekindle settle rent"), "{}", resumed.err);
    assert_eq!(lines(&place.path("started.txt")).len(), 1, "it is not begun again");

    let (place, _) = killed_in_exit_mode("ask");
    let resumed = place.run(&["resume", "rent"]);
    assert_eq!(resumed.code, 4, "{}", resumed.err);
    assert_eq!(lines(&place.path("started.txt")).len(), 1, "it is not begun again");

    let (place, _) = killed_in_exit_mode("idempotent");
    assert_eq!(place.ok(&["resume", "rent"]).trim(), "the rent is paid");
    let keys = lines(&place.path("started.txt"));
    assert!(keys.len() == 2 && keys[0] == keys[1], "made again with the same key: {keys:?}");
}

/// Writes beyond so many KiB fail in it as they do on a full disk.
fn with_little_room(place: &Place, kib: usize, arguments: &str) -> Said {
    let run = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_rekindle"));
    let mut limited = Command::new("bash");
    limited.arg("-c").arg(format!(r#"trap "" XFSZ; ulimit -f {kib}; {run}"#));
    limited.current_dir(place.path("")).env_clear().stdin(Stdio::null());
    for (name, value) in place.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
        limited.env(name, value);
    }
    said(limited)
}

/// The call is named as one in doubt, by the run that was cut off and by the next, and nobody is said
/// to have died.
fn assert_doubt(place: &Place, told: &Said) {
    assert_eq!(told.code, 8, "{}", told.err);
    assert!(told.err.contains("on record up to main:"), "{}", told.err);
    assert!(told.err.contains("in doubt") && told.err.contains("`pay` (effect `"), "{}", told.err);
    assert!(told.err.contains("rekindle resume rent"), "{}", told.err);
    assert!(!told.err.contains("what was done is on record"), "{}", told.err);
    let resumed = place.run(&["resume", "rent"]);
    assert!(resumed.err.contains("RK0022") && resumed.err.contains("its outcome was not recorded"), "{}", resumed.err);
    assert!(!resumed.err.contains("died"), "{}", resumed.err);
    assert_eq!(paid(place), 1);
    let happened = place.run(&["settle", "rent", "--happened", "paid"]);
    assert_eq!(happened.code, 0, "{}", happened.err);
    assert_eq!(place.ok(&["resume", "rent"]).trim(), "the rent is paid");
    assert_eq!(paid(place), 1);
}

#[test]
fn a_disk_that_is_full_when_a_call_ends_leaves_it_in_doubt_and_says_so() {
    let place = payer("never", "head -c 190000 /dev/urandom | base64 -w0", "");
    place.write("go", "");
    let told = with_little_room(&place, 250, "run payer.yaml pay --session rent");
    assert_eq!(paid(&place), 1, "{}", told.err);
    assert_doubt(&place, &told);
}

/// A run whose call is under way, and a connection of somebody else that holds the write lock.
fn locked(place: &Place, lease: &str, told: Stdio) -> (Child, rusqlite::Connection) {
    let words = ["run", "payer.yaml", "pay", "--session", "rent", "-c", &format!("lease={lease}")];
    let run = place.command(&words).stdout(Stdio::piped()).stderr(told).spawn().unwrap();
    until("it pays", || lines(&place.path("started.txt")).len() == 1);
    let other = rusqlite::Connection::open(place.path("rekindle.db")).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    place.write("go", "");
    (run, other)
}

#[test]
fn a_database_that_is_locked_for_longer_than_the_lease_leaves_a_call_in_doubt_and_says_who_holds_it() {
    let place = payer("never", "echo paid", "");
    let (run, other) = locked(&place, "2s", Stdio::piped());
    let told = end(run);
    other.execute_batch("ROLLBACK").unwrap();
    if cfg!(target_os = "linux") {
        let holder = format!("process {}", std::process::id());
        assert!(told.err.contains(&holder), "the holder is named: {}", told.err);
    }
    assert_doubt(&place, &told);
}

#[test]
fn a_database_that_is_locked_for_less_than_the_lease_is_waited_for() {
    let place = payer("never", "echo paid", "");
    let told = std::fs::File::create(place.path("told.txt")).unwrap();
    let (mut run, other) = locked(&place, "600s", told.into());
    let told = || std::fs::read_to_string(place.path("told.txt")).unwrap();
    until("it is told that the store is away", || told().contains("the store is away, trying again"));
    other.execute_batch("ROLLBACK").unwrap();
    assert!(run.wait().unwrap().success(), "{}", told());
    assert!(told().contains("the store is back"), "{}", told());
    assert_eq!(paid(&place), 1);
}

/// Kills the server under a run whose call is under way, lets the call end, and starts it again.
fn outlives(store: &str, kill: impl Fn(), restart: impl Fn()) {
    for policy in ["never", "ask", "check", "idempotent"] {
        let place = payer(policy, "echo paid", "");
        let words = ["run", "payer.yaml", "pay", "--session", policy, "--store", store, "-c", "lease=600s"];
        let run = start(&place, &words);
        until("it pays", || lines(&place.path("started.txt")).len() == 1);
        kill();
        place.write("go", "");
        until("it has paid", || paid(&place) == 1);
        restart();
        let told = end(run);
        assert_eq!((told.code, told.out.trim()), (0, "the rent is paid"), "{policy}: {}", told.err);
        assert_eq!((paid(&place), lines(&place.path("started.txt")).len()), (1, 1), "{policy}: once");
        place.ok(&["verify", policy, "--store", store]);
    }
}

#[test]
fn a_run_outlives_a_restart_of_postgres() {
    let server = Postgres::start(&["fsync=off"]);
    outlives(&server.url(), || server.kill(), || server.restart());
}

#[test]
fn a_run_outlives_a_restart_of_redis() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    outlives(&server.url(), || server.kill(), || server.restart());
}

/// Pays sixteen times, one after the other.
const BUSY: &str = r#"
name: busy
same_call_limit: 0
model:
  provider: scripted
  script:
    name: scripted
    turns: [CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, CALL, {text: all is paid}]
tools:
  - name: pay
    description: Pays.
    shell: echo "$REKINDLE_IDEMPOTENCY_KEY" >> ledger.txt
    output: text
    in_doubt: never
"#;

/// Restarts the server again and again while calls follow each other: every call is made once.
fn outlives_many(store: &str, restart: impl Fn(usize)) {
    let place = Place::new();
    place.write("busy.yaml", &BUSY.replace("CALL", "{calls: [{name: pay}]}"));
    let run = start(&place, &["run", "busy.yaml", "pay", "--session", "busy", "--store", store, "-c", "lease=600s"]);
    for round in 0..4 {
        until("it gets on", || paid(&place) > round * 4);
        restart(round);
    }
    let told = end(run);
    assert_eq!((told.code, told.out.trim()), (0, "all is paid"), "{}", told.err);
    let mut keys = lines(&place.path("ledger.txt"));
    assert_eq!(keys.len(), 16, "{}", told.err);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 16, "each call once");
    place.ok(&["verify", "busy", "--store", store]);
}

#[test]
fn a_run_outlives_restarts_of_postgres_at_any_moment() {
    let server = Postgres::start(&["fsync=off"]);
    outlives_many(&server.url(), |round| {
        if round % 2 == 0 {
            server.kill()
        } else {
            server.stop()
        }
        server.restart();
    });
}

#[test]
fn a_run_outlives_restarts_of_redis_at_any_moment() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    outlives_many(&server.url(), |round| {
        if round % 2 == 0 {
            server.kill()
        } else {
            server.stop()
        }
        server.restart();
    });
}

#[test]
fn an_outage_and_its_end_are_told() {
    let server = Postgres::start(&["fsync=off"]);
    let place = payer("never", "echo paid", "");
    let store = server.url();
    let words = ["run", "payer.yaml", "pay", "--session", "rent", "--store", &store, "-c", "lease=600s"];
    let mut command = place.command(&words);
    let told = std::fs::File::create(place.path("told.txt")).unwrap();
    let run = command.stdout(Stdio::piped()).stderr(told).spawn().unwrap();
    until("it pays", || lines(&place.path("started.txt")).len() == 1);
    server.stop();
    place.write("go", "");
    let told = || std::fs::read_to_string(place.path("told.txt")).unwrap();
    until("it is told that the store is away", || told().contains("the store is away, trying again"));
    assert!(!told().contains("the store is back"), "{}", told());
    server.restart();
    let ended = end(run);
    assert_eq!((ended.code, ended.out.trim()), (0, "the rent is paid"), "{}", told());
    assert_eq!(told().matches("the store is away").count(), 1, "{}", told());
    assert_eq!(told().matches("the store is back").count(), 1, "{}", told());
    assert!(!told().contains(Postgres::PASSWORD), "{}", told());
}

#[test]
fn a_run_can_be_stopped_while_its_store_is_away() {
    let server = Postgres::start(&["fsync=off"]);
    let place = payer("never", "echo paid", "");
    let words = ["run", "payer.yaml", "pay", "--session", "rent", "--store", &server.url(), "-c", "lease=600s"];
    let run = start(&place, &words);
    until("it pays", || lines(&place.path("started.txt")).len() == 1);
    server.kill();
    place.write("go", "");
    until("it has paid", || paid(&place) == 1);
    signal(&run, Signal::INT);
    let told = end(run);
    assert_eq!(told.code, 8, "{}", told.err);
    assert!(told.err.contains("in doubt") && told.err.contains("rekindle resume rent"), "{}", told.err);
}
