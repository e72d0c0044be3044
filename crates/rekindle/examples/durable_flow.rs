//! Durable steps in plain Rust: a report that is fetched, put before a person and published. The
//! second run stands for a new process; what the first one did is not done again.
//!
//! ```text
//! cargo run -p rekindle --example durable_flow
//! ```
#![allow(clippy::print_stdout)]

use rekindle::operations::{Answer, answer};
use rekindle::wait::WaitSpec;
use rekindle::{Engine, Flow, Json, Result};

fn report() -> Flow {
    Flow::new("monthly-report", async |ctx, month: String| {
        let rows: u64 = ctx
            .step("fetch", &month, async |_| {
                println!("  fetching the rows of {month} (this happens once)");
                Ok(31)
            })
            .await?;
        let schema = Json::parse(r#"{"type":"string","enum":["publish","drop"]}"#)?;
        let question = WaitSpec::question(format!("Publish {rows} rows?")).with_schema(schema);
        let decision: String = ctx.wait("decision", &question).await?.decode()?;
        if decision == "drop" {
            return Ok("dropped".to_owned());
        }
        ctx.step("publish", &rows, async |call| {
            println!("  publishing under {}", call.idempotency_key);
            Ok(format!("{rows} rows published"))
        })
        .await
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let engine = Engine::memory()?;
    let session = engine.create("report-may").await?;

    println!("first run");
    let first = report().run_once(&"may".to_owned(), &session).await?;
    println!("  {:?}: {}", first.outcome, first.reason);

    let wait = first.waits[0].wait.clone();
    answer(&engine, session.key(), &Answer::value(wait, Json::from("publish"), "maria")).await?;

    println!("second run");
    let second = report().resume(&session).await?.report().await?;
    println!("  {:?}: {}", second.outcome, second.value.unwrap_or_else(Json::null));
    Ok(())
}
