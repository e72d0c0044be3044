//! What people see and are asked at a terminal: a real one, of a given width.

use rekindle::Json;
use rekindle::wait::WaitSpec;

use crate::pty::Watched;
use crate::scenes;
use crate::support::Place;

/// Runs a command at a terminal of `columns` at which somebody types `typed`: its exit status and
/// everything that stands on the screen, what was typed among it.
fn at_terminal(place: &Place, columns: u16, typed: &str, arguments: &[&str]) -> (i32, String) {
    let mut command = place.command(arguments);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut watched = Watched::start(command, columns);
    watched.type_in(typed);
    let (code, screen) = watched.end();
    (code, screen.replace("\r\n", "\n"))
}

/// The lines that are no commands to copy, which are never broken.
fn widest(screen: &str) -> usize {
    let lines = screen.lines().filter(|line| !line.contains("rekindle "));
    lines.map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn everything_fits_forty_columns() {
    let place = Place::new();
    scenes::forks(&place, "trip-42");
    scenes::add(&place, "sums-1");
    scenes::pay(&place, "pay-1");
    scenes::dead(&place, "dead-1");
    for arguments in [
        &["log", "trip-42", "-p"][..],
        &["log", "sums-1", "--records"],
        &["sessions", "show", "sums-1"],
        &["sessions", "show", "dead-1"],
        &["sessions", "checkpoints", "sums-1"],
        &["sessions", "inspect", "sums-1"],
        &["diff", "sums-1"],
        &["diff", "sums-1", "--stat"],
        &["replay", "sums-1"],
        &["waits"],
    ] {
        let (code, screen) = at_terminal(&place, 40, "", arguments);
        assert_eq!(code, 0, "{arguments:?}\n{screen}");
        assert!(!screen.contains('\u{1b}'), "{screen:?}");
        // The id of a wait or a checkpoint is shown whole, to be copied.
        assert!(widest(&screen) <= 44, "{arguments:?}: {}\n{screen}", widest(&screen));
    }
    let (_, screen) = at_terminal(&place, 40, "", &["log", "trip-42"]);
    assert!(screen.contains("\n├─┼─╯\n") && screen.contains("[main, current]"), "{screen}");
}

#[test]
fn a_person_is_asked_and_sees_what_is_approved() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    let (code, screen) = at_terminal(&place, 80, "q\n", &["answer", "pay-1"]);
    assert_eq!(code, 1);
    assert!(screen.contains("nothing was answered"), "{screen}");
    let (code, screen) = at_terminal(&place, 80, "y\n", &["answer", "pay-1"]);
    assert_eq!(code, 0);
    // What was typed stands wherever the terminal echoed it.
    let shown = screen.replace("y\n", "");
    place.snapshot("answer_asked", &shown);
    scenes::pay(&place, "pay-2");
    assert_eq!(at_terminal(&place, 80, "e\n{\"cents\":4}\n", &["answer", "pay-2"]).0, 0);
    let decision = place.json(&["sessions", "show", "pay-2"])["waits"][0]["decisions"][0].clone();
    assert_eq!((decision["decision"].as_str(), decision["arguments"]["cents"].as_u64()), (Some("approve"), Some(4)));
    scenes::pay(&place, "pay-3");
    assert_eq!(at_terminal(&place, 80, "n\ntoo much\n", &["answer", "pay-3"]).0, 0);
    let decision = place.json(&["sessions", "show", "pay-3"])["waits"][0]["decisions"][0].clone();
    assert_eq!((decision["decision"].as_str(), decision["reason"].as_str()), (Some("reject"), Some("too much")));
    scenes::pay(&place, "pay-4");
    assert_eq!(at_terminal(&place, 80, "", &["answer", "pay-4", "--no-input"]).0, 2);
}

#[test]
fn a_person_picks_an_answer() {
    let place = Place::new();
    let schema = Json::parse(r#"{"enum":["train","plane"]}"#).unwrap();
    scenes::ask(&place, "ask-1", WaitSpec::question("Which way?").with_schema(schema));
    let (code, screen) = at_terminal(&place, 80, "2\n", &["answer", "ask-1"]);
    assert_eq!(code, 0, "{screen}");
    assert_eq!(place.json(&["sessions", "show", "ask-1"])["waits"][0]["decisions"][0]["value"], "plane");
}

#[test]
fn a_person_is_asked_before_anything_goes() {
    let place = Place::new();
    place.talk("trip-42", "hi", "hello");
    scenes::dead(&place, "dead-1");
    let (code, screen) = at_terminal(&place, 80, "n\n", &["sessions", "rm", "trip-42"]);
    assert_eq!(code, 1);
    assert!(screen.contains("Remove 1 session for good? [y/N]"), "{screen}");
    assert_eq!(place.run(&["sessions", "show", "trip-42"]).code, 0);
    assert_eq!(at_terminal(&place, 80, "y\n", &["sessions", "rm", "trip-42"]).0, 0);
    assert_eq!(place.run(&["sessions", "show", "trip-42"]).code, 3);
    assert_eq!(at_terminal(&place, 80, "n\n", &["cancel", "dead-1"]).0, 1);
    assert_eq!(place.json(&["sessions", "show", "dead-1"])["status"], "interrupted");
    assert_eq!(at_terminal(&place, 80, "yes\n", &["cancel", "dead-1"]).0, 0);
    assert_eq!(place.json(&["sessions", "show", "dead-1"])["status"], "cancelled");
}
