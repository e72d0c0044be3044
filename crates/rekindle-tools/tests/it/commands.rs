//! Programs: what they are given, what comes of them, and that they end.

use std::time::Duration;

use rekindle::RunOutcome;
use rekindle::tool::{Retries, ToolOptions};
use rekindle_tools::{CommandOutput, CommandTool, CommandToolBuilder, Stdin};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Pipe, SECRET, agent, call, engine, options, reads, schema};

const HOSTILE: [&str; 8] =
    ["; rm -rf /", "$(id)", "`id`", "a\nb\n", "'\"\\", "${session}", "*", "%s %n 💥 \u{7f}\u{1b}[0m"];

fn tool(names: &[&str]) -> CommandToolBuilder {
    CommandTool::builder("t", "Runs.").parameters(schema(names)).options(reads())
}

#[tokio::test]
async fn hostile_values_are_arguments_and_nothing_else() {
    for value in HOSTILE {
        let printf = tool(&["a"]).command(["printf", "%s", "${arguments.a}"]).output(CommandOutput::Text);
        assert_eq!(call(printf.build().unwrap(), json!({"a": value})).await, Ok(json!(value)));
        let shell = tool(&["a"]).shell(r#"printf %s "$REKINDLE_ARG_A""#).output(CommandOutput::Text);
        assert_eq!(call(shell.build().unwrap(), json!({"a": value})).await, Ok(json!(value)));
        let stdin = tool(&["a"]).command(["cat"]).stdin(Stdin::Text("${arguments.a}".into()));
        let stdin = stdin.output(CommandOutput::Text).build().unwrap();
        assert_eq!(call(stdin, json!({"a": value})).await, Ok(json!(value)));
    }
    let printf = tool(&["a"]).command(["printf", "%s", "${arguments.a}"]).build().unwrap();
    let nul = call(printf.clone(), json!({"a": "x\u{0}y"})).await.unwrap_err();
    assert!(nul.contains("NUL"), "{nul}");
    let dash = call(printf, json!({"a": "--help"})).await.unwrap_err();
    assert!(dash.contains("could take it for an option"), "{dash}");
}

#[tokio::test]
async fn lists_become_arguments_and_what_is_missing_disappears() {
    let script = r#"for a in "$@"; do printf '<%s>' "$a"; done"#;
    let sh = tool(&["a", "b"]).command(["sh", "-c", script, "sh", "${arguments.a}", "${arguments.b}", "n"]);
    let sh = sh.output(CommandOutput::Text).build().unwrap();
    assert_eq!(call(sh.clone(), json!({"a": ["x y", 1, true]})).await, Ok(json!("<x y><1><true><n>")));
    assert_eq!(call(sh, json!({"b": ""})).await, Ok(json!("<><n>")));
}

#[tokio::test]
async fn a_program_gets_the_variables_it_is_given_and_no_others() {
    let env = tool(&["a"])
        .command(["env"])
        .environment_base([("PATH", "/usr/bin:/bin"), ("LANG", "C")])
        .environment("CITY", "in ${arguments.a}")
        .environment("MISSING", "${arguments.b}")
        .secret_environment("TOKEN", "token")
        .output(CommandOutput::Text)
        .parameters(schema(&["a", "b"]))
        .build()
        .unwrap();
    let text = call(env, json!({"a": "Oslo"})).await.unwrap();
    let mut lines: Vec<_> = text.as_str().unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert_eq!(lines[0], "CITY=in Oslo");
    assert_eq!(lines[1..3], ["LANG=C", "PATH=/usr/bin:/bin"]);
    assert!(lines[3].strip_prefix("REKINDLE_FENCE=").is_some_and(|epoch| epoch.parse::<u64>().is_ok()), "{lines:?}");
    assert!(lines[4].starts_with("REKINDLE_IDEMPOTENCY_KEY=") && lines[4].len() > 30);
    assert_eq!(lines[5], "REKINDLE_SESSION=s");
    assert_eq!(lines[6], "TOKEN=[secret token]", "the program had it, the journal has not");
}

#[tokio::test]
async fn the_result_is_what_was_asked_for() {
    let script = "echo out; echo err >&2; exit 4";
    let sh = tool(&[]).command(["sh", "-c", script]).accept_exit_codes([4]);
    let full = json!({"exit_code": 4, "stdout": "out\n", "stderr": "err\n"});
    assert_eq!(call(sh.build().unwrap(), json!({})).await, Ok(full));

    let json = |script: &str| tool(&["a"]).shell(script).stdin(Stdin::Arguments).output(CommandOutput::Json);
    assert_eq!(call(json("cat").build().unwrap(), json!({"a": [1, "x"]})).await, Ok(json!({"a": [1, "x"]})));
    let not_json = call(json("echo hello").build().unwrap(), json!({})).await.unwrap_err();
    assert!(not_json.starts_with("`sh` did not write JSON (") && not_json.ends_with("but: hello"), "{not_json}");

    let bytes = tool(&[]).command(["printf", r"a\377b"]).output(CommandOutput::Text).build().unwrap();
    assert_eq!(call(bytes, json!({})).await, Ok(json!("a\u{fffd}b")));
}

#[tokio::test]
async fn a_failure_says_how_it_ended_and_the_last_it_said() {
    let check = async |script: &str, expected: &str| {
        let sh = tool(&[]).command(["sh", "-c", script]).build().unwrap();
        assert_eq!(call(sh, json!({})).await, Err(expected.to_owned()));
    };
    check("echo out; echo no such user >&2; exit 2", "`sh` ended with exit code 2: no such user").await;
    check("echo only out; exit 1", "`sh` ended with exit code 1: only out").await;
    check("exit 9", "`sh` ended with exit code 9").await;
    check("kill -9 $$", "`sh` was ended by signal 9 (SIGKILL)").await;
}

#[tokio::test]
async fn of_long_output_the_beginning_and_the_end_are_kept() {
    let script = "echo begin; yes | head -c 10000000; echo; echo end; echo oops >&2";
    let sh = tool(&[]).command(["sh", "-c", script]).output_limit(1000).build().unwrap();
    let value = call(sh, json!({})).await.unwrap();
    let text = value["stdout"].as_str().unwrap();
    assert!(text.starts_with("begin\ny\n") && text.ends_with("\nend\n") && text.len() < 1100, "{}", text.len());
    assert!(text.contains("bytes left out"));
    assert_eq!((&value["truncated"], &value["stderr"]), (&json!(true), &json!("oops\n")));
}

#[tokio::test]
async fn a_program_that_does_not_read_or_leaves_others_behind_is_no_trouble() {
    let big = "x".repeat(1 << 20);
    let head = tool(&["a"]).command(["head", "-c", "3"]).stdin(Stdin::Text("${arguments.a}".into()));
    let head = head.output(CommandOutput::Text).build().unwrap();
    assert_eq!(call(head, json!({"a": big})).await, Ok(json!("xxx")));

    // It would hold the output open for good.
    let left = tool(&[]).shell("sleep 1000 & echo done").output(CommandOutput::Text).build().unwrap();
    assert_eq!(call(left, json!({})).await, Ok(json!("done\n")));
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let directory = TempDir::new().unwrap();
    let gone = directory.path().join("gone");
    let program = tool(&[]).command(["no-such-program-here"]).environment_base([("PATH", "/usr/bin")]).build().unwrap();
    let expected = "no such program `no-such-program-here` on PATH (/usr/bin)";
    assert_eq!(call(program.clone(), json!({})).await, Err(expected.to_owned()));
    assert_eq!(program.check_installed().unwrap_err().message(), format!("tool `t`: {expected}"));

    let relative = tool(&[]).command(["./tool.sh"]).directory(directory.path()).build().unwrap();
    let expected = format!("no such program `./tool.sh` in `{}`", directory.path().display());
    assert_eq!(call(relative, json!({})).await, Err(expected));

    let nowhere = tool(&[]).command(["true"]).directory(&gone).build().unwrap();
    let expected = format!("no such directory `{}`", gone.display());
    assert_eq!(call(nowhere.clone(), json!({})).await, Err(expected.clone()));
    assert!(nowhere.check_installed().unwrap_err().message().contains(&expected));

    let pwd = tool(&[]).command(["pwd"]).directory(directory.path()).output(CommandOutput::Text).build().unwrap();
    assert!(pwd.check_installed().unwrap().is_absolute());
    let there = directory.path().canonicalize().unwrap();
    assert_eq!(call(pwd, json!({})).await, Ok(json!(format!("{}\n", there.display()))));
}

#[test]
fn every_fault_of_a_declaration_is_named() {
    let faults = |builder: CommandToolBuilder| builder.build().unwrap_err().message().to_owned();
    let both = faults(CommandTool::builder("a b", "").command(["x"]).shell("y"));
    assert!(both.contains("a name has 1 to 64") && both.contains("both a command and a script"), "{both}");
    let check = |builder: CommandToolBuilder, expected: &str| {
        let found = faults(builder);
        assert!(found.contains(expected), "{found}");
    };
    check(tool(&[]), "neither a command nor a script");
    check(tool(&[]).command(Vec::<String>::new()), "there is no program");
    check(tool(&["a"]).command(["${arguments.a}"]), "the program itself cannot be a reference");
    check(tool(&["a"]).command(["x", "${arguments.b}"]), "`${arguments.b}` is not among the parameters");
    check(tool(&["a"]).command(["x", "${arguments.a"]), "has no closing brace");
    check(tool(&[]).command(["x", "${secrets.t}"]), "allowed in headers and environment variables only");
    check(tool(&[]).command(["x"]).environment("A=B", "c"), "`A=B` is no name of a variable");
    check(tool(&["a-b", "a_b"]).shell("x"), "are both `REKINDLE_ARG_A_B`");
    let asks = ToolOptions { in_doubt: Some(rekindle::core::record::InDoubtPolicy::Check), ..ToolOptions::default() };
    check(tool(&[]).command(["x"]).options(asks), "the policy `check` needs a `check_command`");
}

/// A program that ignores `SIGTERM`, with a child that writes to a pipe as long as it lives.
fn stubborn(pipe: &Pipe) -> CommandToolBuilder {
    let script = r#"trap '' TERM; sh -c 'trap "" TERM; while :; do sleep 1000; done' > "$PIPE" & wait; sleep 1000"#;
    let sh = tool(&[]).shell(script).environment_base([("PATH", "/usr/bin:/bin"), ("PIPE", pipe.path())]);
    sh.kill_grace(Duration::from_millis(20))
}

#[tokio::test]
async fn a_timeout_ends_the_whole_process_group() {
    let directory = TempDir::new().unwrap();
    let pipe = Pipe::new(directory.path(), "pipe");
    // Long enough for the program to come up on a busy machine.
    let timeout = Some(Duration::from_secs(2));
    let sleeper = stubborn(&pipe).options(ToolOptions { timeout, retries: Retries::none(), ..ToolOptions::default() });
    let (begun, failed) = tokio::join!(pipe.begun(), call(sleeper.build().unwrap(), json!({})));
    assert!(failed.unwrap_err().contains("did not come back within 2s"));
    assert_eq!(pipe.ended(begun).await, "");
}

#[tokio::test]
async fn cancelling_a_run_ends_the_whole_process_group() {
    let directory = TempDir::new().unwrap();
    let pipe = Pipe::new(directory.path(), "pipe");
    let engine = engine();
    let session = engine.create("s").await.unwrap();
    let agent = agent(std::sync::Arc::new(stubborn(&pipe).build().unwrap()), json!({}));
    let run = agent.run_with(vec!["go".into()], &session, options()).await.unwrap();
    let begun = pipe.begun().await;
    run.cancel("enough");
    assert_eq!(pipe.ended(begun).await, "");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
}

#[tokio::test]
async fn secrets_stay_out_of_failures() {
    let leak = tool(&[]).shell(r#"echo "bad token $TOKEN" >&2; exit 1"#).secret_environment("TOKEN", "token");
    let failed = call(leak.build().unwrap(), json!({})).await.unwrap_err();
    assert_eq!(failed, "`sh` ended with exit code 1: bad token [secret token]");
    let missing = tool(&[]).command(["true"]).secret_environment("TOKEN", "other").build().unwrap();
    let failed: String = call(missing, Value::Object(Default::default())).await.unwrap_err();
    assert!(failed.contains("no secret `other` was given") && !failed.contains(SECRET), "{failed}");
}
