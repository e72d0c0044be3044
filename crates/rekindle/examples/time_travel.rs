//! Going back to an earlier moment and on from there, with nothing lost.
//!
//! ```text
//! cargo run -p rekindle --example time_travel
//! ```
#![allow(clippy::print_stdout)]

use rekindle::operations::{At, HistoryOptions, diff, history, log};
use rekindle::{Agent, Engine, Result, ResumeOptions};
use rekindle_models::{Script, ScriptedModel, Turn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let script = Script::new("scripted")
        .turn(Turn::text("Lisbon."))
        .turn(Turn::text("In May.").when_last_contains("when?"))
        .turn(Turn::text("In October, when it is quiet.").when_last_contains("not in spring"));
    let agent = Agent::builder("planner", ScriptedModel::new(script)).build()?;
    let engine = Engine::memory()?;
    let session = engine.create("trip").await?;
    agent.run_once("Where should I go?", &session).await?;
    agent.run_once("And when?", &session).await?;

    println!("history");
    let page = history(&engine, session.key(), &HistoryOptions::default()).await?;
    for checkpoint in &page.checkpoints {
        println!("  {} {}", checkpoint.position, checkpoint.checkpoint.description);
    }
    let Some(first) = page.checkpoints.last() else { return Ok(()) };
    let first = first.checkpoint.id.clone();

    println!("\nback to the first answer, and on from there");
    let options = ResumeOptions::new("maria").from_checkpoint(first);
    let message = "And when, if not in spring?";
    let report = agent.run_with(vec![message.into()], &session, options).await?.report().await?;
    println!("  {} says: {}", report.branch, report.text());

    println!("\nboth are there");
    for branch in log(&engine, session.key(), 10).await?.branches {
        let from = branch.parent.map_or_else(String::new, |parent| format!(" from {parent}"));
        println!("  {}{from}, ends at {}", branch.branch, branch.head.seq);
    }
    let (main, other) = (At::Head("main".parse()?), At::Head(report.branch));
    println!("\ndifference\n{}", diff(&engine, (session.key(), &main), (session.key(), &other)).await?.text);
    Ok(())
}
