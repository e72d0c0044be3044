//! What must never happen: keys on a screen, sessions nobody asked for, lines that do something else
//! when they are pasted, and ends that are told wrongly.

use std::process::Stdio;

use crate::processes::until;
use crate::support::{Place, Said, said};

const TALKER: &str = "\
name: talker
model: {provider: scripted, script: {name: scripted, turns: [{text: hello}]}}
";

/// A call that never ends by itself.
const STUCK: &str = "\
name: stuck
model: {provider: scripted, script: {name: scripted, turns: [{calls: [{name: wait, arguments: {}}]}, {text: done}]}}
tools: [{name: wait, description: Waits., shell: 'touch started; while [ ! -e go ]; do sleep 0.02; done', in_doubt: idempotent}]
";

/// A tool that tells how long the secret is that it was given.
const KEEPER: &str = "\
name: keeper
model: {provider: scripted, script: {name: scripted, turns: [{calls: [{name: tell, arguments: {}}]}, {text: done}]}}
secrets: {token: '@env:FIRST'}
tools: [{name: tell, description: Tells., shell: 'echo ${#TOKEN} >> lengths', secret_environment: {TOKEN: token}}]
";

fn place(file: &str, text: &str) -> Place {
    let place = Place::new();
    place.write(file, text);
    place
}

fn with(place: &Place, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.envs(variables.iter().copied());
    said(command)
}

fn sessions(place: &Place) -> Vec<String> {
    let listed = place.json(&["sessions"]);
    let listed = listed["sessions"].as_array().unwrap().iter();
    listed.map(|session| session["session"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_key_by_value_is_refused_and_never_shown() {
    let place = place("rekindle.toml", "[encryption]\nkey = \"hunter2hunter2\"\n");
    for arguments in [&["config"][..], &["config", "--json"], &["sessions"], &["doctor"]] {
        let said = place.run(arguments);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("given by reference, never by value"), "{said:?}");
        assert!(!said.err.contains("hunter2") && !said.out.contains("hunter2"), "{said:?}");
    }
    place.write("rekindle.toml", "");
    for value in ["hunter2hunter2", "4242424242424242"] {
        let by_flag = place.run(&["-c", &format!("encryption.key={value}"), "config"]);
        let by_variable = with(&place, &[("REKINDLE_SIGNING_KEY", value)], &["config", "--json"]);
        for said in [by_flag, by_variable] {
            assert_eq!(said.code, 2, "{said:?}");
            assert!(said.err.contains("given by reference, never by value"), "{said:?}");
            assert!(!said.err.contains(value) && !said.err.contains("4242") && !said.out.contains(value), "{said:?}");
        }
    }
}

#[test]
fn an_id_of_a_key_may_be_a_number() {
    let place = place("talker.yaml", TALKER);
    let key = "0123456789abcdef".repeat(4);
    let flags = ["-c", "encryption.key=@env:KEY", "-c", "encryption.id=3", "run", "talker.yaml", "hi"];
    let said = with(&place, &[("KEY", &key)], &flags);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn the_file_of_a_key_is_meant_from_the_file_that_names_it() {
    let place = place("rekindle.toml", "[encryption]\nkey = \"@file:keys/one\"\n");
    place.ok(&["trust", "--yes"]);
    place.write("keys/one", &"0123456789abcdef".repeat(4));
    place.write("below/talker.yaml", TALKER);
    let mut command = place.command(&["run", "talker.yaml", "hi"]);
    command.current_dir(place.path("below"));
    let said = said(command);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn values_that_mean_nothing_are_told() {
    let place = place("talker.yaml", TALKER);
    let said = with(&place, &[("REKINDLE_LEASE", "soon")], &["run", "talker.yaml", "hi"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("`soon` is no duration"), "{said:?}");
    let days = format!("checkpoints.prune_after_days={}", u64::MAX);
    place.ok(&["-c", &days, "run", "talker.yaml", "hi"]);
}

#[test]
fn a_run_that_cannot_begin_leaves_no_session() {
    let place = place("talker.yaml", TALKER);
    place.write(
        "graph.yaml",
        "name: graph\nentry: n\ninputs: [topic]\nnodes: [{id: n, kind: tool, tool: t}]\n\
         tools: [{name: t, description: d, shell: 'true', writes: false}]\n",
    );
    place.ok(&["run", "talker.yaml", "hi", "--session", "before"]);
    for arguments in [
        &["talker.yaml"][..],
        &["talker.yaml", "hi", "--secret", "name=hunter2"],
        &["talker.yaml", "hi", "--raise", "tokens=many"],
        &["talker.yaml", "hi", "--input", "a=1"],
        &["graph.yaml"],
    ] {
        let said = place.run(&[&["run", "--session", "mine"], arguments].concat());
        assert_eq!(said.code, 2, "{said:?}");
        assert!(!said.err.contains("hunter2"), "{said:?}");
        assert_eq!(sessions(&place), ["before"], "{arguments:?}");
    }
    place.ok(&["run", "talker.yaml", "hi", "--session", "mine"]);
}

#[test]
fn ids_that_could_not_be_named_again_are_refused() {
    let place = place("talker.yaml", TALKER);
    for id in ["--session=-rf", "--session=@", "--session=@-1"] {
        let said = place.run(&["run", "talker.yaml", "hi", id]);
        assert_eq!(said.code, 2, "{said:?}");
    }
}

#[test]
fn lines_to_run_next_can_be_pasted() {
    let place = place("talker.yaml", TALKER);
    let id = "it's $(touch x)";
    place.ok(&["run", "talker.yaml", "hi", "--session", id]);
    let said = place.run(&["resume", id, "--checkpoint", "none"]);
    assert!(said.err.contains(r"rekindle sessions checkpoints 'it'\''s $(touch x)'"), "{said:?}");
}

#[test]
fn a_secret_said_on_the_command_line_counts_more_than_the_file() {
    let place = place("keeper.yaml", KEEPER);
    let variables = [("FIRST", "aaaaaaaa"), ("SECOND", "bbbbbbbbbbbbbbbb")];
    let said = with(&place, &variables, &["run", "keeper.yaml", "hi", "--secret", "token=@env:SECOND"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(std::fs::read_to_string(place.path("lengths")).unwrap(), "16\n");
}

#[test]
fn a_secret_said_for_a_run_is_said_again_for_the_resume() {
    let text = KEEPER.replace("echo $", "touch started; while [ ! -e go ]; do sleep 0.02; done; echo $");
    let place = place("keeper.yaml", &text.replace("shell:", "in_doubt: idempotent, shell:"));
    let variables = [("FIRST", "aaaaaaaa"), ("SECOND", "bbbbbbbbbbbbbbbb")];
    let arguments = ["run", "keeper.yaml", "hi", "--session", "s", "--secret", "token=@env:SECOND"];
    let mut child = place.command(&arguments).envs(variables).stderr(Stdio::null()).spawn().unwrap();
    until("the call has begun", || place.path("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    assert_eq!(with(&place, &variables, &["resume", "s"]).code, 2);
    let said = with(&place, &variables, &["resume", "s", "--secret", "token=@env:SECOND"]);
    assert_eq!(said.code, 0, "{said:?}");
    let lengths = std::fs::read_to_string(place.path("lengths")).unwrap();
    assert!(lengths.lines().all(|length| length == "16"), "{lengths}");
}

#[test]
fn a_file_of_a_secret_is_meant_from_the_file_that_names_it() {
    let place = place("below/keeper.yaml", &KEEPER.replace("@env:FIRST", "@file:token"));
    place.write("below/token", "four\n");
    place.ok(&["run", "below/keeper.yaml", "hi"]);
    assert_eq!(std::fs::read_to_string(place.path("below/lengths")).unwrap(), "4\n");
}

#[test]
fn a_session_of_a_dead_process_says_how_to_go_on() {
    let place = place("stuck.yaml", STUCK);
    let mut child =
        place.command(&["run", "stuck.yaml", "hi", "--session", "s"]).stderr(Stdio::null()).spawn().unwrap();
    until("the call has begun", || place.path("started").exists());
    let alive = place.run(&["run", "stuck.yaml", "more", "--continue", "s"]);
    assert_eq!(alive.code, 6, "{alive:?}");
    assert!(alive.err.contains("pause it with: rekindle pause s"), "{alive:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let dead = place.run(&["run", "stuck.yaml", "more", "--continue", "s"]);
    assert_eq!(dead.code, 6, "{dead:?}");
    assert!(dead.err.contains("is interrupted") && dead.err.contains("go on: rekindle resume s"), "{dead:?}");
    place.write("go", "");
    let resumed = place.run(&["resume", "s"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    // The call under way is not among what is kept.
    assert!(resumed.err.contains("kept: 1 step; 1 call was under way"), "{resumed:?}");
}

#[test]
fn a_changed_file_is_accepted_by_a_line_that_can_be_run() {
    let place = place("stuck.yaml", STUCK);
    let mut child =
        place.command(&["run", "stuck.yaml", "hi", "--session", "s"]).stderr(Stdio::null()).spawn().unwrap();
    until("the call has begun", || place.path("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    place.write("stuck.yaml", &STUCK.replace("Waits.", "Waits long."));
    place.ok(&["trust", "stuck.yaml", "--yes"]);
    let said = place.run(&["resume", "s"]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("rekindle resume s --accept-drift REASON"), "{said:?}");
    place.ok(&["resume", "s", "--accept-drift", "better words"]);
}

#[test]
fn a_budget_that_is_used_up_is_no_success() {
    let place = place("stuck.yaml", &format!("{STUCK}budgets: {{iterations: 1}}\n"));
    place.write("go", "");
    let said = place.run(&["run", "stuck.yaml", "hi", "--session", "s"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("rekindle resume s --raise iterations=2"), "{said:?}");
    place.ok(&["resume", "s", "--raise", "iterations=5"]);
}

#[test]
fn mistakes_on_the_command_line_are_json_too() {
    let place = Place::new();
    for arguments in [&["--json", "run"][..], &["bogus", "--json"], &["sessions", "--limit", "-1", "--json"]] {
        let said = place.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["error"]["code"], "RK0001", "{said:?}");
    }
    assert!(place.ok(&["--json", "--help"]).contains("Usage:"));
}

#[test]
fn what_was_sent_is_told_once() {
    let place = place("talker.yaml", &TALKER.replace("[{text: hello}]", "[{text: hello}, {text: again}]"));
    place.ok(&["run", "talker.yaml", "hi", "--session", "s"]);
    place.ok(&["send", "s", "one more thing"]);
    let said = place.run(&["resume", "s"]);
    assert_eq!(said.err.matches("> one more thing").count(), 1, "{said:?}");
}

#[test]
fn a_reader_that_left_does_not_make_a_failure_a_success() {
    let place = place(
        "plan.yaml",
        "name: plan\nsteps: [{id: s, action: t}]\n\
         tools: [{name: t, description: d, shell: 'exit 3', writes: false}]\n",
    );
    let mut command = place.command(&["run", "plan.yaml", "--json"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_configuration_is_shown_without_what_may_be_a_key() {
    let place = place(
        "rekindle.toml",
        "[models.best]\nprovider = \"compatible\"\nname = \"m\"\nbase_url = \"https://u:hunter2@host/v1\"\n\
         headers = {Authorization = \"Bearer hunter2\"}\n",
    );
    // Nor do those see it who are asked whether they trust it.
    let told = place.run(&["trust", "--yes"]);
    assert!(told.err.contains("asks https://host/v1") && !told.err.contains("hunter2"), "{told:?}");
    for arguments in [&["config"][..], &["config", "--json"]] {
        let said = place.ok(arguments);
        assert!(said.contains("models.best.headers.Authorization") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn the_line_that_answers_a_wait_answers_it() {
    let place = place("stuck.yaml", &STUCK.replace("idempotent", "ask"));
    let mut child = place.command(&["run", "stuck.yaml", "hi", "--session", "s", "-q"]).spawn().unwrap();
    until("the call has begun", || place.path("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    let said = place.run(&["resume", "s"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains(r#"rekindle answer s '{"action":"retry"}'"#), "{said:?}");
    place.ok(&["answer", "s", r#"{"action":"retry"}"#]);
    place.ok(&["resume", "s"]);
}

#[test]
fn nobody_is_said_to_run_a_session_whose_process_died() {
    let place = place("stuck.yaml", STUCK);
    let mut child = place
        .command(&["-c", "lease=1h", "run", "stuck.yaml", "hi", "--session", "s", "-q"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the call has begun", || place.path("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = place.run(&["sessions", "show", "s"]);
    assert!(shown.out.contains("which has died; a resume takes main over"), "{shown:?}");
    assert!(shown.err.contains("rekindle resume s  # takes it over"), "{shown:?}");
    let sent = place.run(&["send", "s", "more"]);
    assert!(sent.err.contains("next: rekindle resume s"), "{sent:?}");
    let cancelled = place.run(&["cancel", "s"]);
    assert!(cancelled.out.contains("a resume carries it out"), "{cancelled:?}");
    // It is taken over at once, however long its lease and patience are, and the cancel is carried out.
    assert_eq!(place.run(&["resume", "s", "--wait", "1s"]).code, 5);
}

#[test]
fn an_answer_that_was_cut_off_is_said_to_be() {
    for (stop, why) in [("length", "it reached its limit of tokens"), ("filtered", "a filter of the provider")] {
        let place = place("talker.yaml", &TALKER.replace("{text: hello}", &format!("{{text: hel, stop: {stop}}}")));
        let said = place.run(&["run", "talker.yaml", "hi"]);
        assert_eq!(said.out, "hel\n", "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    }
}

#[test]
fn a_store_is_not_copied_into_itself_by_another_name() {
    let place = Place::new();
    place.talk("s", "hi", "hello");
    let whole = format!("sqlite:{}", place.path("rekindle.db").display());
    for to in ["sqlite:./rekindle.db", "sqlite:rekindle.db", "sqlite:././rekindle.db", whole.as_str()] {
        let said = place.run(&["copy", "--to", to, "--existing", "replace"]);
        assert_eq!(said.code, 2, "{to}: {said:?}");
        assert!(said.err.contains("both stores are the same"), "{said:?}");
    }
}
