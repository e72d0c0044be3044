//! What clients are told of the tools.

use std::sync::Arc;

use rekindle::operations::JobInput;
use rekindle::{Error, SessionHeader, SessionKey};
use rekindle_mcp::{AgentInfo, Agents, McpServer};
use serde_json::{Value, json};

use crate::kit::{Client, World};

const READING: [&str; 6] = [
    "list_resumable_sessions",
    "list_session_checkpoints",
    "inspect_checkpoint",
    "diff_checkpoints",
    "checkpoint_load",
    "checkpoint_list",
];
const CHANGING: [&str; 5] = ["fork_session", "cancel_session", "answer_wait", "delete_checkpoint", "checkpoint_save"];

/// These could be started, if they were there.
struct Promised(Vec<AgentInfo>);

impl Agents for Promised {
    fn list(&self) -> Vec<AgentInfo> {
        self.0.clone()
    }

    fn header(&self, name: &str, _: SessionKey) -> rekindle::Result<SessionHeader> {
        Err(Error::not_found(format!("there is no `{name}`")))
    }

    fn input(&self, name: &str, _: Value) -> rekindle::Result<JobInput> {
        Err(Error::not_found(format!("there is no `{name}`")))
    }
}

async fn tools(client: &mut Client) -> Vec<Value> {
    let listed = client.request("tools/list", json!({})).await;
    listed["result"]["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_tool_is_described_in_full() {
    let world = World::new();
    let tools = tools(&mut world.client().await).await;
    for name in READING.iter().chain(&CHANGING) {
        assert!(names(&tools).contains(name), "{name}");
    }
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        assert!(!tool["title"].as_str().unwrap().is_empty() && !tool["description"].as_str().unwrap().is_empty());
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name}: {hint}");
        }
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}");
            jsonschema::validator_for(&tool[schema]).unwrap();
        }
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        for (property, schema) in properties {
            // The protocol wants objects here, and models want to be told what each argument means.
            assert!(schema["description"].is_string(), "{name}: {property}");
        }
    }
    let hints = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap()["annotations"].clone();
    for name in READING {
        assert_eq!(hints(name)["readOnlyHint"], true, "{name}");
    }
    for name in CHANGING {
        assert_eq!(hints(name)["readOnlyHint"], false, "{name}");
    }
    assert_eq!(hints("delete_checkpoint")["destructiveHint"], true);
    assert_eq!(hints("checkpoint_save")["destructiveHint"], false);
    assert_eq!(hints("answer_wait")["idempotentHint"], true);
}

#[tokio::test]
async fn a_read_only_server_hides_and_refuses_what_changes() {
    let world = World::new();
    world.client().await.call("checkpoint_save", json!({"session_id": "s", "state": {"a": 1}})).await;
    let server = McpServer::builder(world.engine.clone()).read_only().build();
    let mut client = Client::initialized(server).await;
    let offered = tools(&mut client).await;
    for name in READING {
        assert!(names(&offered).contains(&name), "{name}");
    }
    for name in CHANGING {
        assert!(!names(&offered).contains(&name), "{name}");
        let message = client.invalid(name, json!({"session_id": "s", "state": {}})).await;
        assert!(message.contains("read-only"), "{message}");
    }
    assert_eq!(client.call("checkpoint_load", json!({"session_id": "s"})).await["step"], 1);
}

#[tokio::test]
async fn where_nothing_can_run_nothing_is_offered_to_run() {
    let directory = tempfile::tempdir().unwrap();
    let engine = rekindle::Engine::open(&format!("file:{}", directory.path().display())).unwrap();
    let server = McpServer::builder(engine).agents(Arc::new(Promised(Vec::new()))).build();
    let mut client = Client::initialized(server).await;
    let offered = tools(&mut client).await;
    for name in ["run_agent", "resume_session"] {
        assert!(!names(&offered).contains(&name), "{name}");
        let message = client.invalid(name, json!({"session_id": "s"})).await;
        assert!(message.contains("queue") && message.contains("sqlite:"), "{message}");
    }
    client.call("checkpoint_save", json!({"session_id": "s", "state": {}})).await;
}

#[tokio::test]
async fn models_are_told_what_can_be_started() {
    let world = World::new();
    let agent = |name: &str, description: Option<String>| AgentInfo {
        name: name.to_owned(),
        description,
        kind: "agent".to_owned(),
    };
    let agents = vec![agent("clerk", Some("Books\ntrips.".to_owned())), agent("poet", Some("la ".repeat(1_000)))];
    let server = McpServer::builder(world.engine.clone()).agents(Arc::new(Promised(agents))).build();
    let offered = tools(&mut Client::initialized(server).await).await;
    let run = offered.iter().find(|tool| tool["name"] == "run_agent").unwrap();
    assert_eq!(run["inputSchema"]["properties"]["agent"]["enum"], json!(["clerk", "poet"]));
    let description = run["description"].as_str().unwrap();
    assert!(description.contains("\n- `clerk` (agent): Books trips.\n- `poet` (agent): la la"), "{description}");
    assert!(description.len() < 2_000);
}

/// What clients rely on changes on purpose or not at all: `UPDATE_GOLDEN=1` writes it anew.
#[tokio::test]
async fn the_tools_are_as_published() {
    let world = World::new();
    let server = McpServer::builder(world.engine.clone()).agents(Arc::new(Promised(Vec::new()))).build();
    let offered = tools(&mut Client::initialized(server).await).await;
    let mut text = serde_json::to_string_pretty(&offered).unwrap();
    text.push('\n');
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tools.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == text, "{} differs: run the test with UPDATE_GOLDEN=1", path.display());
}
