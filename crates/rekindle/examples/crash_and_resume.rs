//! An agent is killed with SIGKILL again and again, and goes on each time where it was.
//!
//! The parent starts this program as a worker, kills it in the middle of its work, and starts it
//! again, until the agent is done. The tools write what they really did to a ledger of their own;
//! at the end the ledger proves that nothing was lost and nothing happened twice.
//!
//! ```text
//! cargo run -p rekindle --example crash_and_resume
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Checked, FnTool, ToolError, tool};
use rekindle::{Agent, Engine, Frequency, Json, Message, Result, ResumeOptions, Role, Status};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;

/// How many milliseconds each worker has; on a slow machine later ones have more.
const KILL_AFTER: [u64; 6] = [120, 90, 150, 80, 110, 135];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("worker") => worker(Path::new(&arguments[2])).unwrap(),
        _ => supervise(),
    }
}

// ---- The agent: what a user of Rekindle writes. -----------------------------------------------

#[derive(serde::Deserialize, JsonSchema)]
struct Customer {
    /// The customer to charge or to write to.
    name: String,
}

/// A tool with a side effect: it writes a line to the ledger, and takes its time.
fn side_effect(action: &'static str, ledger: PathBuf) -> FnTool<Customer> {
    let read = ledger.clone();
    tool(action, "Does it for one customer.", move |call, customer: Customer| {
        let (ledger, line) = (ledger.clone(), line(action, &customer, call.idempotency_key()));
        async move {
            append(&ledger, &line)?;
            tokio::time::sleep(Duration::from_millis(60)).await;
            Ok::<_, ToolError>(format!("{action} {}: ok", customer.name))
        }
    })
    .writes()
    // If the process dies in the middle, this finds out whether the call happened.
    .check(move |call, customer: Customer| {
        let happened = lines(&read).contains(&line(action, &customer, call.idempotency_key()));
        async move {
            let result = Json::from(format!("{action} {}: ok", customer.name).as_str());
            Ok(if happened { Checked::Happened(result) } else { Checked::DidNotHappen })
        }
    })
}

fn agent(directory: &Path) -> Result<Agent> {
    let of = |name: &str| json!({ "name": name });
    let script = Script::new("scripted")
        .turn(Turn::calls([Call::new("charge", of("Ada")), Call::new("charge", of("Bob"))]).delayed(THINKING))
        .turn(Turn::calls([Call::new("charge", of("Cleo"))]).delayed(THINKING))
        .turn(Turn::calls([Call::new("email", of("Ada")), Call::new("email", of("Bob"))]).delayed(THINKING))
        .turn(Turn::calls([Call::new("email", of("Cleo")), Call::new("charge", of("Dora"))]).delayed(THINKING))
        .turn(Turn::calls([Call::new("email", of("Dora"))]).delayed(THINKING))
        .turn(Turn::text("Four customers were charged and told.").delayed(THINKING));
    let model = ScriptedModel::new(script).with_ledger(directory.join("model"));
    let ledger = directory.join("ledger");
    Agent::builder("billing", model)
        .system("Charge every customer once, then tell them.")
        .tool(side_effect("charge", ledger.clone()))
        .tool(side_effect("email", ledger))
        .checkpoints(Frequency::PerIteration)
        .build()
}

const THINKING: Duration = Duration::from_millis(40);

/// Starts the work, or goes on with it.
fn worker(directory: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(&format!("sqlite:{}/agents.db", directory.display()))?;
        let session = engine.open_or_create("invoices-may").await?;
        let message = match session.info().await?.status() {
            Status::Idle => Some(Message::user("Charge everybody for May.")),
            Status::Succeeded => return Ok(()),
            _ => None,
        };
        // The parent saw the last worker die, so nobody needs to wait for its lease to expire.
        let options = ResumeOptions::new("worker").take_over();
        let run = agent(directory)?.run_with(message.into_iter().collect(), &session, options).await?;
        run.report().await?;
        Ok(())
    })
}

// ---- The rest only kills it and looks. --------------------------------------------------------

fn supervise() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    println!("An agent charges four customers and writes to them. Its process is killed with SIGKILL on the way.\n");
    let mut kills = 0;
    loop {
        let before = lines(&path.join("ledger")).len();
        let mut worker = start(path);
        let verb = if kills == 0 { "starts" } else { "resumes" };
        print!("  process {:>6} {verb} with {before} of 8 side effects done … ", worker.id());
        std::io::stdout().flush().unwrap();
        let patience = Duration::from_millis(KILL_AFTER[kills % KILL_AFTER.len()] + 5 * kills as u64);
        if ended_within(&mut worker, patience) {
            println!("done");
            break;
        }
        worker.kill().unwrap();
        worker.wait().unwrap();
        kills += 1;
        println!("killed after {} ms, {} done", patience.as_millis(), lines(&path.join("ledger")).len());
        assert!(kills < 100, "it never ends");
    }
    prove(path, kills);
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap()).arg("worker").arg(directory).spawn().unwrap()
}

fn ended_within(child: &mut Child, patience: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "the worker failed by itself");
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn prove(directory: &Path, kills: usize) {
    println!("\nThe ledger, written by the tools themselves:");
    let mut counts = BTreeMap::new();
    for line in lines(&directory.join("ledger")) {
        let what = line.rsplit_once(' ').map(|(what, _)| what.to_owned()).unwrap();
        *counts.entry(what).or_insert(0) += 1;
    }
    for (what, count) in &counts {
        println!("  {what:<12} {count} ×");
    }
    assert_eq!(counts.len(), 8, "a side effect was lost");
    assert!(counts.values().all(|count| *count == 1), "a side effect happened twice");
    let asked = lines(&directory.join("model")).iter().filter(|line| line.starts_with("answered")).count();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (answers, checkpoints, status) = runtime.block_on(look(directory)).unwrap();
    println!("\nThe session, read back from the SQLite file:");
    println!("  status       {status}");
    println!("  checkpoints  {checkpoints}");
    println!("  answers      {answers} on record, {asked} given by the model");
    println!("\n{kills} kills, 8 side effects, each exactly once. Nothing lost, nothing twice.");
}

async fn look(directory: &Path) -> Result<(usize, usize, Status)> {
    let engine = Engine::open(&format!("sqlite:{}/agents.db", directory.display()))?;
    let session = engine.open_session("invoices-may").await?;
    let restored = engine.journal().load(session.key(), None).await?;
    let messages = Agent::messages(&restored.state)?;
    let answers = messages.iter().filter(|message| message.role == Role::Assistant).count();
    let checkpoints = engine.journal().checkpoints(session.key(), None, None, 100).await?.len();
    Ok((answers, checkpoints, restored.state.status()))
}

fn line(action: &str, customer: &Customer, key: &str) -> String {
    format!("{action} {} {key}", customer.name)
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
