//! What calls leave behind: nothing when they end, and nothing unnoticed when their process dies.

use std::sync::Arc;
use std::time::Duration;

use rekindle::core::record::{InDoubtPolicy, WaitOpened};
use rekindle::operations::{Answer, answer};
use rekindle::tool::{Retries, ToolOptions};
use rekindle::{Agent, Event, LiveKind, ResumeOptions, RunOutcome, Session};
use rekindle_tools::{CommandOutput, CommandTool, CommandToolBuilder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::crashes::{World, enter, lines, process, wait_for};
use crate::kit::{Pipe, agent, call, doubt, engine, options, outcome, reads, results, schema};
use crate::processes::{of_call, of_groups, running_of_groups, until};

/// A tool that notes its key and its group in `calls`, then does what `script` says.
fn noting(directory: &TempDir, script: &str) -> CommandToolBuilder {
    let calls = directory.path().join("calls");
    let note = r#"read -r p c s pp g rest < /proc/$$/stat; echo "$REKINDLE_IDEMPOTENCY_KEY $g" >> "$CALLS"; "#;
    CommandTool::builder("t", "Notes.")
        .parameters(schema(&[]))
        .shell(format!("{note}{script}"))
        .environment_base([("PATH", "/usr/bin:/bin"), ("CALLS", calls.to_str().unwrap())])
        .options(ToolOptions { retries: Retries::none(), ..reads() })
        .kill_grace(Duration::from_millis(50))
}

fn calls(directory: &TempDir) -> Vec<(String, i32)> {
    let read =
        |line: String| line.split_once(' ').map(|(key, group)| (key.to_owned(), group.parse().unwrap())).unwrap();
    lines(directory.path().join("calls")).into_iter().map(read).collect()
}

/// No process of the calls runs.
fn assert_gone(directory: &TempDir, expected: usize) {
    let calls = calls(directory);
    assert_eq!(calls.len(), expected);
    for (key, _) in &calls {
        assert_eq!(of_call(key), [0; 0], "{calls:?}");
    }
    let groups: Vec<i32> = calls.iter().map(|(_, group)| *group).collect();
    until("the end of all groups", || running_of_groups(&groups).is_empty());
}

#[tokio::test]
async fn however_a_call_ends_none_of_its_processes_is_left_when_it_has() {
    let check = async |script: &str, timeout: Option<Duration>, expected: &str| {
        let directory = TempDir::new().unwrap();
        let tool = noting(&directory, script);
        let options = ToolOptions { timeout, retries: Retries::none(), ..ToolOptions::default() };
        let ended = call(tool.options(options).build().unwrap(), json!({})).await;
        let ended = ended.map_or_else(|error| error, |value| value.to_string());
        assert!(ended.contains(expected), "{script}: {ended}");
        assert_gone(&directory, 1);
    };
    check("echo hello", None, "hello").await;
    check("sleep 1000 & (sleep 1001 &) ; echo hello", None, "hello").await;
    check("exec 0<&- 1>&- 2>&-; exit 0", None, r#""exit_code":0"#).await;
    check("exit 3", None, "exit code 3").await;
    check("kill -9 $$", None, "signal 9 (SIGKILL)").await;
    check("kill -TERM 0; sleep 1000", None, "signal 15 (SIGTERM)").await;
    check("trap '' TERM; kill -TERM 0; kill -HUP 0; kill -INT 0; kill -KILL $$", None, "signal").await;
    check("trap '' TERM; sleep 1000; sleep 1000", Some(Duration::from_secs(2)), "did not come back within 2s").await;
    check("kill -STOP 0; sleep 1000", Some(Duration::from_secs(2)), "did not come back within 2s").await;
}

#[tokio::test]
async fn hundreds_of_calls_leave_nothing() {
    let directory = TempDir::new().unwrap();
    for _ in 0..200 {
        let tool = noting(&directory, "echo hello").output(CommandOutput::Text).build().unwrap();
        assert_eq!(call(tool, json!({})).await, Ok(json!("hello\n")));
    }
    let groups: Vec<i32> = calls(&directory).iter().map(|(_, group)| *group).collect();
    assert_eq!(groups.len(), 200);
    // At once: nothing of them was left to the first process of the system.
    assert_eq!(of_groups(&groups), [0; 0]);
}

#[test]
fn a_runtime_that_is_dropped_takes_the_processes_with_it() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    let script = r#"echo at work > "$PIPE"; trap '' TERM; while :; do sleep 1000; done"#;
    let tool = noting(&world.directory, script).environment("PIPE", pipe.path()).build().unwrap();
    world.die(&agent(Arc::new(tool), json!({})), wait_for(&pipe));
    let (key, group) = calls(&world.directory).remove(0);
    until("the end of its processes", || of_call(&key).is_empty() && running_of_groups(&[group]).is_empty());
}

#[tokio::test]
async fn a_call_is_not_tried_again_before_the_try_before_has_ended() {
    let directory = TempDir::new().unwrap();
    // The first try does not listen. The second one looks whether it is still there.
    let script = r#"if [ ! -e "$CALLS.first" ]; then
            echo $$ > "$CALLS.first"; trap '' TERM; while :; do sleep 1000; done
        fi
        if kill -0 "$(cat "$CALLS.first")" 2> /dev/null; then echo both; else echo alone; fi"#;
    let again = Retries { attempts: 2, ..reads().retries };
    let options = ToolOptions { timeout: Some(Duration::from_secs(5)), retries: again, ..ToolOptions::default() };
    let tool = noting(&directory, script).options(options).output(CommandOutput::Text);
    let tool = tool.kill_grace(Duration::from_secs(1)).build().unwrap();
    assert_eq!(call(tool, json!({})).await, Ok(json!("alone\n")));
    assert_gone(&directory, 2);
}

#[tokio::test]
async fn a_long_call_lives_by_the_renewals_of_its_lease() {
    let directory = TempDir::new().unwrap();
    let engine = engine().with_lease(Duration::from_secs(3));
    let session = engine.create("s").await.unwrap();
    let tool = noting(&directory, "sleep 8; echo done").output(CommandOutput::Text).build().unwrap();
    let run = agent(Arc::new(tool), json!({})).run_with(vec!["go".into()], &session, options()).await.unwrap();
    run.report().await.unwrap();
    assert_eq!(outcome(&results(&engine, &session).await[0]), Ok(json!("done\n")));
    assert_gone(&directory, 1);
}

/// Only this thread runs anything: while it is blocked, no lease is renewed.
#[tokio::test(flavor = "current_thread")]
async fn a_call_that_was_ended_with_its_lease_is_in_doubt() {
    let directory = TempDir::new().unwrap();
    let pipe = Pipe::new(directory.path(), "pipe");
    let tool = noting(&directory, r#"sleep 1000 > "$PIPE""#).environment("PIPE", pipe.path());
    let writes = ToolOptions { writes: true, ..ToolOptions::default() };
    let engine = engine().with_lease(Duration::from_secs(2));
    let session = engine.create("s").await.unwrap();
    let agent = agent(Arc::new(tool.options(writes).build().unwrap()), json!({}));
    let run = agent.run_with(vec!["go".into()], &session, options()).await.unwrap();
    let mut begun = pipe.begun().await;
    std::io::Read::read_to_string(&mut begun, &mut String::new()).unwrap();
    let report = run.report().await.unwrap();
    let [wait] = &report.waits[..] else { panic!("{report:?}") };
    assert!(wait.prompt.contains("the lease of the run was not renewed in time"), "{}", wait.prompt);
    assert_gone(&directory, 1);
}

#[tokio::test]
async fn a_program_that_kills_its_own_guard_is_in_doubt() {
    let directory = TempDir::new().unwrap();
    let writes = ToolOptions { writes: true, ..ToolOptions::default() };
    let asked = doubt(Arc::new(noting(&directory, "kill -9 0").options(writes).build().unwrap()), json!({})).await;
    assert!(asked.contains("its processes were ended"), "{asked}");
    assert_gone(&directory, 1);
}

/// A program whose child makes itself a session of its own, and notes its number.
const ESCAPES: &str = r#"echo "$REKINDLE_IDEMPOTENCY_KEY" >> "$LEDGER.tries"
    if [ -e "$LEDGER.escaped" ]; then echo '"again"'; exit; fi
    setsid sh -c 'echo $$ > "$LEDGER.new"; mv "$LEDGER.new" "$LEDGER.escaped"; exec sleep 1000' > /dev/null 2>&1 < /dev/null &
    while [ ! -e "$LEDGER.escaped" ]; do sleep 0.01; done
    echo at work > "$PIPE"; exec sleep 1000"#;

/// Ends the process that escaped, however the test ends.
struct Escaped(Pid);

impl Escaped {
    fn of(world: &World) -> Self {
        let number = lines(world.path("ledger.escaped"))[0].parse().unwrap();
        Self(Pid::from_raw(number).unwrap())
    }

    fn lives(&self) -> bool {
        rustix::process::test_kill_process(self.0).is_ok()
    }

    fn text(&self) -> String {
        format!("process {} (", self.0.as_raw_nonzero())
    }
}

impl Drop for Escaped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

async fn resumed(agent: &Agent, session: &Session) -> (RunOutcome, Vec<WaitOpened>, Vec<String>) {
    let mut run = agent.resume_with(session, ResumeOptions::new("maria")).await.unwrap();
    let mut notices = Vec::new();
    while let Some(event) = run.next_event().await.unwrap() {
        if let Event::Live(live) = event
            && let LiveKind::Notice(text) = live.kind
        {
            notices.push(text);
        }
    }
    let report = run.report().await.unwrap();
    (report.outcome, report.waits, notices)
}

#[test]
fn a_process_that_escaped_is_told_and_its_call_is_not_repeated_without_a_person() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    let agent = agent(Arc::new(enter(&world, &pipe, ESCAPES).build().unwrap()), json!({"a": 1}));
    world.die(&agent, wait_for(&pipe));
    let escaped = Escaped::of(&world);
    let engine = world.engine(2);
    process().block_on(async {
        let session = engine.open_session("s").await.unwrap();
        let (_, waits, _) = resumed(&agent, &session).await;
        assert!(waits[0].prompt.contains(&format!("still running: {}", escaped.text())), "{waits:?}");
        assert!(escaped.lives(), "it may be what the tool is for");
        assert_eq!(lines(world.path("ledger.tries")).len(), 1);

        // Somebody decides that it is made again.
        let retry = rekindle::Json::from(json!({"action": "retry"}));
        let retry = Answer::value(waits[0].wait.clone(), retry, "maria");
        answer(&engine, session.key(), &retry).await.unwrap();
        let (outcome, _, notices) = resumed(&agent, &session).await;
        assert_eq!(outcome, RunOutcome::Succeeded);
        assert!(notices.iter().any(|notice| notice.contains(&escaped.text())), "{notices:?}");
    });
    let tries = lines(world.path("ledger.tries"));
    assert_eq!(tries.len(), 2);
    assert!(escaped.lives());
}

#[test]
fn what_may_be_repeated_goes_on_beside_a_process_that_escaped_and_that_is_told() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    let idempotent = ToolOptions { writes: true, in_doubt: Some(InDoubtPolicy::Idempotent), ..ToolOptions::default() };
    let tool = enter(&world, &pipe, ESCAPES).options(idempotent).build().unwrap();
    let agent = agent(Arc::new(tool), json!({"a": 1}));
    world.die(&agent, wait_for(&pipe));
    let escaped = Escaped::of(&world);
    let engine = world.engine(2);
    process().block_on(async {
        let session = engine.open_session("s").await.unwrap();
        let (outcome, _, notices) = resumed(&agent, &session).await;
        assert_eq!(outcome, RunOutcome::Succeeded);
        assert!(notices.iter().any(|notice| notice.contains(&escaped.text())), "{notices:?}");
    });
    assert_eq!(lines(world.path("ledger.tries")).len(), 2);
}

#[test]
fn a_process_that_only_left_its_group_is_ended_before_the_check() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "pipe");
    let held = Pipe::new(world.directory.path(), "ledger.held");
    // `timeout` makes itself a group. What it runs would enter the key sooner or later.
    let script = r#"echo try >> "$LEDGER.tries"
        if [ -e "$LEDGER.died" ]; then echo "$REKINDLE_IDEMPOTENCY_KEY" >> "$LEDGER"; echo '"entered now"'; exit; fi
        touch "$LEDGER.died"
        timeout 1000 sh -c 'exec 9> "$LEDGER.held"; echo at work > "$PIPE"; sleep 1000; echo late >> "$LEDGER"'"#;
    let agent = agent(Arc::new(enter(&world, &pipe, script).build().unwrap()), json!({"a": 1}));
    let reader = std::thread::spawn({
        let path = held.path().to_owned();
        move || std::fs::read_to_string(path).unwrap()
    });
    world.die(&agent, wait_for(&pipe));
    assert_eq!(world.go_on(&agent), Ok(json!("entered now")));
    assert_eq!(reader.join().unwrap(), "", "nobody holds it any more");
    assert_eq!((lines(world.path("ledger.tries")).len(), lines(world.path("ledger")).len()), (2, 1));
}

/// In a container, the leaders of this process's group and session are outside its namespace and have no
/// number in it.
#[test]
fn a_process_whose_session_began_outside_its_container_is_ended_too() {
    let contained = |program: &std::path::Path, arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(program).args(arguments).output()
    };
    // Where no namespaces can be made, there is nothing to test.
    if !contained("true".as_ref(), &[]).is_ok_and(|tried| tried.status.success()) {
        return;
    }
    let test = "leftovers::a_process_that_only_left_its_group_is_ended_before_the_check";
    let ran = contained(&std::env::current_exe().unwrap(), &[test, "--exact"]).unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}
