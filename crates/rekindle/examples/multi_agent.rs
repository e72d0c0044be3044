//! An agent whose tools are agents: each call is a child session with a journal of its own.
//!
//! ```text
//! cargo run -p rekindle --example multi_agent
//! ```
#![allow(clippy::print_stdout)]

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::tool;
use rekindle::{Agent, Engine, Result, SessionQuery, SubAgent};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;

#[derive(serde::Deserialize, JsonSchema)]
struct Query {
    text: String,
}

fn researcher() -> Result<Agent> {
    let search = tool("search", "Searches the library.", async |_, query: Query| {
        Ok(format!("three books about {}", query.text))
    });
    let script = Script::new("researcher-model")
        .turn(Turn::call("search", json!({ "text": "lighthouses" })))
        .turn(Turn::text("Lighthouses were first lit with wood."));
    Agent::builder("researcher", ScriptedModel::new(script)).tool(search).build()
}

fn writer() -> Result<Agent> {
    let script = Script::new("writer-model").turn(Turn::text("Once, every light at sea was a fire."));
    Agent::builder("writer", ScriptedModel::new(script)).build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let script = Script::new("editor-model")
        .turn(Turn::call("researcher", json!({ "task": "How were lighthouses lit?" })))
        .calls([Call::new("writer", json!({ "task": "Write a first sentence about fires at sea." }))])
        .turn(Turn::text("Done: \"Once, every light at sea was a fire.\""));
    let editor = Agent::builder("editor", ScriptedModel::new(script))
        .tool(SubAgent::new(researcher()?, "Finds things out."))
        .tool(SubAgent::new(writer()?, "Writes."))
        .build()?;

    let engine = Engine::memory()?;
    let session = engine.create("essay").await?;
    println!("{}\n", editor.run_once("An essay about lighthouses, please.", &session).await?.text());

    println!("{}", session.key());
    let mut query = SessionQuery::new(engine.namespace().clone());
    query.parent = Some(session.key().clone());
    for child in engine.journal().list(&query).await?.sessions {
        println!("└─ {} ({})", child.header.key, child.status());
    }
    Ok(())
}
