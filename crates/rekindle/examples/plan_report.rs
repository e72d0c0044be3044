//! A plan whose mail server is down at first. What was done is not done again: each step writes a
//! line to a ledger of its own, outside the journal, and at the end the lines are counted.
//!
//! ```text
//! cargo run -p rekindle --example plan_report
//! ```
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rekindle::plan::{PlanInput, PlanResult, StepSpec, StepStatus};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{FnTool, ToolContext, ToolError, tool};
use rekindle::{Engine, Error, Plan, Result};
use serde_json::{Value, json};

// ---- The plan: what a user of Rekindle writes. ------------------------------------------------

#[derive(serde::Deserialize, JsonSchema)]
struct Region {
    region: String,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Report {
    month: String,
    totals: Vec<u64>,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Mail {
    to: String,
    text: String,
}

/// Two regions are fetched at the same time, summed up, and sent to two people.
fn report(directory: &Path) -> Result<Plan> {
    let mail = |id: &str, to: &str| {
        StepSpec::new(id, "mail").after(["sum"]).with("to", to).with("text", "${steps.sum.output.text}")
    };
    Plan::builder("report")
        .tool(fetch(directory.join("ledger")))
        .tool(sum(directory.join("ledger")))
        .tool(send(directory.to_owned()))
        .tool(archive(directory.join("ledger")))
        .step(StepSpec::new("eu", "fetch").with("region", "Europe"))
        .step(StepSpec::new("us", "fetch").with("region", "America"))
        .step(
            StepSpec::new("sum", "sum")
                .after(["eu", "us"])
                .with("month", "${context.month}")
                .with("totals", json!(["${steps.eu.output.total}", "${steps.us.output.total}"])),
        )
        .step(mail("tell-ada", "Ada"))
        .step(mail("tell-bob", "Bob"))
        .step(StepSpec::new("file", "archive").after(["tell-ada", "tell-bob"]).with("text", "${steps.sum.output.text}"))
        .build()
}

fn fetch(ledger: PathBuf) -> FnTool<Region> {
    tool("fetch", "Fetches the sales of a region.", move |call: ToolContext, of: Region| {
        let noted = note(&ledger, call.call_id());
        async move {
            noted?;
            Ok(json!({ "region": of.region, "total": of.region.len() * 100 }))
        }
    })
    .writes()
    .idempotent()
}

fn sum(ledger: PathBuf) -> FnTool<Report> {
    tool("sum", "Sums up.", move |call: ToolContext, report: Report| {
        let noted = note(&ledger, call.call_id());
        async move {
            noted?;
            let sum: u64 = report.totals.iter().sum();
            Ok(json!({ "text": format!("Sales of {}: {sum}", report.month) }))
        }
    })
}

/// Sends mail. It fails for Bob while there is no file `mail-is-up`.
fn send(directory: PathBuf) -> FnTool<Mail> {
    tool("mail", "Sends a mail.", move |call: ToolContext, mail: Mail| {
        let fails = mail.to == "Bob" && !directory.join("mail-is-up").exists();
        let noted = if fails { Ok(()) } else { note(&directory.join("ledger"), call.call_id()) };
        async move {
            noted?;
            match fails {
                true => Err(ToolError::failed("the mail server does not answer")),
                false => Ok(format!("to {}: {}", mail.to, mail.text)),
            }
        }
    })
    .writes()
    .idempotent()
}

fn archive(ledger: PathBuf) -> FnTool<Text> {
    tool("archive", "Files a text.", move |call: ToolContext, file: Text| {
        let noted = note(&ledger, call.call_id());
        async move {
            noted?;
            Ok(format!("filed: {}", file.text))
        }
    })
    .writes()
    .idempotent()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(problem)?;
    let path = directory.path();
    let url = format!("sqlite:{}/plans.db", path.display());
    {
        let engine = Engine::open(&url)?;
        let plan = report(path)?;
        let session = plan.create_session(&engine, "report-may").await?;
        println!("A report for May: fetch, sum up, send. The mail server is down for Bob.\n");
        let result = plan.run_once(PlanInput::query("The sales").with("month", "May"), &session).await?;
        table(&result);
        assert!(!result.success && result.state.step("file").is_some_and(|s| s.status == StepStatus::Blocked));
    }

    // Everything in memory is gone. What the second part knows, it reads from the disk.
    std::fs::write(path.join("mail-is-up"), "").map_err(problem)?;
    println!("\nThe mail server is back. The session is opened anew and resumed.\n");
    let engine = Engine::open(&url)?;
    let session = engine.open_session("report-may").await?;
    let result = report(path)?.resume_once(&session).await?;
    table(&result);

    println!("\nThe ledger, written by the tools themselves:");
    let counts = ledger(path);
    for (step, times) in &counts {
        println!("  {step:<8}  {times} ×");
    }
    assert!(result.success && counts.len() == 6 && counts.values().all(|times| *times == 1), "{counts:?}");
    println!("\nSix steps, six side effects, two runs.");
    Ok(())
}

// ---- The rest only writes and shows. ----------------------------------------------------------

fn table(result: &PlanResult) {
    println!("  {:<8}  {:<7}  {:<11}  came to", "step", "tool", "status");
    println!("  {:─<8}  {:─<7}  {:─<11}  {:─<34}", "", "", "", "");
    for step in &result.state.steps {
        let text = match (step.status, result.state.output(&step.id)) {
            (StepStatus::Completed, Some(output)) => plain(&output.to_value().unwrap_or_default()),
            _ => step.error.clone().unwrap_or_default(),
        };
        let row =
            format!("{:<8}  {:<7}  {} {:<9}  {text}", step.id, step.action, mark(step.status), step.status.as_str());
        println!("  {}", row.trim_end());
    }
    let (done, kept) = (result.steps_executed, result.steps_recovered);
    println!("\n  carried out by this run: {done}, taken over from an earlier one: {kept}");
    if let Some(error) = &result.error {
        println!("  {error}");
    }
}

fn mark(status: StepStatus) -> char {
    match status {
        StepStatus::Completed => '✓',
        StepStatus::Failed => '✗',
        StepStatus::Blocked => '‖',
        _ => '·',
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn note(ledger: &Path, step: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(file, "{step}")
}

fn ledger(directory: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let text = std::fs::read_to_string(directory.join("ledger")).unwrap_or_default();
    text.lines().for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
    counts
}

fn problem(error: std::io::Error) -> Error {
    Error::invalid("the temporary directory cannot be used").because(error)
}
