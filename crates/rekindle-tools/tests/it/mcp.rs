//! MCP servers that are programs: what their tools give, and what happens when they die.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{Retries, Tool};
use rekindle::{Event, LiveKind, RunOutcome, Secret};
use rekindle_tools::{McpServer, McpServerBuilder, ToolPolicy};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Pipe, agent, call_shared, doubt, engine, options, reads};
use crate::mcp_server::{command, variables};

struct World {
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    fn builder(&self, mode: &str) -> McpServerBuilder {
        McpServer::stdio("test", command()).environment(variables(mode, &self.directory.path().join("ledger")))
    }

    fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Soon tried again, and not waited for long.
fn quick() -> ToolPolicy {
    ToolPolicy { retries: Some(reads().retries), ..ToolPolicy::default() }
}

async fn tools(server: &McpServer) -> BTreeMap<String, Arc<dyn Tool>> {
    let tools = server.tools().await.unwrap();
    tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect()
}

#[tokio::test]
async fn results_are_what_the_server_gives() {
    let world = World::new();
    let server = world.builder("").connect().await.unwrap();
    let tools = tools(&server).await;
    assert_eq!(tools["echo"].spec().description, "Does echo.");
    let check = async |name: &str, arguments: Value, expected: Result<Value, &str>| {
        let outcome = call_shared(Arc::clone(&tools[name]), arguments).await;
        assert_eq!(outcome, expected.map_err(str::to_owned), "{name}");
    };
    check("echo", json!({"text": "$(hi) \n\u{0}"}), Ok(json!("$(hi) \n\u{0}"))).await;
    check("structured", json!({}), Ok(json!({"n": [1, 2]}))).await;
    check("fails", json!({}), Err("no such city")).await;
    check("refuses", json!({}), Err("MCP server `test`: it refused the call: no such thing")).await;
    check("garbage", json!({}), Ok(json!("after the garbage"))).await;
    let key = call_shared(Arc::clone(&tools["key"]), json!({})).await.unwrap();
    assert!(key.as_str().unwrap().len() > 8, "{key}");

    server.shutdown().await;
    assert_eq!(world.ledger().last().map(String::as_str), Some("end of input"), "it ended by itself");
    let failed = call_shared(Arc::clone(&tools["echo"]), json!({})).await.unwrap_err();
    assert_eq!(failed, "MCP server `test`: it was shut down");
}

#[tokio::test]
async fn progress_is_told() {
    let world = World::new();
    let server = world.builder("").connect().await.unwrap();
    let (engine, progress) = (engine(), Arc::clone(&tools(&server).await["progress"]));
    let session = engine.create("s").await.unwrap();
    let mut run = agent(progress, json!({})).run_with(vec!["go".into()], &session, options()).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = run.next_event().await.unwrap() {
        if let Event::Live(live) = event
            && let LiveKind::Progress { value, .. } = live.kind
        {
            told.push(value.to_value().unwrap());
        }
    }
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&json!({"progress": 1.0, "total": 2.0, "message": "on it"})), "{told:?}");
}

#[tokio::test]
async fn a_server_that_dies_is_started_again_for_what_may_be_repeated() {
    let world = World::new();
    let server = world.builder("").policy("die", ToolPolicy::reads().or(quick())).connect().await.unwrap();
    let die = Arc::clone(&tools(&server).await["die"]);
    assert_eq!(call_shared(die, json!({})).await, Ok(json!("alive again")));
    assert_eq!(world.ledger(), ["die", "die"]);
}

#[tokio::test]
async fn of_a_write_nobody_knows_and_it_is_not_repeated() {
    let world = World::new();
    let server = world.builder("").connect().await.unwrap();
    let tools = tools(&server).await;
    let asked = doubt(Arc::clone(&tools["die"]), json!({})).await;
    let expected =
        "MCP server `test`: it died during the call; it ended with exit code 7; it said last: fatal: out of luck";
    assert!(asked.contains(expected), "{asked}");
    assert_eq!(world.ledger(), ["die"], "it was called once");
    // The next call starts the server again.
    assert_eq!(call_shared(Arc::clone(&tools["echo"]), json!({"text": "x"})).await, Ok(json!("x")));
}

#[tokio::test]
async fn tries_have_a_limit() {
    let world = World::new();
    let server = world.builder("").default_policy(ToolPolicy::reads().or(quick())).connect().await.unwrap();
    let failed = call_shared(Arc::clone(&tools(&server).await["die"]), json!({"always": true})).await.unwrap_err();
    assert!(failed.contains("it died during the call") && !failed.contains("not known"), "{failed}");
    assert_eq!(world.ledger(), ["die", "die", "die"]);
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_takes_too_long_is_cancelled_there_too() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "ledger");
    let policy =
        ToolPolicy { timeout: Some(Duration::from_millis(200)), retries: Some(Retries::none()), ..ToolPolicy::reads() };
    let server = world.builder("").policy("hang", policy).connect().await.unwrap();
    let hang = Arc::clone(&tools(&server).await["hang"]);
    // What the server notes goes through the pipe: it is read to its end, line by line as it is opened.
    let (told, failed) = tokio::join!(
        async {
            let mut told = String::new();
            while !told.contains("cancelled") {
                let part = pipe.begun().await;
                told.push_str(&pipe.ended(part).await);
            }
            told
        },
        call_shared(hang, json!({}))
    );
    assert!(failed.unwrap_err().contains("did not come back within 200ms"));
    assert_eq!(told, "hang\ncancelled\n");
}

#[tokio::test]
async fn cancelling_a_run_tells_the_server() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "ledger");
    let server = world.builder("").policy("hang", ToolPolicy::reads()).connect().await.unwrap();
    let hang = Arc::clone(&tools(&server).await["hang"]);
    let engine = engine();
    let session = engine.create("s").await.unwrap();
    let run = agent(hang, json!({})).run_with(vec!["go".into()], &session, options()).await.unwrap();
    let begun = pipe.begun().await;
    assert_eq!(pipe.ended(begun).await, "hang\n");
    run.cancel("enough");
    let told = pipe.begun().await;
    assert_eq!(pipe.ended(told).await, "cancelled\n");
    assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Cancelled);
}

#[tokio::test]
async fn a_server_that_does_not_end_by_itself_is_ended() {
    let world = World::new();
    let pipe = Pipe::new(world.directory.path(), "ledger");
    let server = world.builder("stubborn").connect().await.unwrap();
    let (begun, ()) = tokio::join!(pipe.begun(), server.shutdown());
    assert_eq!(pipe.ended(begun).await, "");
}

#[tokio::test]
async fn a_server_that_does_not_come_up_says_why() {
    let world = World::new();
    let failed = async |builder: McpServerBuilder| builder.connect().await.unwrap_err().message().to_owned();
    let exit = world.builder("exit").secret_environment("TOKEN", Secret::new("hunter3-hunter3"));
    let text = failed(exit).await;
    assert!(text.starts_with("MCP server `test` (`sh -c "), "{text}");
    assert!(text.contains("it ended before it answered `initialize`; it ended with exit code 7"), "{text}");
    assert!(text.contains("it said last: fatal: no configuration, token [secret TOKEN]"), "{text}");

    let text = failed(world.builder("silent").connect_timeout(Duration::from_secs(2))).await;
    assert!(text.contains("it did not answer `initialize` within 2s"), "{text}");
    assert!(text.contains("it said last: waiting for Godot"), "{text}");

    let text = failed(McpServer::stdio("x", ["no-such-server"]).environment([("PATH", "/usr/bin")])).await;
    assert_eq!(text, "MCP server `x` (`no-such-server`): no such program `no-such-server` on PATH (/usr/bin)");
    let text = failed(McpServer::stdio("x", Vec::<String>::new()).bearer(Secret::new("abcdef")).prefix("a b")).await;
    for expected in ["there is no program", "a program takes no headers", "the prefix `a b`"] {
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn tools_are_listed_page_by_page_filtered_and_named() {
    let world = World::new();
    let names = async |builder: McpServerBuilder| -> Result<Vec<String>, String> {
        let server = builder.connect().await.unwrap();
        let tools = server.tools().await.map_err(|error| format!("{}; {}", error.message(), error.next_step()))?;
        Ok(tools.iter().map(|tool| tool.spec().name.clone()).collect())
    };
    assert_eq!(names(world.builder("pages").prefix("x-")).await.unwrap(), ["x-a", "x-b_1"]);
    assert_eq!(names(world.builder("pages").include(["b/1"])).await.unwrap(), ["b_1"]);
    assert_eq!(names(world.builder("pages").exclude(["b/1"])).await.unwrap(), ["a"]);
    let fails = async |builder: McpServerBuilder, expected: &str| {
        let failed = names(builder).await.unwrap_err();
        assert!(failed.contains(expected), "{failed}");
    };
    fails(world.builder("pages").include(["c"]), "it has no tool c; it has a, b/1").await;
    fails(world.builder("pages").policy("d", ToolPolicy::reads()), "it has no tool d").await;
    fails(world.builder("circle"), "its list of tools does not end").await;
    fails(world.builder("many"), "it has more than 1000 tools").await;
    fails(world.builder("collide"), "its tools `a.b` and `a/b` are both `a_b` here").await;
    fails(world.builder("odd-type"), "its tool `odd` cannot be used: its schema takes array").await;
    fails(world.builder("odd-schema"), "its schema is not valid").await;
    fails(world.builder("odd-schema"), "leave it out with `exclude`").await;
    assert_eq!(names(world.builder("odd-schema").exclude(["odd"])).await.unwrap(), ["echo"]);
}

#[tokio::test]
async fn what_is_said_of_tools_decides_what_may_be_repeated() {
    let world = World::new();
    let policies = async |builder: McpServerBuilder| {
        let server = builder.connect().await.unwrap();
        let tools = tools(&server).await;
        [&tools["reads"], &tools["echo"]].map(|tool| tool.options().policy())
    };
    use InDoubtPolicy::{Ask, Idempotent, ReplaySafe};
    assert_eq!(policies(world.builder("")).await, [Ask, Ask]);
    assert_eq!(policies(world.builder("").trust_annotations(true)).await, [ReplaySafe, Ask]);
    let said = world.builder("").default_policy(ToolPolicy::reads()).policy("echo", ToolPolicy::idempotent());
    assert_eq!(policies(said).await, [ReplaySafe, Idempotent]);
}

#[tokio::test]
async fn a_server_that_changes_its_tools_shows_it() {
    let world = World::new();
    let server = world.builder("changed").connect().await.unwrap();
    let before = tools(&server).await;
    assert!(!before.contains_key("more"));
    call_shared(Arc::clone(&before["echo"]), json!({"text": "x"})).await.unwrap();
    assert!(tools(&server).await.contains_key("more"));
}
