//! A person agrees to a payment, with other arguments than the model wanted.
//!
//! ```text
//! cargo run -p rekindle --example approval
//! ```
#![allow(clippy::print_stdout)]

use rekindle::operations::{Answer, answer, show};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, tool};
use rekindle::{Agent, Engine, Json, Result};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;

#[derive(serde::Deserialize, JsonSchema)]
struct Payment {
    to: String,
    cents: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let pay = tool("pay", "Pays somebody.", async |call, payment: Payment| {
        println!("  pay runs: {} cents to {} under {}", payment.cents, payment.to, call.idempotency_key());
        Ok(format!("paid {} cents to {}", payment.cents, payment.to))
    })
    .writes()
    .idempotent()
    .needs_approval(Approval { prompt: "Pay this?".into(), ..Approval::default() });
    let script = Script::new("scripted")
        .turn(Turn::call("pay", json!({ "to": "Ada", "cents": 120_000 })))
        .turn(Turn::text("Ada was paid 1,200 cents, as you corrected."));
    let agent = Agent::builder("treasurer", ScriptedModel::new(script)).tool(pay).build()?;

    let engine = Engine::memory()?;
    let session = engine.create("invoices").await?;
    let report = agent.run_once("Pay Ada's invoice.", &session).await?;
    println!("{:?}: {}", report.outcome, report.reason);

    let shown = show(&engine, session.key()).await?;
    let wait = &shown.waits[0];
    println!("  wait {}", wait.opened.wait);
    println!("  arguments {}", wait.opened.arguments.clone().unwrap_or_else(Json::null));

    let corrected = Json::parse(r#"{"to":"Ada","cents":1200}"#)?;
    let yes = Answer::approve(wait.opened.wait.clone(), wait.approve_digest, "maria").with_arguments(corrected);
    answer(&engine, session.key(), &yes).await?;
    println!("maria agrees, with two zeros less");

    let report = agent.resume(&session).await?.report().await?;
    println!("{:?}: {}", report.outcome, report.text());
    Ok(())
}
