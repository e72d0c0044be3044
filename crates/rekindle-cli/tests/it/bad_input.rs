//! Everything people get wrong: each is refused quickly, says what is wrong and what was meant, and
//! leaves nothing behind.

use std::process::Stdio;

use crate::processes::{end, start};
use crate::support::{Place, Said, said};

/// What was typed and what was said, one after the other.
struct Transcript<'a> {
    place: &'a Place,
    variables: Vec<(&'static str, &'static str)>,
    text: String,
}

impl<'a> Transcript<'a> {
    fn of(place: &'a Place) -> Self {
        Self { place, variables: Vec::new(), text: String::new() }
    }

    /// Runs a command that must be refused with `code`.
    fn refused(&mut self, code: i32, arguments: &[&str]) -> Said {
        let mut command = self.place.command(arguments);
        command.envs(self.variables.iter().copied());
        let said = said(command);
        assert_eq!(said.code, code, "{arguments:?}\n{}\n{}", said.out, said.err);
        assert!(said.out.is_empty() && !said.err.contains("panicked"), "{arguments:?}\n{}\n{}", said.out, said.err);
        // Nobody reads a message of many screens.
        assert!(said.err.len() < 2_000, "{arguments:?}: {} bytes", said.err.len());
        let variables: String = self.variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let words: Vec<String> = arguments
            .iter()
            .map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() })
            .collect();
        self.text.push_str(&format!("$ {variables}rekindle {}\n{}→ {code}\n\n", words.join(" "), said.err));
        said
    }

    /// The same for a file that is written first.
    fn file(&mut self, code: i32, name: &str, text: &str) {
        self.place.write(name, text);
        self.refused(code, &["run", name, "hello"]);
        assert!(!self.place.path("rekindle.db").exists(), "{name} left a store behind");
    }

    fn agree(self, name: &str) {
        self.place.snapshot(name, &self.text);
    }
}

const AGENT: &str = "name: a\nmodel: {provider: scripted, name: s, script: {turns: [{text: hello}]}}\n";

#[test]
fn forms_that_are_wrong() {
    let place = Place::new();
    let mut transcript = Transcript::of(&place);
    let mut agent = |name: &str, rest: &str| transcript.file(2, name, &format!("{AGENT}{rest}"));
    agent("key.yaml", "sistem: be brief\n");
    agent("tool.yaml", "tools:\n  - {name: t, description: d, comand: [ls]}\n");
    agent("text.yaml", "system: [a]\n");
    agent("number.yaml", "parallel: many\nbudgets: {iterations: few}\n");
    agent("list.yaml", "tools: {}\n");
    agent("time.yaml", "grace: 10\n");
    agent("budget.yaml", "budgets: {euros: 5}\n");
    agent("secret.yaml", "secrets: {token: sk-12345}\n");
    assert!(!transcript.text.contains("12345"));
    transcript.agree("bad_forms");
}

#[test]
fn models_and_tools_that_cannot_be_had() {
    let place = Place::new();
    let mut transcript = Transcript::of(&place);
    transcript.variables = vec![("PATH", "/usr/bin:/bin")];
    transcript.file(2, "provider.yaml", "name: a\nmodel: opnai/gpt-5\n");
    transcript.file(2, "name.yaml", "name: a\nmodel: quick\nmodels: {quack: openai/gpt-5}\n");
    transcript.file(2, "key.yaml", "name: a\nmodel: openai/gpt-5\n");
    transcript.file(2, "url.yaml", "name: a\nmodel: {provider: compatible, name: x, base_url: 'ht!tp://x'}\n");
    transcript.file(2, "scheme.yaml", "name: a\nmodel: {provider: compatible, name: x, base_url: 'ftp://x'}\n");
    transcript.file(2, "value.yaml", "name: a\nmodel: {provider: openai, name: x, api_key: sk-12345}\n");
    assert!(!transcript.text.contains("12345"));
    let missing = "tools:\n  - {name: t, description: d, command: [no-such-program, x]}\n";
    transcript.file(2, "command.yaml", &format!("{AGENT}{missing}"));
    place.write("agent.yaml", AGENT);
    transcript.refused(2, &["run", "agent.yaml", "hello", "--model", "scripted/none.yaml"]);
    transcript.agree("bad_models");
}

#[test]
fn files_that_are_none() {
    let place = Place::new();
    let mut transcript = Transcript::of(&place);
    transcript.file(2, "agent.txt", AGENT);
    transcript.file(2, "agent", AGENT);
    transcript.file(2, "empty.yaml", "");
    transcript.file(2, "empty.json", "");
    transcript.file(2, "empty.toml", "");
    transcript.file(2, "list.yaml", "- a\n- b\n");
    transcript.file(2, "tabs.yaml", "name: a\nbudgets:\n\titerations: 3\n");
    transcript.file(2, "cut.json", "{\"name\": \"a\",");
    transcript.file(2, "twice.toml", "name = \"a\"\nname = \"b\"\n");
    std::fs::write(place.path("bytes.yaml"), b"name: \xff\xfe\n").unwrap();
    transcript.refused(2, &["run", "bytes.yaml", "hello"]);
    std::fs::create_dir(place.path("folder.yaml")).unwrap();
    transcript.refused(2, &["run", "folder.yaml", "hello"]);
    transcript.refused(2, &["run", "missing.yaml", "hello"]);
    transcript.agree("bad_files");
}

#[test]
fn files_that_want_to_be_more_than_they_are() {
    let place = Place::new();
    let mut transcript = Transcript::of(&place);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = level - 1;
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 9].join(", ")));
    }
    transcript.file(2, "bomb.yaml", &bomb);
    let deep = 1 << 20;
    transcript.file(2, "deep.yaml", &format!("name: {}{}\n", "[".repeat(deep), "]".repeat(deep)));
    transcript.file(2, "blocks.yaml", &format!("name:\n{}x\n", "- ".repeat(deep)));
    transcript.file(2, "deep.json", &format!("{{\"name\": {}{}}}\n", "[".repeat(deep), "]".repeat(deep)));
    transcript.file(2, "objects.json", &"{\"a\":".repeat(deep / 4));
    transcript.file(2, "deep.toml", &format!("name = {}{}\n", "[".repeat(deep), "]".repeat(deep)));
    transcript.file(2, "keys.toml", &format!("{}a = 1\n", "a.".repeat(deep)));
    transcript.file(2, "large.yaml", &format!("name: {}\n", "x".repeat(5 << 20)));
    transcript.agree("bad_sizes");
}

#[test]
fn sessions_that_are_not_meant() {
    let place = Place::new();
    drop(place.engine());
    let mut transcript = Transcript::of(&place);
    transcript.refused(3, &["sessions", "show", "@"]);
    transcript.refused(3, &["resume", "@-1"]);
    for number in 0..10 {
        place.talk(&format!("trip-{number}"), "hi", "hello");
    }
    transcript.refused(3, &["resume", "nope"]);
    transcript.refused(2, &["sessions", "show", "trip"]);
    transcript.refused(3, &["sessions", "show", "@-10"]);
    transcript.refused(3, &["log", "trip-1@nowhere"]);
    transcript.refused(3, &["resume", "trip-1"]);
    transcript.refused(3, &["resume", "trip-1", "--namespace", "other"]);
    transcript.refused(2, &["sessions", "show", ""]);
    transcript.refused(2, &["sessions", "show", "a/../b\n"]);
    transcript.agree("bad_ids");
}

#[test]
fn words_on_the_command_line() {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    let mut transcript = Transcript::of(&place);
    for arguments in [
        &["run", "agent.yaml", "hello", "--set", "region"][..],
        &["run", "agent.yaml", "hello", "--set", "=eu"],
        &["run", "agent.yaml", "hello", "--secret", "sk-12345"],
        &["run", "agent.yaml", "hello", "--secret", "token=sk-12345"],
        &["run", "agent.yaml", "hello", "--secret", "token=@vault:sk-12345"],
        &["run", "agent.yaml", "hello", "--raise", "euros=5"],
        &["run", "agent.yaml", "hello", "--raise", "tokens=many"],
        &["run", "agent.yaml", "hello", "--raise", "cost=-1"],
        &["run", "agent.yaml", "hello", "--input", "n"],
        &["run", "agent.yaml", "hello", "--input", "n=1"],
        &["run", "agent.yaml", "hello", "--session", "a b\n"],
        &["run", "agent.yaml"],
        &["rnu"],
        &["run", "agent.yaml", "--colour"],
        &["run", "agent.yaml", "hello", "--durability", "soon"],
        &["resume"],
        &["-c", "run.durabilty=sync", "sessions"],
        &["-c", "run.durability", "sessions"],
    ] {
        transcript.refused(2, arguments);
    }
    let echoed = transcript.text.lines().filter(|line| !line.starts_with("$ ") && line.contains("12345")).count();
    assert_eq!(echoed, 0, "{}", transcript.text);
    // The store was made to look at an id; no session was.
    assert_eq!(place.json(&["sessions", "list"])["sessions"], serde_json::json!([]));
    transcript.agree("bad_words");
}

#[test]
fn an_id_that_is_taken() {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    place.ok(&["run", "agent.yaml", "hello", "--session", "trip"]);
    let mut transcript = Transcript::of(&place);
    transcript.refused(6, &["run", "agent.yaml", "hello", "--session", "trip"]);
    transcript.refused(3, &["run", "agent.yaml", "hello", "--continue", "trap"]);
    transcript.agree("bad_session");
}

#[test]
fn stores_that_are_none() {
    let place = Place::new();
    let mut transcript = Transcript::of(&place);
    transcript.refused(2, &["--store", "sqlit:./x.db", "sessions"]);
    transcript.refused(2, &["--store", "x.db", "sessions"]);
    transcript.refused(2, &["--store", "", "sessions"]);
    transcript.refused(2, &["--store", "sqlite:", "sessions"]);
    transcript.refused(3, &["--store", "sqlite:none.db", "sessions"]);
    transcript.refused(3, &["--store", "file:none", "sessions"]);
    place.write("notes.db", &"these are notes and no sessions at all\n".repeat(100));
    transcript.refused(7, &["--store", "sqlite:notes.db", "sessions"]);
    place.talk("trip", "hi", "hello");
    rusqlite::Connection::open(place.path("rekindle.db")).unwrap().pragma_update(None, "user_version", 4_000).unwrap();
    transcript.refused(7, &["sessions"]);
    let other = rusqlite::Connection::open(place.path("other.db")).unwrap();
    other.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    transcript.refused(2, &["--store", "sqlite:other.db", "sessions"]);
    transcript.agree("bad_stores");
}

#[test]
fn configuration_that_is_wrong() {
    let place = Place::new();
    place.talk("trip", "hi", "hello");
    let mut transcript = Transcript::of(&place);
    for text in [
        "author = \"maria\"\n\n[run]\ndurabilty = \"sync\"\n",
        "author = \"maria\"\n[run]\ndurability = \"soon\"\n",
        "[checkpoints]\nmax_checkpoints_per_session = \"ten\"\n",
        "[encryption]\nkey = \"0123456789abcdef\"\n",
        "author = \"maria\n",
        "lease = \"soon\"\n",
    ] {
        place.write("rekindle.toml", text);
        transcript.refused(2, &["sessions"]);
    }
    assert!(!transcript.text.contains("0123456789abcdef"), "{}", transcript.text);
    transcript.refused(2, &["--config", "none.toml", "sessions"]);
    std::fs::remove_file(place.path("rekindle.toml")).unwrap();
    transcript.variables = vec![("REKINDLE_RUN_DURABILITY", "soon")];
    transcript.refused(2, &["sessions"]);
    transcript.variables = vec![("REKINDLE_LEASE", "soon")];
    transcript.refused(2, &["sessions"]);
    transcript.agree("bad_configuration");
}

/// Fifty levels of a schema, each of which looks twice at the next: checking anything by it would never end.
#[test]
fn a_schema_that_nobody_can_check_by_is_refused_by_the_call() {
    let levels: String = (0..50)
        .map(|n| format!(r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}},"##, n + 1))
        .collect();
    let schema = format!(r##"{{"type":"object","allOf":[{{"$ref":"#/$defs/d0"}}],"$defs":{{{levels}"d50":{{}}}}}}"##);
    let place = Place::new();
    place.write(
        "agent.yaml",
        &format!(
            "name: a\nmodel: {{provider: scripted, name: s, script: {{turns: [{{calls: [{{name: look}}]}}, {{calls: [{{name: ask}}]}}]}}}}\n\
             tools:\n  - {{name: look, description: Looks., command: [touch, looked], parameters: {schema}}}\n  \
             - {{name: ask, description: Asks., question: {{prompt: How?, schema: {schema}}}}}\n"
        ),
    );
    let run = place.run(&["run", "agent.yaml", "go", "--session", "s"]);
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(!place.path("looked").exists(), "the call was not checked");
    let answered = place.run(&["answer", "s", "{}"]);
    assert!(answered.code != 0 && answered.err.contains("steps"), "{}", answered.err);
}

#[test]
fn an_encrypted_store_without_its_key() {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    place.write("right", &"01".repeat(32));
    place.write("wrong", &"02".repeat(32));
    place.write("short", "0102");
    place.ok(&["-c", "encryption.key=@file:right", "run", "agent.yaml", "hello", "--session", "trip"]);
    let mut transcript = Transcript::of(&place);
    transcript.refused(7, &["sessions", "inspect", "trip"]);
    transcript.refused(7, &["resume", "trip"]);
    transcript.refused(7, &["run", "agent.yaml", "more", "--continue", "trip"]);
    transcript.refused(7, &["-c", "encryption.key=@file:wrong", "resume", "trip"]);
    transcript.refused(7, &["-c", "encryption.key=@file:right", "-c", "encryption.id=new", "resume", "trip"]);
    transcript.refused(2, &["-c", "encryption.key=@file:short", "resume", "trip"]);
    transcript.refused(3, &["-c", "encryption.key=@file:none", "resume", "trip"]);
    assert!(transcript.text.contains("RK0013"), "{}", transcript.text);
    transcript.agree("bad_keys");
    place.ok(&["-c", "encryption.key=@file:right", "sessions", "show", "trip"]);
}

#[test]
fn nobody_reads_what_is_said() {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    place.talk("trip", "hi", &"a long answer ".repeat(10_000));
    for arguments in [
        &["run", "agent.yaml", "hello"][..],
        &["run", "agent.yaml", "hello", "--json"],
        &["run", "agent.yaml", "hello", "--events"],
        &["sessions", "show", "trip"],
        &["sessions", "inspect", "trip"],
        &["sessions", "checkpoints", "trip"],
        &["log", "trip", "--records"],
        &["diff", "trip"],
        &["replay", "trip"],
        &["export", "trip"],
        &["verify", "--all"],
        &["waits", "--json"],
        &["config", "show"],
        &["schema", "agent"],
        &["completions", "bash"],
        &["man"],
        &["help", "files"],
        &["version"],
        &["doctor"],
    ] {
        // Whether the reader goes at once or a little later, it is no reason to fail.
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = end(child);
        assert!(
            [0, 1].contains(&said.code) && !said.err.contains("panicked"),
            "{arguments:?} {}: {}",
            said.code,
            said.err
        );
        let mut child = start(&place, arguments);
        drop((child.stdout.take(), child.stderr.take()));
        assert!(child.wait().unwrap().code().is_some(), "{arguments:?}");
    }
}

/// The commands below `words`, as their help lists them.
fn commands(place: &Place, words: &[String], found: &mut Vec<(String, String)>) {
    let arguments: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let help = place.ok(&arguments);
    let listed = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    for line in listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap().to_owned();
        commands(place, &[words, &[name]].concat(), found);
    }
    found.push((words.join(" "), help));
}

#[test]
fn every_command_has_help_with_an_example() {
    let place = Place::new();
    let mut found = Vec::new();
    commands(&place, &[], &mut found);
    assert!(found.len() > 30, "{found:?}");
    let without: Vec<&str> = found
        .iter()
        .filter(|(name, help)| !help.contains(&format!("  rekindle {name}")) && !help.contains("Example"))
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(without.is_empty(), "{without:?}");
}
