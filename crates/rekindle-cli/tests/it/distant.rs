//! A store that is far away: object storage behind a proxy with latency, and one that never answers.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rekindle_fixtures::{Proxy, ProxyFault, Redis, S3, Signal as ServerSignal};
use rustix::process::Signal;

use crate::processes::{lines, signal, start, until};
use crate::support::Place;

/// The time after which a command counts as one that never ends.
const NEVER: Duration = Duration::from_secs(120);
/// The stated times after signals, and some for a busy machine. After one signal a run has its grace and 10 seconds
/// to record its end, after a second one 3 seconds.
const ONE_SIGNAL: Duration = Duration::from_secs(10 + 15);
const TWO_SIGNALS: Duration = Duration::from_secs(3 + 5);

/// An agent that makes `turns` calls, each of which adds a line to `ledger.txt`.
fn clerk(place: &Place, turns: usize) {
    let calls: String =
        (0..turns).map(|n| format!("      - calls: [{{name: note, arguments: {{n: \"{n}\"}}}}]\n")).collect();
    place.write(
        "clerk.yaml",
        &format!(
            "name: clerk\nmodel:\n  provider: scripted\n  script:\n    name: scripted\n    turns:\n{calls}      - text: done\n\
             tools:\n  - name: note\n    description: Notes.\n    parameters: {{n: string}}\n    \
             shell: echo \"$REKINDLE_ARG_N\" >> ledger.txt\n    output: text\n    \
             in_doubt: idempotent\ngrace: 0s\n"
        ),
    );
}

/// Waits for the end of a process.
fn ended(mut child: Child, within: Duration) -> (ExitStatus, String) {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let output = child.wait_with_output().unwrap();
            return (status, String::from_utf8_lossy(&output.stderr).into_owned());
        }
        if began.elapsed() > within {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("it did not end within {within:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_at_ordinary_latency_comes_to_its_end() {
    const TURNS: usize = 12;
    let place = Place::new();
    clerk(&place, TURNS);
    let proxy = Proxy::start(S3::start().port());
    proxy.set_latency(Duration::from_millis(40));
    let url = proxy.url("b");
    let run = start(&place, &["run", "clerk.yaml", "note", "--session", "a", "--store", &url]);
    let (status, err) = ended(run, NEVER);
    assert_eq!(status.code(), Some(0), "{err}");
    assert_eq!(lines(&place.path("ledger.txt")).len(), TURNS);
    assert!(err.contains("succeeded"), "{err}");
}

/// A run on object storage that stands still in the middle, because the store no longer answers.
fn stuck(command: &[&str], place: &Place, proxy: &Proxy, url: &str) -> Child {
    let mut writes = 0;
    proxy.set_faults(move |request| {
        writes += usize::from(request.method == "PUT" && request.key.contains("/log/"));
        if writes > 6 { ProxyFault::Silent } else { ProxyFault::None }
    });
    let arguments: Vec<&str> = command.iter().copied().chain(["--store", url]).collect();
    let before = lines(&place.path("ledger.txt")).len();
    let child = start(place, &arguments);
    until("it works", || lines(&place.path("ledger.txt")).len() > before);
    // Whatever it does next, it asks the store, which says nothing.
    let asked = proxy.count();
    assert!(proxy.wait_for(asked + 1, NEVER));
    child
}

#[test]
fn signals_end_a_run_although_the_store_never_answers() {
    let place = Place::new();
    clerk(&place, 40);
    let proxy = Proxy::start(S3::start().port());
    let url = proxy.url("b");
    let run = ["run", "clerk.yaml", "note", "--session", "a"];
    for (command, signals, within) in [
        (&run[..], &[Signal::TERM][..], ONE_SIGNAL),
        // Two different ones: two of the same may arrive as one.
        (&["resume", "a"][..], &[Signal::INT, Signal::TERM][..], TWO_SIGNALS),
    ] {
        let child = stuck(command, &place, &proxy, &url);
        for sent in signals {
            signal(&child, *sent);
        }
        let (status, err) = ended(child, within);
        assert_eq!(status.code(), Some(130), "{command:?}: {err}");
        proxy.heal();
    }
    let said = place.run(&["resume", "a", "--store", &url]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out.trim(), "done");
}

#[test]
fn a_signal_ends_a_look_at_a_store_that_never_answers() {
    let place = Place::new();
    place.talk("a", "Question?", "Answer.");
    let proxy = Proxy::start(S3::start().port());
    proxy.set_faults(|_| ProxyFault::Silent);
    let url = proxy.url("b");
    let copy = ["copy", "--from", "sqlite:rekindle.db", "--to", &url];
    for command in [&["sessions", "--store", &url][..], &["resume", "a", "--store", &url], &copy] {
        let asked = proxy.count();
        let child = start(&place, command);
        assert!(proxy.wait_for(asked + 1, NEVER), "{command:?} asks nothing");
        signal(&child, Signal::TERM);
        let (status, err) = ended(child, TWO_SIGNALS);
        assert!(!status.success(), "{command:?}: {err}");
    }
}

#[test]
fn signals_end_a_worker_whose_store_stands_still() {
    let redis = Redis::start(&[]);
    let place = Place::new();
    clerk(&place, 40);
    let url = redis.url();
    place.ok(&["enqueue", "clerk.yaml", "note", "--session", "a", "--store", &url]);
    let worker = start(&place, &["worker", "--store", &url, "-c", "lease=2s"]);
    until("it works", || lines(&place.path("ledger.txt")).len() > 2);
    redis.signal(ServerSignal::Stop);
    signal(&worker, Signal::INT);
    signal(&worker, Signal::TERM);
    let (_, err) = ended(worker, TWO_SIGNALS);
    redis.signal(ServerSignal::Continue);
    assert!(err.contains("SIGTERM"), "{err}");
    let again = place.run(&["worker", "--until-idle", "--store", &url, "-c", "lease=2s"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let shown = place.json(&["sessions", "show", "a", "--store", &url]);
    assert_eq!(shown["status"], "succeeded", "{err}\n{}\n{shown}", again.err);
}
