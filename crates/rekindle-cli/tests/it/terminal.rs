//! What a person sees on a terminal: wide, narrow, with and without colour.

use crate::pty::Watched;
use crate::support::Place;

const AGENT: &str = r#"
name: guide
model:
  provider: scripted
  script:
    name: scripted
    turns:
      - calls: [{name: look, arguments: {where: "a rather long place name, far away"}}]
      - {text: "Take a hat, and an umbrella for the evening, since the wind comes from the sea.", stream: 4, chunk_delay_ms: 5}
tools:
  - name: look
    description: Looks.
    parameters: {where: string}
    command: [echo, "sun in ${arguments.where}"]
    output: text
    writes: false
"#;

fn watch(columns: u16, change: impl FnOnce(&mut std::process::Command)) -> (i32, String) {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    let mut command = place.command(&["run", "agent.yaml", "What should I pack?"]);
    command.env("TERM", "xterm-256color");
    change(&mut command);
    Watched::start(command, columns).end()
}

#[test]
fn a_terminal_shows_colour_and_what_is_under_way() {
    let (code, screen) = watch(100, |_| {});
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("\u{1b}[32m"), "no colour: {screen:?}");
    assert!(screen.contains("\u{1b}[J"), "nothing was drawn again: {screen:?}");
    assert!(screen.contains("Take a hat"), "{screen}");
}

#[test]
fn no_color_is_respected() {
    let (code, screen) = watch(100, |command| {
        command.env("NO_COLOR", "1");
    });
    assert_eq!(code, 0, "{screen}");
    let colours = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
    assert!(!colours.is_match(&screen), "{screen:?}");
}

#[test]
fn forty_columns_are_enough() {
    let (code, screen) = watch(40, |command| {
        command.env("NO_COLOR", "1");
    });
    assert_eq!(code, 0, "{screen}");
    let moves = regex::Regex::new("\u{1b}\\[[0-9;]*[A-Za-z]").unwrap();
    let plain = moves.replace_all(&screen, "");
    for line in plain.split(['\n', '\r']).filter(|line| line.contains("look") || line.contains("running")) {
        assert!(line.chars().count() <= 40, "{line:?}");
    }
}

#[test]
fn a_dumb_terminal_is_left_alone() {
    let (code, screen) = watch(80, |command| {
        command.env("TERM", "dumb");
    });
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
}

#[test]
fn a_question_is_asked_on_a_terminal_only() {
    let place = Place::new();
    place.talk("old", "hello", "hello");
    let refused = place.run(&["sessions", "rm", "old"]);
    assert_ne!(refused.code, 0);
    let mut command = place.command(&["sessions", "rm", "old"]);
    command.env("TERM", "xterm");
    let mut watched = Watched::start(command, 80);
    crate::processes::until("the question", || watched.screen().contains("[y/N]"));
    watched.type_in("y\n");
    let (code, screen) = watched.end();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(place.run(&["sessions", "show", "old"]).code, 3);
}
