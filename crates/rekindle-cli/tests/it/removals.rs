//! Removals that are killed, and what clears up behind them: the real binary, a real SIGKILL, an S3 that sees every
//! request.

use std::process::Stdio;
use std::sync::mpsc;

use rekindle_fixtures::{S3, S3Fault, S3Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::end;
use crate::support::Place;

const AGENT: &str = r#"
name: echo
model: {provider: scripted, name: script, script: {turns: [{text: done}]}}
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    place
}

fn make(place: &Place, session: &str, store: &str) {
    place.ok(&["run", "agent.yaml", "go", "--session", session, "--store", store, "--quiet"]);
}

/// Runs a command and kills it at the first request that `at` picks, carried out or not. Returns whether it was killed.
fn killed(
    place: &Place,
    server: &S3,
    arguments: &[&str],
    carried_out: bool,
    mut at: impl FnMut(&S3Request) -> bool + Send + 'static,
) -> bool {
    let (tell, told) = mpsc::channel::<Pid>();
    let (kill, was_killed) = mpsc::channel::<()>();
    let mut dead = false;
    server.set_faults(move |request| {
        if !dead && at(request) {
            kill_process(told.recv().unwrap(), Signal::KILL).unwrap();
            kill.send(()).unwrap();
            dead = true;
            return if carried_out { S3Fault::CutBehind } else { S3Fault::Cut };
        }
        S3Fault::None
    });
    let child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    tell.send(Pid::from_child(&child)).unwrap();
    end(child);
    server.heal();
    was_killed.try_recv().is_ok()
}

/// The objects of a session. The marks of a killed process are not among them: they stay until no process may rely on
/// them, and go with a list.
fn objects_of(server: &S3, session: &str) -> Vec<String> {
    server.keys("b").into_iter().filter(|key| key.contains(session) && !key.starts_with("marks/")).collect()
}

#[test]
fn a_removal_that_was_killed_is_finished_by_repeating_it() {
    let (place, server) = (place(), S3::start());
    let store = server.url("b");
    make(&place, "other", &store);
    let others: Vec<String> = server.keys("b").into_iter().filter(|key| key.contains("other")).collect();
    let (mut number, mut finished) = (1, 0);
    loop {
        let session = format!("s{number}");
        make(&place, &session, &store);
        let arguments = ["sessions", "rm", &session, "--yes", "--store", &store];
        let mut seen = 0;
        let killed = killed(&place, &server, &arguments, number % 2 == 0, move |_| {
            seen += 1;
            seen == number
        });
        let again = place.run(&arguments);
        let gone_for_good = again.code == 3 && again.err.contains("there is no session");
        assert!(again.code == 0 || gone_for_good, "request {number}: {again:#?}");
        finished += usize::from(again.out.contains("was removed before; what was left over is cleared now"));
        let left: Vec<String> = objects_of(&server, &session);
        assert!(left.len() == 1 && left[0].contains("/heads/"), "request {number}: {left:?}");
        if !killed {
            break;
        }
        number += 3;
    }
    assert!(finished > 2, "{finished} of {number}");
    let now: Vec<String> = server.keys("b").into_iter().filter(|key| key.contains("other")).collect();
    assert_eq!(now, others);
    let garbage = place.json(&["gc", "--older-than", "0s", "--store", &store]);
    let found = garbage["found"].as_array().unwrap();
    assert!(found.iter().all(|found| found["kind"] == "temporary"), "{garbage:#}");
}

#[test]
fn the_doctor_and_the_garbage_collection_finish_it_too() {
    let (place, server) = (place(), S3::start());
    let store = server.url("b");
    for (session, command) in
        [("one", &["doctor", "--repair"][..]), ("two", &["gc", "--apply", "--older-than", "0s"][..])]
    {
        make(&place, session, &store);
        let removal = ["sessions", "rm", session, "--yes", "--store", &store];
        let mut removed = false;
        let killed = killed(&place, &server, &removal, false, move |request| {
            let deletes = removed && request.method.starts_with("DELETE");
            removed |= request.method == "PUT" && request.key.contains("/log/");
            deletes
        });
        let objects = || objects_of(&server, session).len();
        assert!(killed);
        assert!(objects() > 1, "{:?}", server.keys("b"));
        let dry = place.run(&["gc", "--store", &store]);
        assert!(dry.out.contains("removed session") && dry.err.contains("--apply"), "{dry:#?}");
        assert!(objects() > 1, "a dry run changes nothing");
        let arguments: Vec<&str> = command.iter().copied().chain(["--store", &store]).collect();
        place.ok(&arguments);
        assert_eq!(objects(), 1, "{command:?}: {:?}", server.keys("b"));
    }
    let garbage = place.json(&["gc", "--older-than", "0s", "--store", &store]);
    assert!(garbage["found"].as_array().unwrap().is_empty(), "{garbage:#}");
}

#[test]
fn the_doctor_notices_removals_that_stopped() {
    let place = place();
    let store = "objects:./sessions";
    make(&place, "a", store);
    let log = place.path("sessions/sessions/default/a/log");
    let change = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let bytes = std::fs::read(&change).unwrap();
    place.ok(&["sessions", "rm", "a", "--yes", "--store", store]);
    // As if the process had died before it deleted this one.
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(&change, bytes).unwrap();
    let told = place.run(&["doctor", "--store", store]);
    assert!(told.out.contains("! removals") && told.out.contains("stopped halfway"), "{told:#?}");
    let repaired = place.run(&["doctor", "--repair", "--store", store]);
    assert!(repaired.out.contains("✓ removals") && repaired.out.contains("1 removal finished"), "{repaired:#?}");
    assert!(!change.exists());
}

#[test]
fn a_session_that_cannot_be_read_can_be_removed() {
    for (store, files) in [
        ("objects:./sessions", &["sessions/sessions/default/a/heads"][..]),
        ("file:./files", &["files/sessions/default/a/session.json", "files/sessions/default/a/session.copy"]),
    ] {
        let place = place();
        make(&place, "a", store);
        make(&place, "b", store);
        for file in files {
            let path = place.path(file);
            let path = match path.is_dir() {
                true => std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).max().unwrap(),
                false => path,
            };
            std::fs::write(path, "nonsense").unwrap();
        }
        assert_eq!(place.run(&["sessions", "show", "a", "--store", store]).code, 7, "{store}");
        let receipt = place.run(&["sessions", "rm", "a", "--yes", "--receipt", "r.json", "--store", store]);
        assert!(receipt.code == 7 && receipt.err.contains("without a receipt"), "{store}: {receipt:#?}");
        let removed = place.run(&["sessions", "rm", "a", "--yes", "--store", store]);
        assert!(removed.code == 0 && removed.err.contains("could not be read"), "{store}: {removed:#?}");
        assert_eq!(place.run(&["sessions", "show", "a", "--store", store]).code, 3, "{store}");
        let listed = place.json(&["sessions", "--store", store]);
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{store}: {listed:#}");
        place.ok(&["verify", "--all", "--store", store]);
    }
}

#[test]
fn what_is_removed_is_named_by_its_whole_id() {
    let place = Place::new();
    place.turns("trip-42", 1);
    place.turns("tricycle", 1);
    let beginning = place.run(&["sessions", "rm", "trip", "--yes"]);
    assert_eq!(beginning.code, 3, "{beginning:#?}");
    assert!(beginning.err.contains("whole id") && beginning.err.contains("trip-42"), "{beginning:#?}");
    let latest = place.run(&["sessions", "rm", "@", "--yes"]);
    assert_eq!(latest.code, 2, "{latest:#?}");
    assert!(latest.err.contains("whole id") && latest.err.contains("tricycle"), "{latest:#?}");
    place.ok(&["sessions", "rm", "trip-42", "--yes"]);
    // Repeated, it removes no other one.
    assert_eq!(place.run(&["sessions", "rm", "tri", "--yes"]).code, 3);
    let archived = place.run(&["archive", "tri", "--to", "objects:./cold"]);
    assert_eq!(archived.code, 3, "{archived:#?}");
    place.ok(&["sessions", "show", "tricycle"]);
}

#[test]
fn archiving_that_stopped_goes_on_with_what_is_left() {
    let place = Place::new();
    for session in ["s0", "s1", "s01"] {
        place.turns(session, 1);
    }
    let to = ["--to", "objects:./cold"];
    place.ok(&["archive", "s0", to[0], to[1]]);
    let again = place.json(&["archive", "s0", "s1", to[0], to[1]]);
    assert_eq!(again["archived"], 2, "{again:#}");
    assert_eq!(
        (&again["sessions"][0]["before"], &again["sessions"][1]["before"]),
        (&true.into(), &false.into()),
        "{again:#}"
    );
    assert_eq!(place.run(&["sessions", "show", "s1"]).code, 3);
    place.ok(&["sessions", "show", "s01"]);
    assert_eq!(place.run(&["archive", "s2", to[0], to[1]]).code, 3);
    place.ok(&["archive", "restore", "s0", "--from", "objects:./cold"]);
    // Removing an archive stopped behind its mark: the object is gone, the entry is not.
    let folder = place.path("cold/archives/default/s0");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let (entry, object): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| path.to_string_lossy().ends_with(".json"));
    let text = std::fs::read_to_string(&entry[0]).unwrap();
    std::fs::write(&entry[0], text.trim_end().trim_end_matches('}').trim_end().to_owned() + ",\"removing\":true}")
        .unwrap();
    std::fs::remove_file(&object[0]).unwrap();
    let list = place.json(&["archive", "list", "--from", "objects:./cold"]);
    assert_eq!(list["archives"].as_array().unwrap().len(), 1, "{list:#}");
    let refused = place.run(&["archive", "restore", "s0", "--from", "objects:./cold"]);
    assert!(refused.code == 3 && refused.err.contains("being removed"), "{refused:#?}");
    place.ok(&["archive", "restore", "s0", "--from", "objects:./cold", "--remove"]);
    assert_eq!(std::fs::read_dir(&folder).map_or(0, Iterator::count), 0);
    // The object of an archive whose entry was never written.
    let stray = place.write("cold/archives/default/s9/1-0.rekindle.jsonl.zst", "x");
    let young = place.json(&["gc", "--archive", "objects:./cold"]);
    assert!(young["found"].as_array().unwrap().is_empty(), "{young:#}");
    place.ok(&["gc", "--archive", "objects:./cold", "--older-than", "0s", "--apply"]);
    assert!(!stray.exists());
    place.ok(&["archive", "restore", "s1", "--from", "objects:./cold"]);
}

#[test]
fn without_the_bucket_of_its_large_values_a_session_is_not_removed() {
    let place = Place::new();
    let configuration = "large_values = \"objects:./values\"\nlarge_values_from = 200\n";
    place.write("rekindle.toml", configuration);
    place.write("agent.yaml", AGENT);
    let values = || walk(&place.path("values"));
    let text: String = (0..2_000).map(|n| format!("{n:x} ")).collect();
    place.ok(&["run", "agent.yaml", &text, "--session", "large", "--quiet", "--trust"]);
    assert!(values() > 0);
    place.write("rekindle.toml", "");
    let refused = place.run(&["sessions", "rm", "large", "--yes", "--trust"]);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert!(refused.err.contains("objects:./values") || refused.err.contains("values"), "{refused:#?}");
    let listed = place.json(&["sessions", "--trust"]);
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed:#}");
    place.write("rekindle.toml", configuration);
    place.ok(&["sessions", "rm", "large", "--yes", "--trust"]);
    assert_eq!(values(), 0);
}

/// The number of files below a directory.
fn walk(path: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.map(|entry| entry.unwrap().path()).map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}

#[test]
fn a_service_that_ignores_conditions_is_refused_and_the_doctor_says_why() {
    let (place, server) = (place(), S3::start());
    let store = server.url("b");
    server.ignore_conditions(&["if-none-match"]);
    let refused = place.run(&["run", "agent.yaml", "go", "--session", "a", "--store", &store]);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert!(refused.err.contains("If-None-Match") && refused.err.contains("127.0.0.1"), "{refused:#?}");
    let told = place.run(&["doctor", "--store", &store]);
    assert_eq!(told.code, 1, "{told:#?}");
    assert!(told.out.contains("✗ conditions") && told.out.contains("If-None-Match"), "{told:#?}");
    server.ignore_conditions(&[]);
    let told = place.run(&["doctor", "--store", &store]);
    assert!(told.out.contains("✓ conditions"), "{told:#?}");
    make(&place, "a", &store);
}

/// An agent that asks, and has two hours of patience.
const PATIENT: &str = r#"
name: payer
model:
  provider: scripted
  name: script
  script:
    turns:
      - calls: [{name: pay, arguments: {}}]
      - text: over
tools:
  - name: pay
    description: Pays.
    shell: echo paid >> paid.txt
    output: text
    approval: {prompt: Pay?, expires_after: 2h}
"#;

#[test]
fn waits_expire_by_the_time_of_the_service() {
    for ahead in [7 * 86_400, -3 * 86_400] {
        let (place, server) = (Place::new(), S3::start());
        place.write("agent.yaml", PATIENT);
        let store = server.url("b");
        server.set_ahead(ahead);
        let run = place.run(&["run", "agent.yaml", "go", "--session", "w", "--store", &store]);
        assert_eq!(run.code, 4, "{run:#?}");
        // An hour later it still waits, two hours later it does not, whatever the clock of this machine says.
        server.set_ahead(ahead + 3_600);
        let early = place.run(&["resume", "w", "--store", &store]);
        assert_eq!(early.code, 4, "{ahead}: {early:#?}");
        server.set_ahead(ahead + 7_260);
        let late = place.run(&["resume", "w", "--store", &store]);
        assert_eq!(late.code, 0, "{ahead}: {late:#?}");
        assert!(!place.path("paid.txt").exists(), "without an answer: no");
    }
}
