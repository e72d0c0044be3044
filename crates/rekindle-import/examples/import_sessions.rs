//! Sessions that another program stored are imported, listed and looked at, and the one that was
//! stopped goes on here.
//!
//! ```text
//! cargo run -p rekindle-import --example import_sessions
//! ```
#![allow(clippy::print_stdout)]

use std::path::Path;

use rekindle::graph::{Graph, GraphState, NodeSpec};
use rekindle::operations::{At, HistoryOptions, history, inspect, list};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::ToolContext;
use rekindle::{Engine, Error, Result, ResumeOptions, Secret, SecretRef, SecretSource, SessionQuery, Status};
use rekindle_import::ImportOptions;
use serde_json::{Value, json};

#[derive(serde::Deserialize, JsonSchema)]
struct Handles {
    of: Vec<String>,
}

/// The graph that goes on with the imported session. Only what is still to be done must work.
fn research() -> Result<Graph> {
    Graph::builder("research")
        .inputs(["topic"])
        .function("collect", async |_, _: serde_json::Map<String, Value>| Ok(json!([])))
        .function("analyse", async |call: ToolContext, handles: Handles| {
            // By reference: the secret itself is never stored.
            let token = call.secret("access_token").await?;
            Ok(format!("{}, read with a token of {} letters", handles.of.join(" and "), token.expose().len()))
        })
        .node(NodeSpec::function("collect").save("handles", ""))
        .node(NodeSpec::function("analyse").with("of", "${memory.handles}").reads(["handles"]).save("report", ""))
        .path(["collect", "analyse"])
        .build()
}

/// Where secrets come from: here from the program itself, elsewhere from the environment or a vault.
#[derive(Debug)]
struct Vault;

impl SecretSource for Vault {
    fn resolve(&self, reference: &SecretRef) -> Result<Secret> {
        match (reference.scheme(), reference.rest()) {
            ("vault", "research") => Ok(Secret::new("t0p-s3cret")),
            _ => Err(Error::not_found(format!("the vault has no `{}`", reference.rest()))),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(problem)?;
    let old = directory.path().join("research");
    write_old(&old).map_err(problem)?;
    let engine = Engine::open(&format!("sqlite:{}/rekindle.db", directory.path().display()))?.with_secrets(Vault);

    println!("What an import would do");
    let plan = rekindle_import::session_directory(&engine, &old, ImportOptions::new().dry_run()).await?;
    for session in &plan.sessions {
        println!("  import  {} with {} checkpoints", session.session, session.checkpoints.len());
    }
    for note in &plan.skipped {
        println!("  skip    …/{}: {}", last(&note.place), note.reason);
    }

    println!("\nThe import");
    let report = rekindle_import::session_directory(&engine, &old, ImportOptions::new()).await?;
    for redacted in &report.redacted {
        println!("  `{}` of {} was taken out; a resume must bring it again", redacted.key, redacted.session);
    }

    println!("\nWhat is there now");
    for found in list(&engine, &SessionQuery::new(engine.namespace().clone())).await?.sessions {
        let agent = found.header.agent.as_deref().unwrap_or_default();
        println!("  {:<8} {:<10} {}", found.header.key.id.as_str(), found.status().to_string(), agent);
    }

    let session = engine.open_session("monday").await?;
    println!("\nThe session `monday`, checkpoint by checkpoint");
    let page = history(&engine, session.key(), &HistoryOptions::default()).await?;
    for mark in page.checkpoints.iter().rev() {
        let then = inspect(&engine, session.key(), &At::Checkpoint(mark.checkpoint.id.clone())).await?;
        let graph = GraphState::of(&then.state)?;
        let keys: Vec<&str> = graph.memory.keys().map(String::as_str).collect();
        println!("  {:<8} {}", mark.checkpoint.id.as_str(), mark.checkpoint.description);
        println!(
            "           next {}, done {:?}, knows {}",
            graph.current().join(" "),
            graph.execution_path(),
            keys.join(", ")
        );
    }

    println!("\nIt goes on here");
    let options = ResumeOptions::new("maria").secret("access_token", "@vault:research")?;
    let run = research()?.resume_with(&session, options).await?.report().await?;
    let result = research()?.result(&session, run).await?;
    println!("  path    {}", result.state.execution_path().join(" → "));
    println!("  report  {}", result.get::<String>("report")?.unwrap_or_default());

    assert!(result.success && session.info().await?.status() == Status::Succeeded);
    assert_eq!(result.state.execution_path(), ["collect", "analyse"]);
    assert_eq!(result.get::<String>("report")?.as_deref(), Some("@ada and @bob, read with a token of 10 letters"));
    assert_eq!((report.sessions.len(), report.skipped.len(), report.redacted.len()), (1, 2, 1));
    Ok(())
}

// ---- What the other program left behind. ------------------------------------------------------

/// One session that was stopped between two nodes, and one whose checkpoint is damaged.
fn write_old(agent: &Path) -> std::io::Result<()> {
    let monday = agent.join("sessions/monday");
    let begun = json!({ "topic": "lighthouses" });
    let found = json!({ "topic": "lighthouses", "handles": ["@ada", "@bob"], "access_token": "old-secret" });
    json_file(&monday.join("state.json"), &json!({ "status": "active" }))?;
    json_file(&monday.join("checkpoints/ck-1.json"), &point("ck-1", "node_start", &[], &begun, "collect begins"))?;
    json_file(
        &monday.join("checkpoints/ck-2.json"),
        &point("ck-2", "node_complete", &["collect"], &found, "collect is done"),
    )?;
    let index = json!({ "checkpoints": [{ "checkpoint_id": "ck-1" }, { "checkpoint_id": "ck-2" }] });
    json_file(&monday.join("checkpoints/index.json"), &index)?;
    std::fs::create_dir_all(agent.join("sessions/tuesday/checkpoints"))?;
    std::fs::write(agent.join("sessions/tuesday/checkpoints/ck-1.json"), "{ \"checkpoint_id\": ")
}

fn point(id: &str, kind: &str, path: &[&str], memory: &Value, description: &str) -> Value {
    let next = if path.is_empty() { Value::Null } else { "analyse".into() };
    json!({
        "checkpoint_id": id, "checkpoint_type": kind, "created_at": format!("2026-05-04T08:00:0{}Z", path.len()),
        "current_node": "collect", "next_node": next, "execution_path": path, "shared_memory": memory,
        "description": description, "is_clean": true, "can_resume_from": true,
    })
}

fn json_file(path: &Path, value: &Value) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, value.to_string())
}

fn last(place: &str) -> &str {
    place.split_once("sessions/").map_or(place, |(_, rest)| rest)
}

fn problem(error: std::io::Error) -> Error {
    Error::invalid("the temporary directory cannot be used").because(error)
}
