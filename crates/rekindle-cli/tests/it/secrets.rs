//! Secrets: a value that came in as one stands nowhere else, in no form, and a resume is given it again.

use std::process::Command;

use base64::Engine as _;

use crate::processes::until;
use crate::pty::Watched;
use crate::support::{Place, Said, said};

const KEY: &str = "sk-live/9f8e+7d6c?5b4a";

/// Uses a key that is missing at first: copies it, asks about it, uses the copy after a restart.
const GRAPH: &str = r#"
name: keys
entry: copy
tools:
  - name: say
    description: Says.
    parameters: {what: string}
    shell: 'printf "%s" "$REKINDLE_ARG_WHAT" | tee -a "$LEDGER"'
    output: text
    environment: {LEDGER: ../said.txt}
    in_doubt: idempotent
nodes:
  - {id: copy, kind: tool, tool: say, arguments: {what: "${memory.api_key}"}, reads: ["api_key?"], save: {copied: ""}}
  - {id: ask, kind: wait, prompt: "Use ${memory.api_key}?", reads: ["api_key?"], writes: [verdict]}
  - {id: use, kind: tool, tool: say, arguments: {what: " again ${memory.copied}"}, reads: [copied]}
edges:
  - {from: copy, to: ask}
  - {from: ask, to: use}
"#;

fn run(place: &Place, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.env("API", KEY);
    said(command)
}

/// The forms in which the key must stand nowhere.
fn forms() -> Vec<String> {
    let standard = base64::engine::general_purpose::STANDARD_NO_PAD;
    let inner = |text: String| standard.encode(text)[4..20].to_owned();
    let hex = KEY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent = "sk-live%2F9f8e%2B7d6c%3F5b4a".to_owned();
    vec![KEY.to_owned(), inner(KEY.to_owned()), inner(format!("a{KEY}")), inner(format!("ab{KEY}")), hex, percent]
}

fn check_hidden(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for form in forms() {
        assert!(!text.contains(&form), "{what} holds {form}\n{text}");
    }
}

/// Everything that was stored and shown.
fn check_everywhere(place: &Place, shown: &[Said]) {
    for said in shown {
        check_hidden("standard output", said.out.as_bytes());
        check_hidden("standard error", said.err.as_bytes());
    }
    let mut folders = vec![place.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.ends_with("said.txt") => {}
                path => check_hidden(&path.display().to_string(), &std::fs::read(&path).unwrap()),
            }
        }
    }
}

#[test]
fn a_key_that_was_missing_is_added_and_stands_nowhere() {
    let place = Place::new();
    place.write("keys.yaml", &GRAPH.replace("../said.txt", &place.path("said.txt").display().to_string()));
    let spoken = || std::fs::read_to_string(place.path("said.txt")).unwrap_or_default();
    let mut shown = vec![run(&place, &["run", "keys.yaml", "--session", "s"])];
    assert_ne!(shown[0].code, 0);
    // On the command line it would stand in the list of processes.
    let refused = run(&place, &["resume", "s", "--set", &format!("api_key={KEY}")]);
    assert!(refused.code != 0 && refused.err.contains("--secret api_key=@env:VARIABLE"), "{}", refused.err);
    shown.push(refused);
    shown.push(run(&place, &["resume", "s", "--secret", "api_key=@env:API", "--events"]));
    assert_eq!((shown[2].code, spoken().as_str()), (4, KEY), "{}", shown[2].err);
    assert!(shown[2].out.contains("Use [secret api_key]?"), "{}", shown[2].out);
    shown.push(run(&place, &["answer", "s", "\"yes\""]));
    // Not null: the run stops, and nothing has failed.
    let without = run(&place, &["resume", "s"]);
    assert!(without.code != 0 && without.err.contains("--secret api_key=@env:VARIABLE"), "{}", without.err);
    shown.push(without);
    let with = run(&place, &["resume", "s", "--secret", "api_key=@env:API", "--json"]);
    assert_eq!((with.code, spoken()), (0, format!("{KEY} again {KEY}")), "{}", with.err);
    shown.push(with);
    for arguments in
        [["sessions", "inspect", "s", "--json"], ["log", "s", "--json", "--all"], ["sessions", "show", "s", "--json"]]
    {
        shown.push(run(&place, &arguments));
    }
    check_everywhere(&place, &shown);
}

/// The session remembers which secrets it was run with, also one that is called as excluded keys are, and is called
/// by none of them.
#[test]
fn a_session_that_was_run_with_a_secret_is_resumed_with_it() {
    let place = Place::new();
    place.write("keys.yaml", &GRAPH.replace("../said.txt", &place.path("said.txt").display().to_string()));
    let title = format!("with {KEY}");
    let given = ["--secret", "api_key=@env:API"];
    let began = ["run", "keys.yaml", "--session", "s", "--title", &title, "--tag", KEY];
    let mut shown = vec![run(&place, &[&began[..], &given].concat())];
    assert_eq!(shown[0].code, 4, "{}", shown[0].err);
    shown.push(run(&place, &["answer", "s", "\"yes\""]));
    shown.push(run(&place, &[&["resume", "s"][..], &given].concat()));
    assert_eq!(shown[2].code, 0, "{}", shown[2].err);
    shown.push(run(&place, &["sessions", "--json"]));
    assert!(shown[3].out.contains("with [secret api_key]"), "{}", shown[3].out);
    check_everywhere(&place, &shown);
}

/// A tool comes upon a secret before anything has asked for it.
#[test]
fn a_secret_at_hand_is_masked_before_it_is_used() {
    let place = Place::new();
    place.write("w/said.txt", KEY);
    place.write(
        "reader.yaml",
        r#"
name: reader
model:
  provider: scripted
  script: {name: s, turns: [{calls: [{name: read_file, arguments: {path: said.txt}}]}, {text: done}]}
files: {root: w}
secrets: {key: "@file:w/said.txt"}
tools:
  - {name: use, description: Uses it., command: ["true"], secret_environment: {K: key}}
"#,
    );
    let shown =
        [run(&place, &["run", "reader.yaml", "go", "--session", "s", "--events"]), run(&place, &["export", "s"])];
    assert_eq!(shown[0].code, 0, "{}", shown[0].err);
    assert!(shown[0].out.contains("[secret key]"), "{}", shown[0].out);
    check_everywhere(&place, &shown);
}

/// Typed in on a terminal: used, and seen neither there nor in what is stored.
#[test]
fn a_secret_that_is_typed_in_is_not_shown() {
    let place = Place::new();
    place.write("keys.yaml", &GRAPH.replace("../said.txt", &place.path("said.txt").display().to_string()));
    place.run(&["run", "keys.yaml", "--session", "s"]);
    let mut terminal = Watched::start(place.command(&["resume", "s", "--secret", "api_key"]), 100);
    until("the question", || terminal.screen().contains("api_key:"));
    terminal.type_in(&format!("{KEY}\n"));
    let (code, screen) = terminal.end();
    assert_eq!((code, std::fs::read_to_string(place.path("said.txt")).unwrap().as_str()), (4, KEY), "{screen}");
    check_hidden("the screen", screen.as_bytes());
    check_everywhere(&place, &[]);
    // Nobody can be asked: the name alone is not enough.
    let unasked = place.run(&["resume", "s", "--secret", "api_key"]);
    assert!(unasked.code == 2 && unasked.err.contains("--secret NAME=@env:VARIABLE"), "{}", unasked.err);
}

/// Work is queued without secrets: the worker's configuration has them.
#[test]
fn a_worker_has_its_secrets_from_the_configuration() {
    let place = Place::new();
    place.write("keys.yaml", &GRAPH.replace("../said.txt", &place.path("said.txt").display().to_string()));
    let text = |said: &Said| format!("{}{}", said.out, said.err);
    let mut shown = vec![run(&place, &["enqueue", "keys.yaml", "--session", "s"])];
    assert_eq!(shown[0].code, 0, "{}", text(&shown[0]));
    for command in ["enqueue", "run"] {
        let by_value = run(&place, &[command, "keys.yaml", "--session", "t", "--input", &format!("api_key={KEY}")]);
        assert!(by_value.code != 0 && by_value.err.contains("--secret api_key="), "{}", text(&by_value));
        shown.push(by_value);
    }
    place.configure("[secrets]\napi_key = \"@env:API\"\n");
    let worked = run(&place, &["worker", "keys.yaml", "--until-idle"]);
    assert_eq!(std::fs::read_to_string(place.path("said.txt")).unwrap_or_default(), KEY, "{}", text(&worked));
    shown.push(worked);
    check_everywhere(&place, &shown);
}

/// The operator's configuration names the source; what stands in the session does not.
#[test]
fn a_secret_of_the_configuration_is_found_by_its_name() {
    let place = Place::new();
    place.write("keys.yaml", &GRAPH.replace("../said.txt", &place.path("said.txt").display().to_string()));
    place.configure("[secrets]\napi_key = \"@env:API\"\n");
    let said = run(&place, &["run", "keys.yaml", "--session", "s"]);
    assert_eq!(said.code, 4, "{}{}", said.out, said.err);
    assert_eq!(std::fs::read_to_string(place.path("said.txt")).unwrap(), KEY);
    check_everywhere(&place, &[said]);
}

#[test]
fn a_plain_value_for_an_excluded_key_is_refused_and_not_repeated() {
    let place = Place::new();
    place.talk("s", "hello", "hi");
    let json = format!(r#"{{"api_key":"{KEY}"}}"#);
    for arguments in [vec!["send", "s", &json], vec!["edit", "s", "--set", "api_key=sk-live/9f8e+7d6c?5b4a"]] {
        let said = run(&place, &arguments);
        assert_ne!(said.code, 0, "{arguments:?}");
        check_everywhere(&place, &[said]);
    }
}

#[test]
fn a_plain_value_in_place_of_a_reference_is_not_repeated() {
    let place = Place::new();
    for (variable, key) in [
        ("REKINDLE_SERVER_TOKEN", "server.token"),
        // The variable of the store's password is itself a reference.
        ("REKINDLE_SERVER_TOKEN", "store_password"),
        ("REKINDLE_ENCRYPTION_KEY", "encryption.key"),
    ] {
        let mut command = place.command(&["config"]);
        command.env(variable, KEY);
        let by_variable = said(command);
        let by_flag = run(&place, &["-c", &format!("{key}={KEY}"), "config"]);
        place.write(
            "rekindle.toml",
            &match key.split_once('.') {
                Some((table, name)) => format!("[{table}]\n{name} = \"{KEY}\"\n"),
                None => format!("{key} = \"{KEY}\"\n"),
            },
        );
        let by_file = run(&place, &["config"]);
        std::fs::remove_file(place.path("rekindle.toml")).unwrap();
        for said in [by_variable, by_flag, by_file] {
            assert_ne!(said.code, 0, "{key}: {}", said.out);
            check_hidden(key, format!("{}{}", said.out, said.err).as_bytes());
        }
    }
}

/// A tool looks into the process that started it: neither environment nor memory can be read. As root it
/// still could, so the test runs as somebody else.
#[cfg(target_os = "linux")]
#[test]
fn tools_cannot_read_the_environment_of_the_run() {
    let place = Place::new();
    place.write(
        "spy.yaml",
        r#"
name: spy
model: {provider: scripted, name: s, script: {name: first, turns: [{calls: [{name: look}]}, {text: done}]}}
tools:
  - {name: look, description: Looks., shell: 'p=$(ps -o ppid= -p $$ | tr -d " "); for f in environ maps mem; do head -c 1 /proc/$p/$f >/dev/null 2>&1 && echo "$f" >> readable.txt; done; echo $p > seen.txt; exit 0'}
"#,
    );
    let binary = env!("CARGO_BIN_EXE_rekindle");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(""), everybody).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", binary, "run", "spy.yaml", "go"]);
    command.current_dir(place.path("")).env("API", KEY).env("HOME", place.path(""));
    let said = said(command);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(place.path("seen.txt").exists(), "the tool ran");
    assert_eq!(std::fs::read_to_string(place.path("readable.txt")).unwrap_or_default(), "", "readable of the run");
}
