//! Graphs that began elsewhere and go on here.

use std::fs;
use std::path::Path;

use rekindle::graph::{Graph, GraphResult, NodeSpec, Work};
use rekindle::operations;
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Agent, CheckpointId, Result, ResumeOptions, Role, RunOutcome, Session};
use rekindle_import::{ImportOptions, ImportReport};
use rekindle_models::{By, Script, ScriptedModel};
use serde_json::{Map, Value, json};

use crate::kit::{copy, inspect, register};
use crate::support::{Kind, Ledger, World};

const SESSION: &str = "session_20260208_143022_abc12345";
const START: &str = "checkpoint_20260208_143023_aaa111";
const COMPLETE: &str = "checkpoint_20260208_143030_xyz123";
const NEXT: &str = "checkpoint_20260208_143045_abc789";

#[derive(serde::Deserialize, JsonSchema)]
struct Anything {
    #[serde(flatten)]
    all: Map<String, Value>,
}

/// A tool that notes what it is given and says that it was there.
fn noting(ledger: &Ledger, name: &'static str) -> FnTool<Anything> {
    let ledger = ledger.clone();
    tool(name, "Notes.", move |_, of: Anything| {
        ledger.write(&format!("{name} {}", Value::Object(of.all)));
        async move { Ok::<_, ToolError>(format!("{name} here")) }
    })
    .writes()
}

fn agent(id: &str, prompt: &str) -> NodeSpec {
    NodeSpec::new(id, Work::Agent { agent: "researcher".into(), prompt: prompt.into(), continues: true })
}

/// The graph the fixture is of: its end needs an audience, which no checkpoint has.
fn graph(ledger: &Ledger, script: Script, analyzer: impl FnOnce(NodeSpec) -> NodeSpec) -> (Graph, ScriptedModel) {
    let model = ScriptedModel::new(script.by(By::Calls));
    let researcher = Agent::builder("researcher", model.clone());
    let researcher = researcher.tool(noting(ledger, "search")).tool(noting(ledger, "fetch")).build().unwrap();
    let analyse = agent("analyzer", "Analyse ${memory.handles}.").reads(["handles"]).save("analysis", "");
    let graph = Graph::builder("research")
        .inputs(["topic", "audience", "depth"])
        .tool(noting(ledger, "start"))
        .tool(noting(ledger, "report"))
        .agent(researcher)
        .node(NodeSpec::tool("start", "start"))
        .node(agent("collector", "Collect handles about ${memory.topic}.").reads(["topic"]).save("handles", ""))
        .node(analyzer(analyse))
        .node(
            NodeSpec::tool("report", "report")
                .with("analysis", "${memory.analysis}")
                .with("audience", "${memory.audience}")
                .reads(["analysis", "audience"])
                .save("page", ""),
        )
        .path(["start", "collector", "analyzer", "report"])
        .build()
        .unwrap();
    (graph, model)
}

/// A message of a conversation, by its number.
fn say(directory: &Path, node: &str, number: usize, message: Value) {
    let folder = directory.join(format!("sessions/{SESSION}/conversations/{node}/parts"));
    fs::create_dir_all(&folder).unwrap();
    let mut message = message;
    message["seq"] = json!(number);
    fs::write(folder.join(format!("{number:010}.json")), message.to_string()).unwrap();
}

/// Calls of `fetch`, by id.
fn calls(of: &[(&str, Value)]) -> Value {
    let call = |(id, arguments): &(&str, Value)| json!({"id": id, "type": "function", "function": {"name": "fetch", "arguments": arguments.to_string()}});
    json!({"role": "assistant", "content": "", "tool_calls": of.iter().map(call).collect::<Vec<_>>()})
}

fn result(call: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_use_id": call, "content": content})
}

/// The analyzer has made one of two calls.
fn between_calls(directory: &Path) {
    say(directory, "analyzer", 1, calls(&[("t2", json!({"of": "@user1"})), ("t3", json!({"of": "@user2"}))]));
    say(directory, "analyzer", 2, result("t2", "first page"));
}

fn change(directory: &Path, id: &str, change: impl FnOnce(&mut Value)) {
    let path = directory.join(format!("sessions/{SESSION}/checkpoints/{id}.json"));
    let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut object);
    fs::write(path, object.to_string()).unwrap();
}

/// The fixture, changed, imported.
async fn imported(world: &World, change: impl FnOnce(&Path)) -> (Session, ImportReport) {
    let directory = copy("session_directory/deep_research_agent");
    change(directory.path());
    let engine = world.engine();
    let report = rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    (engine.open_session(SESSION).await.unwrap(), report)
}

async fn resume_with(graph: &Graph, session: &Session, options: ResumeOptions) -> Result<GraphResult> {
    let report = graph.resume_with(session, options).await?.report().await?;
    graph.result(session, report).await
}

/// With the key that is missing.
fn given() -> ResumeOptions {
    ResumeOptions::new("maria").set("audience", "all")
}

fn from(checkpoint: &str) -> ResumeOptions {
    given().from_checkpoint(CheckpointId::new(checkpoint).unwrap())
}

fn roles(result: &GraphResult, node: &str) -> Vec<Role> {
    result.state.conversations[node].iter().map(|message| message.role).collect()
}

const REPORT: &str = r#"report {"analysis":"All good.","audience":"all"}"#;

#[tokio::test]
async fn a_conversation_goes_on_where_it_was_and_no_finished_call_is_repeated() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let (session, _) = imported(&world, between_calls).await;
        let (graph, model) = graph(&world.ledger(), Script::new("m").text("All good."), |node| node);
        let result = resume_with(&graph, &session, given()).await.unwrap();
        assert!(result.success, "{:?}", result.error);
        assert_eq!(world.ledger().lines(), [r#"fetch {"of":"@user2"}"#, REPORT]);
        let asked = model.requests();
        assert_eq!((asked.len(), asked[0].messages), (1, 4), "what was said before is sent, and no new prompt");
        assert_eq!(roles(&result, "analyzer"), [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
        assert_eq!(result.state.conversations["analyzer"][0].text(), "Analyse them.");
        assert_eq!(result.state.execution_path(), ["start", "collector", "analyzer", "report"]);
        let steps: Vec<_> = result.state.path.iter().map(|visited| (visited.step, visited.visit)).collect();
        assert_eq!(steps, [(1, 1), (2, 1), (3, 1), (4, 1)]);
        assert!(result.state.visits.values().all(|visits| *visits == 1), "{:?}", result.state.visits);
        assert_eq!(result.get::<String>("topic").unwrap().as_deref(), Some("rust"));
        assert_eq!(result.get::<String>("page").unwrap().as_deref(), Some("report here"));
        assert_eq!(result.state.metrics.total_retries, 2);
        assert_eq!(graph.resume_once(&session).await.unwrap_err().code(), "RK0010", "it has come to its end");
    }
}

#[tokio::test]
async fn a_finished_call_with_a_secret_in_it_is_recognised() {
    let world = World::new(Kind::Memory);
    let (session, report) = imported(&world, |directory| {
        let secret = json!({"of": "@user1", "api_key": "sk-secret"});
        say(directory, "analyzer", 1, calls(&[("t2", secret), ("t3", json!({"of": "@user2"}))]));
        say(directory, "analyzer", 2, result("t2", "first page"));
    })
    .await;
    assert!(report.redacted.iter().any(|gone| gone.key == "api_key"));
    let (graph, _) = graph(&world.ledger(), Script::new("m").text("All good."), |node| node);
    assert!(resume_with(&graph, &session, given()).await.unwrap().success);
    assert_eq!(world.ledger().lines(), [r#"fetch {"of":"@user2"}"#, REPORT]);
}

#[tokio::test]
async fn a_conversation_that_has_its_answer_is_not_held_again() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, |directory| {
        say(directory, "analyzer", 2, result("t2", "first page"));
        say(directory, "analyzer", 3, json!({"role": "assistant", "content": "All good."}));
    })
    .await;
    let (graph, model) = graph(&world.ledger(), Script::new("m"), |node| node);
    let result = resume_with(&graph, &session, given()).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [REPORT]);
    assert!(model.requests().is_empty());
    assert_eq!(result.get::<String>("analysis").unwrap().as_deref(), Some("All good."));
}

#[tokio::test]
async fn outputs_that_were_given_are_not_asked_for_again() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, |directory| {
        between_calls(directory);
        let cursor = directory.join(format!("sessions/{SESSION}/conversations/analyzer/cursor.json"));
        fs::write(cursor, r#"{"outputs": {"score": 7}}"#).unwrap();
    })
    .await;
    let (graph, model) = graph(&world.ledger(), Script::new("m").text("All good."), |node| node.writes(["score"]));
    let result = resume_with(&graph, &session, given()).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!((model.requests().len(), result.get::<u32>("score").unwrap()), (1, Some(7)));
}

#[tokio::test]
async fn a_node_without_a_mark_of_its_start_goes_on_too() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, |directory| {
        between_calls(directory);
        fs::remove_file(directory.join(format!("sessions/{SESSION}/checkpoints/{NEXT}.json"))).unwrap();
        fs::remove_file(directory.join(format!("sessions/{SESSION}/checkpoints/index.json"))).unwrap();
        change(directory, COMPLETE, |object| object["next_node"] = json!("analyzer"));
    })
    .await;
    let (graph, model) = graph(&world.ledger(), Script::new("m").text("All good."), |node| node);
    let result = resume_with(&graph, &session, given()).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [r#"fetch {"of":"@user2"}"#, REPORT]);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn an_agent_that_does_not_continue_begins_its_node_anew() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, between_calls).await;
    let (graph, model) = graph(&world.ledger(), Script::new("m").text("All good."), |mut node| {
        let prompt = "Analyse ${memory.handles}.".to_owned();
        node.work = Work::Agent { agent: "researcher".into(), prompt, continues: false };
        node
    });
    let result = resume_with(&graph, &session, given()).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [REPORT]);
    assert_eq!(model.requests()[0].messages, 1);
}

/// A second visit of the collector is next; its conversation is `said` from that message on.
async fn second_visit(first: usize, said: &[Value], expected: &str) -> (Vec<String>, Vec<usize>) {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, |directory| {
        change(directory, NEXT, |object| {
            object["current_node"] = json!("collector");
            object["execution_path"] = json!(["start", "collector", "collector"]);
        });
        said.iter().enumerate().for_each(|(number, said)| say(directory, "collector", first + number, said.clone()));
    })
    .await;
    let next = inspect(&world.engine(), session.key(), NEXT).await;
    assert_eq!(register(&next, "strand/0")["phase"], expected, "{said:?}");
    let script = Script::new("m").text("@user3").text("All good.");
    let (graph, model) = graph(&world.ledger(), script, |node| node);
    let result = resume_with(&graph, &session, given()).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(result.state.execution_path(), ["start", "collector", "collector", "analyzer", "report"]);
    assert_eq!((result.state.path[2].visit, result.state.visits["collector"]), (2, 2));
    assert_eq!(result.get::<String>("handles").unwrap().as_deref(), Some("@user3"));
    (world.ledger().lines(), model.requests().iter().map(|asked| asked.messages).collect())
}

#[tokio::test]
async fn a_second_visit_is_not_taken_for_done_with_what_the_first_one_said() {
    let (made, asked) = second_visit(4, &[], "ready").await;
    assert_eq!((made, asked[0]), (vec![REPORT.to_owned()], 5), "a prompt of its own behind four messages");
    let done = [calls(&[("t1", json!({})), ("t7", json!({}))]), result("t1", "a"), result("t7", "b")];
    let (made, asked) = second_visit(1, &done, "ready").await;
    assert_eq!((made, asked[0]), (vec![REPORT.to_owned()], 5), "the first visit ended without an answer");
    let user = json!({"role": "user", "content": "Collect more."});
    let (made, asked) = second_visit(4, std::slice::from_ref(&user), "running").await;
    assert_eq!((made, asked[0]), (vec![REPORT.to_owned()], 5), "the prompt that was there");
    let open = calls(&[("t8", json!({"of": "a"})), ("t9", json!({"of": "b"}))]);
    let (made, asked) = second_visit(4, &[user, open, result("t8", "a page")], "running").await;
    assert_eq!((made, asked[0]), (vec![r#"fetch {"of":"b"}"#.to_owned(), REPORT.to_owned()], 8));
}

#[tokio::test]
async fn an_earlier_checkpoint_is_resumed_on_a_branch_of_its_own() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, between_calls).await;
    let (graph, model) = graph(&world.ledger(), Script::new("m").text("All good."), |node| node);
    let result = resume_with(&graph, &session, from(COMPLETE)).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [REPORT], "the analyzer began anew, the collector did not");
    assert_eq!(model.requests()[0].messages, 1);
    assert!(model.requests()[0].last.contains("@user1"), "{:?}", model.requests()[0].last);
    assert_eq!(result.state.conversations["collector"].len(), 4);
    assert_eq!(result.state.execution_path(), ["start", "collector", "analyzer", "report"]);
    assert!(result.get::<Value>("login").unwrap().is_none(), "the memory is that of the checkpoint");
    assert_eq!(operations::log(&world.engine(), session.key(), 10).await.unwrap().branches.len(), 2);
}

#[tokio::test]
async fn the_first_checkpoint_is_resumed_with_its_node() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, between_calls).await;
    let script = Script::new("m").text("@user3").text("All good.");
    let (graph, model) = graph(&world.ledger(), script, |node| node);
    let result = resume_with(&graph, &session, from(START)).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [REPORT]);
    assert_eq!(model.requests()[0].last, "Collect handles about rust.");
    assert_eq!(result.state.visits["collector"], 1);
}

#[tokio::test]
async fn a_missing_key_is_named_and_can_be_set() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, |_| {}).await;
    let script = || Script::new("m").text("All good.").text("All good.");
    let needs = |node: NodeSpec| node.reads(["depth"]);
    // A node that is next is refused before anything runs …
    let (graph_1, model) = graph(&world.ledger(), script(), needs);
    let error = resume_with(&graph_1, &session, from(COMPLETE)).await.unwrap_err();
    assert_eq!(error.code(), "RK0010");
    assert!(error.message().contains("`depth`") && error.next_step().contains("set depth"), "{error}");
    // … and one that has begun fails, until it is there.
    let result = resume_with(&graph_1, &session, given()).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Failed);
    assert!(result.error.unwrap().contains("`depth` is missing"));
    assert!(model.requests().is_empty() && world.ledger().lines().is_empty());
    let result = resume_with(&graph_1, &session, given().set("depth", "2")).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [r#"fetch {"of":"@user1"}"#, REPORT]);
    assert_eq!(result.get::<u32>("depth").unwrap(), Some(2));
    let (graph_2, _) = graph(&world.ledger(), script(), needs);
    let result = resume_with(&graph_2, &session, from(COMPLETE).set("depth", "3")).await.unwrap();
    assert!(result.success, "{:?}", result.error);
}

#[tokio::test]
async fn a_graph_without_the_node_it_stands_at_is_refused() {
    let world = World::new(Kind::Memory);
    let (session, _) = imported(&world, between_calls).await;
    let start = Graph::builder("research").tool(noting(&world.ledger(), "start"));
    let other = start.node(NodeSpec::tool("start", "start")).build().unwrap();
    let error = other.resume_once(&session).await.unwrap_err();
    assert_eq!(error.code(), "RK0009");
    assert!(error.message().contains("`analyzer`"), "{error}");
}
