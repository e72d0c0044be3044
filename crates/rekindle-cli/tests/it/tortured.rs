//! Runs on services that speak S3, killed again and again.

use std::process::{Child, Stdio};
use std::time::Duration;

use rekindle_fixtures::ForeignS3;

use crate::support::Place;

/// An agent that books eight times. Whether a booking was made, the ledger tells.
const AGENT: &str = r#"
name: booker
model:
  provider: scripted
  name: script
  script:
    turns:
      - calls: [{name: book, arguments: {what: "0"}}]
      - calls: [{name: book, arguments: {what: "1"}}]
      - calls: [{name: book, arguments: {what: "2"}}]
      - calls: [{name: book, arguments: {what: "3"}}]
      - calls: [{name: book, arguments: {what: "4"}}]
      - calls: [{name: book, arguments: {what: "5"}}]
      - calls: [{name: book, arguments: {what: "6"}}]
      - calls: [{name: book, arguments: {what: "7"}}]
      - text: booked
tools:
  - name: book
    description: Books.
    parameters: {what: string}
    shell: echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt; sleep 0.05; echo done
    output: text
    check_command: [sh, -c, 'grep -q "$0" ledger.txt || exit 3', "${idempotency_key}"]
"#;

/// The most kills; each run gets a little longer than the one before.
const KILLS: u64 = 12;

fn start(place: &Place, url: &str, words: &[&str]) -> Child {
    let all: Vec<&str> = ["--store", url].into_iter().chain(words.iter().copied()).collect();
    place.command(&all).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Lets a run go on for a while and kills it, until it has come to its end; then looks at the ledger.
fn is_booked_once(service: &ForeignS3) {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    let url = service.url_below("tortured");
    let first = ["run", "agent.yaml", "go", "--session", "s"];
    for kill in 0..KILLS {
        // What was killed before its first record was there is begun again, everything else is resumed.
        let show = place.run(&["--store", &url, "sessions", "show", "s"]);
        let begun = show.code == 0 && !show.out.contains(", 0 records long");
        let mut run = start(&place, &url, if begun { &["resume", "s"] } else { &first });
        std::thread::sleep(Duration::from_millis(150 + kill * 60));
        let over = run.try_wait().unwrap().is_some_and(|status| status.success());
        let _ = run.kill();
        run.wait().unwrap();
        if over {
            break;
        }
    }
    let last = place.run(&["--store", &url, "resume", "s"]);
    let show = place.run(&["--store", &url, "sessions", "show", "s"]);
    assert!(show.out.contains("succeeded"), "{}: {last:#?} {show:#?}", service.name());
    let ledger = std::fs::read_to_string(place.path("ledger.txt")).unwrap();
    let booked: Vec<&str> = ledger.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    assert_eq!(booked, ["0", "1", "2", "3", "4", "5", "6", "7"], "{}: {ledger}", service.name());
    let verified = place.run(&["--store", &url, "verify", "s"]);
    assert_eq!(verified.code, 0, "{}: {verified:#?}", service.name());
}

#[test]
fn on_moto_every_booking_is_made_once() {
    if let Some(moto) = ForeignS3::moto() {
        is_booked_once(&moto);
    }
}

#[test]
fn on_seaweedfs_every_booking_is_made_once() {
    if let Some(seaweedfs) = ForeignS3::seaweedfs() {
        is_booked_once(&seaweedfs);
    }
}
