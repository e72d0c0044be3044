//! The smallest useful agent: one tool, one session in a SQLite file.
//!
//! ```text
//! cargo run -p rekindle --example first_agent
//! ```
#![allow(clippy::print_stdout)]

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::tool;
use rekindle::{Agent, Engine, Result};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;

#[derive(serde::Deserialize, JsonSchema)]
struct City {
    /// The city to look up.
    name: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let weather = tool("weather", "The weather in a city.", async |_, city: City| {
        Ok(json!({ "city": city.name, "celsius": 31, "sky": "clear" }))
    });
    // A model that follows a script, so that this works without a key.
    let model = ScriptedModel::new(
        Script::new("scripted")
            .turn(Turn::call("weather", json!({ "name": "Lisbon" })))
            .turn(Turn::text("Take a hat: it is 31 °C and clear in Lisbon.")),
    );
    let agent = Agent::builder("guide", model).system("You help travellers.").tool(weather).build()?;

    let directory = std::env::temp_dir().join(format!("rekindle-first-agent-{}", std::process::id()));
    std::fs::create_dir_all(&directory).ok();
    let engine = Engine::open(&format!("sqlite:{}/agents.db", directory.display()))?;
    let session = engine.create("trip-42").await?;

    let report = agent.run_once("What should I pack for Lisbon?", &session).await?;
    println!("{}", report.text());
    println!(
        "({:?}, {} tokens, session {} at {})",
        report.outcome,
        report.spent.input_tokens + report.spent.output_tokens,
        report.session,
        report.position()
    );
    std::fs::remove_dir_all(&directory).ok();
    Ok(())
}
