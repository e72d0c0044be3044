//! Middleware with state of its own: a second look at everything that is about to be written.
//!
//! ```text
//! cargo run -p rekindle --example custom_middleware
//! ```
#![allow(clippy::print_stdout)]

use async_trait::async_trait;
use rekindle::message::{ToolCall, ToolResult};
use rekindle::middleware::{Gate, Middleware, MiddlewareState, Scope, StateSpec};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::tool;
use rekindle::{Agent, Engine, Json, Result};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;

/// Keeps mails inside the company, counts them over the whole session, and signs what was sent.
#[derive(Debug)]
struct MailPolicy;

#[async_trait]
impl Middleware for MailPolicy {
    fn name(&self) -> &str {
        "mail-policy"
    }

    fn state(&self) -> StateSpec {
        StateSpec { scope: Scope::Session, ..StateSpec::default() }
    }

    async fn before_tool(&self, state: &mut MiddlewareState, call: &mut ToolCall) -> Result<Gate> {
        let to = call.arguments.to_value()?["to"].as_str().unwrap_or_default().to_owned();
        if !to.ends_with("@example.com") {
            return Ok(Gate::Deny(format!("{to} is outside the company")));
        }
        let sent: u32 = state.get()?.unwrap_or(0);
        state.set(&(sent + 1))?;
        Ok(Gate::Open)
    }

    async fn after_tool(&self, _call: &ToolCall, result: &mut ToolResult) -> Result<()> {
        if !result.error {
            let text: String = result.content.decode()?;
            result.content = Json::from(format!("{text} (checked by mail-policy)").as_str());
        }
        Ok(())
    }
}

#[derive(serde::Deserialize, JsonSchema)]
struct Mail {
    to: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mail = tool("mail", "Sends a mail.", async |_, mail: Mail| Ok(format!("sent to {}", mail.to))).writes();
    let to = |to: &str| Call::new("mail", json!({ "to": to }));
    let script = Script::new("scripted")
        .calls([to("ada@example.com"), to("mallory@elsewhere.net"), to("bob@example.com")])
        .turn(Turn::text("Two mails went out; one was not allowed."));
    let agent = Agent::builder("clerk", ScriptedModel::new(script)).tool(mail).middleware(MailPolicy).build()?;

    let engine = Engine::memory()?;
    let session = engine.create("mails").await?;
    let report = agent.run_once("Tell everybody.", &session).await?;

    let state = engine.journal().load(session.key(), None).await?.state;
    for message in Agent::messages(&state)? {
        for result in message.results() {
            println!("{} {}", if result.error { "✗" } else { "✓" }, result.content);
        }
    }
    println!("{}", report.text());
    println!("kept: {}", state.register("middleware/mail-policy").cloned().unwrap_or_else(Json::null));
    Ok(())
}
