//! A `rekindle run` that is killed at one of its first requests: what it leaves can be gone on with.

use std::sync::mpsc;
use std::time::Duration;

use rekindle_fixtures::{Proxy, ProxyFault, S3};

use crate::processes::start;
use crate::support::Place;

/// The requests at which the run is killed. The first record is written well before the last of them.
const REQUESTS: usize = 24;
/// The time after which a request counts as one that never comes.
const NEVER: Duration = Duration::from_secs(60);

const AGENT: &str =
    "name: clerk\nmodel:\n  provider: scripted\n  script:\n    name: scripted\n    turns: [{text: done}]\n";

/// Runs until request `at` and kills the run there, before or after the request is carried out.
fn killed_at(place: &Place, proxy: &Proxy, url: &str, at: usize, fault: ProxyFault) {
    let (reached, here) = mpsc::channel();
    let mut count = 0;
    proxy.set_faults(move |_| {
        count += 1;
        if count < at {
            return ProxyFault::None;
        }
        if count == at {
            let _ = reached.send(());
            return fault;
        }
        ProxyFault::Silent
    });
    let mut child = start(place, &["run", "clerk.yaml", "note", "--session", "a", "--store", url]);
    here.recv_timeout(NEVER).unwrap();
    while fault == ProxyFault::SilentBehind && !proxy.passed_on(at) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    proxy.heal();
}

#[test]
fn a_run_killed_at_any_of_its_first_requests_can_be_gone_on_with() {
    let place = Place::new();
    place.write("clerk.yaml", AGENT);
    let s3 = S3::start();
    for at in 1..=REQUESTS {
        for fault in [ProxyFault::Silent, ProxyFault::SilentBehind] {
            let proxy = Proxy::start(s3.port());
            let url = proxy.url(&format!("b-{at}-{}", usize::from(fault == ProxyFault::Silent)));
            killed_at(&place, &proxy, &url, at, fault);
            let again = place.run(&["run", "clerk.yaml", "note", "--session", "a", "--store", &url]);
            if again.code == 0 {
                assert_eq!(again.out.trim(), "done", "{at} {fault:?}");
                continue;
            }
            // A run that is on record is not begun anew, and the refusal says how it goes on.
            assert_eq!(again.code, 6, "{at} {fault:?}: {}", again.err);
            let resumed = place.run(&["resume", "a", "--store", &url]);
            assert_eq!(
                (resumed.code, resumed.out.trim()),
                (0, "done"),
                "{at} {fault:?}: {}\n{}",
                again.err,
                resumed.err
            );
        }
    }
}
