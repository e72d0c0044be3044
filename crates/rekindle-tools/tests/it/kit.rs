//! What these tests share: one call of a tool through the engine, and pipes to wait for processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle::message::ToolResult;
use rekindle::tool::{Retries, Tool, ToolOptions};
use rekindle::{Agent, Engine, Json, Message, ResumeOptions, Secret, SecretRef, SecretSource, Session};
use rekindle_models::{Script, ScriptedModel};
use serde_json::{Value, json};

/// A secret of every session here, as `token`.
pub const SECRET: &str = "hunter2-hunter2";

#[derive(Debug)]
struct Vault;

impl SecretSource for Vault {
    fn resolve(&self, _: &SecretRef) -> rekindle::Result<Secret> {
        Ok(Secret::new(SECRET))
    }
}

/// An engine with secrets.
pub fn engine() -> Engine {
    Engine::memory().unwrap().with_secrets(Vault)
}

pub fn options() -> ResumeOptions {
    ResumeOptions::new("maria").secret("token", "@vault:a").unwrap()
}

/// An agent that calls a tool once.
pub fn agent(tool: Arc<dyn Tool>, arguments: Value) -> Agent {
    let name = tool.spec().name.clone();
    let model = ScriptedModel::new(Script::new("m").call(name, arguments).text("done"));
    Agent::builder("a", model).shared_tool(tool).build().unwrap()
}

/// What a call comes to: its result, or why it failed.
pub async fn call(tool: impl Tool, arguments: Value) -> Result<Value, String> {
    call_shared(Arc::new(tool), arguments).await
}

pub async fn call_shared(tool: Arc<dyn Tool>, arguments: Value) -> Result<Value, String> {
    let engine = engine();
    let session = engine.create("s").await.unwrap();
    let agent = agent(tool, arguments);
    let run = agent.run_with(vec!["go".into()], &session, options()).await.unwrap();
    assert_eq!(run.report().await.unwrap().text(), "done");
    outcome(&results(&engine, &session).await[0])
}

/// What a person is asked about a call in doubt.
pub async fn doubt(tool: Arc<dyn Tool>, arguments: Value) -> String {
    let session = engine().create("s").await.unwrap();
    let run = agent(tool, arguments).run_with(vec!["go".into()], &session, options()).await.unwrap();
    let report = run.report().await.unwrap();
    let [wait] = &report.waits[..] else { panic!("{report:?}") };
    wait.prompt.clone()
}

pub fn outcome(result: &ToolResult) -> Result<Value, String> {
    match result.error {
        true => Err(result.content.decode::<String>().unwrap_or_else(|_| result.content.to_string())),
        false => Ok(result.content.to_value().unwrap()),
    }
}

pub async fn results(engine: &Engine, session: &Session) -> Vec<ToolResult> {
    let state = engine.journal().load(session.key(), None).await.unwrap().state;
    Agent::messages(&state).unwrap().iter().flat_map(Message::results).cloned().collect()
}

/// A tool that may be repeated, and soon.
pub fn reads() -> ToolOptions {
    let (first_pause, longest_pause) = (Duration::from_millis(1), Duration::from_millis(1));
    let retries = Retries { first_pause, longest_pause, ..Retries::default() };
    ToolOptions { retries, ..ToolOptions::default() }
}

/// A schema with these properties, none of them needed.
pub fn schema(names: &[&str]) -> Json {
    let properties: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    Json::from(json!({"type": "object", "properties": properties}))
}

/// A named pipe. Whoever waits for its end waits for the end of all who write to it.
pub struct Pipe(PathBuf);

impl Pipe {
    pub fn new(directory: &Path, name: &str) -> Self {
        let path = directory.join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Waits until somebody writes to it.
    pub async fn begun(&self) -> std::fs::File {
        let path = self.0.clone();
        tokio::task::spawn_blocking(move || std::fs::File::open(path).unwrap()).await.unwrap()
    }

    /// Waits until nobody writes to it any more.
    pub async fn ended(&self, mut pipe: std::fs::File) -> String {
        let mut text = String::new();
        tokio::task::spawn_blocking(move || {
            std::io::Read::read_to_string(&mut pipe, &mut text).unwrap();
            text
        })
        .await
        .unwrap()
    }
}
