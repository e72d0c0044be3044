//! Telling sessions something: waits, answer, signal, send, pause, cancel, checkpoint, settle.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use rekindle::core::{LeaseAction, LeaseRequest, OwnerId};
use rekindle::wait::WaitSpec;
use rekindle::{BranchId, Json};

use crate::scenes;
use crate::support::{Place, Said};

/// What a command says to a person, standard output first.
fn told(said: &Said) -> String {
    format!("{}---\n{}", said.out, said.err)
}

fn schema(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// Runs a command with `input` on standard input.
fn fed(place: &Place, arguments: &[&str], input: &str) -> Said {
    let mut command = place.command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

#[test]
fn everything_that_waits_is_listed_with_how_to_answer() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    scenes::ask(&place, "ask-1", WaitSpec::question("Which way?").with_schema(schema(r#"{"enum":["train","plane"]}"#)));
    scenes::ask(&place, "signal-1", WaitSpec::signal("paid"));
    place.snapshot("waits", &scenes::level(&place.ok(&["waits"])));
    let open = place.json(&["inbox"]);
    assert_eq!(open["waits"].as_array().unwrap().len(), 3);
    assert_eq!(open["waits"][1]["wait"]["prompt"], "Which way?");
    let empty = Place::new();
    empty.talk("done", "hi", "hello");
    let said = empty.run(&["waits"]);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", "nothing waits\n"));
}

#[test]
fn an_approval_is_for_what_was_shown() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    let wait = place.json(&["waits"])["waits"][0]["wait"].clone();
    let (id, digest) = (wait["wait"].as_str().unwrap(), wait["approve_digest"].as_str().unwrap());
    // Nobody can be asked, so the answer must be there.
    let said = place.run(&["answer", "pay-1"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains(&format!("rekindle answer pay-1 {id} --approve --digest {digest}")), "{}", said.err);
    let other = "0".repeat(64);
    assert_eq!(place.run(&["answer", "pay-1", "--approve", "--digest", &other]).code, 2);
    assert_eq!(place.run(&["answer", "pay-1", "--approve", "--digest", "x"]).code, 2);
    assert_eq!(place.run(&["answer", "pay-1", "--approve", "--reject", "no"]).code, 2);
    assert_eq!(place.run(&["answer", "pay-1", "yes"]).code, 2);
    assert_eq!(place.run(&["answer", "pay-1", "--approve", "--arguments", r#"{"cents":"many"}"#]).code, 2);
    let said = place.run(&["answer", "pay-1", &id[..12], "--approve"]);
    assert_eq!(said.code, 0);
    assert!(said.err.contains(digest));
    place.snapshot("answer_approve", &told(&said));
    let again = place.json(&["answer", "pay-1", id, "--approve", "--digest", digest]);
    assert_eq!((again["repeated"].as_bool(), again["decided"].as_bool()), (Some(true), Some(true)));
    // Another answer comes too late, and hears by whom.
    let said = place.run(&["answer", "pay-1", "--reject", "no"]);
    assert_eq!(said.code, 6);
    assert!(said.err.contains("maria"), "{}", said.err);
}

#[test]
fn an_approval_can_change_the_arguments() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    place.ok(&["answer", "pay-1", "--approve", "--arguments", r#"{"cents":4}"#, "--reason", "cheaper"]);
    let decision = place.json(&["sessions", "show", "pay-1"])["waits"][0]["decisions"][0].clone();
    assert_eq!((decision["arguments"]["cents"].as_u64(), decision["reason"].as_str()), (Some(4), Some("cheaper")));
    assert_eq!(decision["author"], "maria");
    scenes::pay(&place, "pay-2");
    place.snapshot("answer_reject", &told(&place.run(&["answer", "pay-2", "--reject", "too much"])));
}

#[test]
fn a_question_takes_a_value_that_fits() {
    let place = Place::new();
    scenes::ask(&place, "ask-1", WaitSpec::question("How many?").with_schema(schema(r#"{"type":"integer"}"#)));
    let said = place.run(&["answer", "ask-1", "many"]);
    assert_eq!(said.code, 2);
    place.snapshot("answer_does_not_fit", &said.err);
    assert_eq!(place.run(&["answer", "ask-1", "--approve"]).code, 2);
    let given = place.json(&["answer", "ask-1", "-3"]);
    assert_eq!((given["decided"].as_bool(), given["resume_needed"].as_bool()), (Some(true), Some(true)));
    scenes::ask(&place, "ask-2", WaitSpec::question("What name?").with_schema(schema(r#"{"type":"string"}"#)));
    place.ok(&["answer", "ask-2", "007"]);
    let shown = place.json(&["sessions", "show", "ask-2"]);
    assert_eq!(shown["waits"][0]["decisions"][0]["value"], "007");
    scenes::ask(&place, "ask-3", WaitSpec::question("What text?"));
    assert_eq!(fed(&place, &["answer", "ask-3", "-"], "two\nlines\n").code, 0);
    assert_eq!(place.json(&["sessions", "show", "ask-3"])["waits"][0]["decisions"][0]["value"], "two\nlines");
    let said = place.run(&["answer", "ask-3", "wait_none", "x"]);
    assert_eq!(said.code, 3);
    place.talk("done", "hi", "hello");
    assert_eq!(place.run(&["answer", "done", "x"]).code, 3);
}

#[test]
fn a_signal_reaches_who_waits_for_it() {
    let place = Place::new();
    scenes::ask(&place, "signal-1", WaitSpec::signal("paid"));
    let said = place.run(&["signal", "signal-1", "other"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("it waits for: `paid`"), "{}", said.err);
    place.snapshot("signal", &told(&place.run(&["signal", "signal-1", "paid", r#"{"cents":5}"#])));
    assert!(place.json(&["signal", "signal-1", "paid", r#"{"cents":5}"#])["repeated"].as_bool().unwrap());
}

#[test]
fn a_message_waits_in_the_inbox() {
    let place = Place::new();
    place.talk("trip-42", "hi", "hello");
    place.snapshot("send", &told(&place.run(&["send", "trip-42", "and a coat"])));
    assert_eq!(fed(&place, &["send", "@", "-", "--mode", "steer"], "from a pipe\n").code, 0);
    assert_eq!(place.run(&["send", "trip-42", " "]).code, 2);
    assert_eq!(place.run(&["send", "trip-42", "x", "--mode", "shout"]).code, 2);
    assert!(!place.json(&["send", "trip-42", "once", "--id", "form-17"])["repeated"].as_bool().unwrap());
    assert!(place.json(&["send", "trip-42", "once", "--id", "form-17"])["repeated"].as_bool().unwrap());
    let shown = place.json(&["sessions", "show", "trip-42"]);
    assert_eq!((shown["unread"].as_u64(), shown["resumable"]["resumable"].as_bool()), (Some(3), Some(true)));
    let records = place.ok(&["log", "trip-42", "--records", "--branch", "inbox"]);
    assert!(records.contains("from a pipe") && records.contains("steer"), "{records}");
}

#[test]
fn a_run_is_paused_and_cancelled() {
    let place = Place::new();
    scenes::dead(&place, "dead-1");
    place.snapshot("pause", &told(&place.run(&["pause", "dead-1", "--reason", "lunch"])));
    assert_eq!(place.json(&["pause", "dead-1", "--now"])["result"], "unchanged");
    assert_eq!(place.run(&["cancel", "dead-1", "--only-run", "run_other"]).code, 3);
    let said = place.run(&["cancel", "dead-1", "--reason", "not needed"]);
    assert_eq!(said.code, 0);
    place.snapshot("cancel", &told(&said));
    assert_eq!(place.json(&["sessions", "show", "dead-1"])["run"]["reason"], "cancelled by maria: not needed");
    let again = place.json(&["cancel", "dead-1", "--yes"]);
    assert_eq!((&again["result"], &again["status"]), (&"ended".into(), &"cancelled".into()));
    place.talk("done", "hi", "hello");
    for what in ["pause", "cancel"] {
        let said = place.run(&[what, "done", "--wait"]);
        assert_eq!((said.code, said.out.as_str()), (6, "had already ended: done succeeded\n"));
    }
}

#[test]
fn whoever_runs_a_session_is_told() {
    let place = Place::new();
    place.talk("trip-42", "hi", "hello");
    place.with_engine(async |engine| {
        let (owner, ttl) = (OwnerId::new("somebody").unwrap(), Duration::from_secs(600));
        let action = LeaseAction::Acquire { owner, ttl, whole_session: true };
        let session = engine.key("trip-42").unwrap();
        let request = LeaseRequest { session, branch: BranchId::main(), action };
        engine.journal().store().lease(&request).await.unwrap();
    });
    place.snapshot("pause_sent", &told(&place.run(&["pause", "trip-42"])));
    let asked = place.json(&["cancel", "trip-42"]);
    assert_eq!((&asked["result"], &asked["owner"]), (&"requested".into(), &"somebody".into()));
    assert_eq!(place.run(&["cancel", "trip-42", "--wait", "20ms"]).code, 9, "nobody confirms it");
    assert_eq!(place.run(&["cancel", "trip-42", "--wait", "soon"]).code, 2);
    assert_eq!(place.json(&["checkpoint", "trip-42", "now"])["result"], "sent");
    assert!(place.run(&["send", "trip-42", "hi"]).err.contains("somebody runs it"));
    let said = place.run(&["sessions", "rm", "trip-42", "--yes"]);
    assert_eq!(said.code, 6);
    let shown = place.run(&["sessions", "show", "trip-42"]);
    assert!(
        shown.out.contains("somebody on main until") && shown.err.contains("rekindle pause trip-42"),
        "{}",
        told(&shown)
    );
}

#[test]
fn waits_of_other_branches_are_listed_and_answered() {
    let place = Place::new();
    scenes::pay(&place, "pay-1");
    assert!(!place.ok(&["waits"]).contains("BRANCH"), "only where it says something");
    let shown = place.ok(&["sessions", "show", "pay-1"]);
    assert!(!shown.contains("calls in doubt"), "{shown}");
    place.ok(&["fork", "pay-1", "--name", "other"]);
    let listed = place.ok(&["waits"]);
    assert!(listed.contains("BRANCH") && listed.contains("pay-1 on branch other"), "{listed}");
    assert!(listed.contains("--branch other"), "{listed}");
    let unclear = place.run(&["answer", "pay-1", "--approve"]);
    assert_eq!(unclear.code, 2, "{unclear:?}");
    assert!(unclear.err.contains("on branch other") && unclear.err.contains("--branch main"), "{unclear:?}");
    let given = place.run(&["answer", "pay-1", "--branch", "other", "--approve"]);
    assert_eq!(given.code, 0, "{given:?}");
    assert!(given.err.contains("next: rekindle resume pay-1 --branch other"), "{given:?}");
    let waits = place.json(&["waits"])["waits"].clone();
    let answered = |at: usize| (waits[at]["branch"].clone(), waits[at]["answered"].clone());
    assert_eq!([answered(0), answered(1)], [("main".into(), false.into()), ("other".into(), true.into())]);
    assert_eq!(place.run(&["answer", "pay-1", "--branch", "none", "--approve"]).code, 3);
}

#[test]
fn checkpoints_are_made_pinned_and_tagged() {
    let place = Place::new();
    place.talk("trip-42", "hi", "hello");
    place.snapshot("checkpoint", &place.ok(&["checkpoint", "trip-42", "before the change"]));
    let made = place.json(&["sessions", "checkpoints", "trip-42"])["checkpoints"][0].clone();
    assert_eq!(made["description"], "before the change");
    let id = made["id"].as_str().unwrap();
    assert_eq!(place.ok(&["checkpoint", "pin", "trip-42"]), format!("{id}: pinned\n"));
    assert_eq!(place.json(&["checkpoint", "tag", &format!("trip-42@{id}"), "good", "old"])["tags"][1], "old");
    assert_eq!(place.ok(&["checkpoint", "tag", "trip-42", "old", "--remove"]), format!("{id}: tagged good\n"));
    let listed = place.ok(&["sessions", "checkpoints", "trip-42"]);
    assert!(listed.contains("before the change [pinned] [good]"), "{listed}");
    assert_eq!(place.ok(&["checkpoint", "unpin", &format!("trip-42@{}", &id[5..])]), format!("{id}: not pinned\n"));
    assert_eq!(place.run(&["checkpoint"]).code, 2);
    assert_eq!(place.run(&["checkpoint", "pin", "trip-42@none"]).code, 3);
    assert_eq!(place.run(&["checkpoint", "none"]).code, 3);
}

#[test]
fn a_call_in_doubt_is_settled_by_hand() {
    let place = Place::new();
    scenes::dead(&place, "dead-1");
    assert_eq!(place.run(&["settle", "dead-1"]).code, 2);
    assert_eq!(place.run(&["settle", "dead-1", "other", "--failed", "no"]).code, 3);
    let said = place.run(&["settle", "dead-1", "--happened", r#"{"receipt":17}"#, "--reason", "asked the bank"]);
    place.snapshot("settle", &told(&said));
    assert_eq!(place.run(&["settle", "dead-1", "t1.0.c1", "--did-not-happen"]).code, 2);
    scenes::dead(&place, "dead-2");
    let settled = place.json(&["settle", "dead-2", "t1", "--did-not-happen"]);
    assert_eq!((settled["effect"].as_str(), settled["still_open"].as_array().unwrap().len()), (Some("t1.0.c1"), 0));
    let records = place.ok(&["log", "dead-2", "--records"]);
    assert!(records.contains("the call did not happen"), "{records}");
    place.talk("done", "hi", "hello");
    assert_eq!(place.run(&["settle", "done", "--did-not-happen"]).code, 3);
}
