//! A graph of many visits with a large memory of which each visit changes one key.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, NodeSpec};
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::{Engine, Json};
use tokio::runtime::Builder;

use crate::Result;
use crate::bench::Bench;
use crate::directory::stored_bytes;
use crate::figure::Bar;
use crate::groups::child;
use crate::measure::{median, microseconds};
use crate::workload::Messages;

/// The visits of the run.
const VISITS: usize = 10_000;
/// The keys of the memory, each of 1 KB.
const KEYS: usize = 1_000;
/// The bytes of a key's value, as JSON.
const KEY_BYTES: usize = 1_024;
/// How many visits are measured around a place.
const AROUND: usize = 500;

/// The flag under which this program measures one run for itself; not for people.
pub const FLAG: &str = "--visits-child";

/// Measures visits: each run in a process of its own and on one thread, as the overhead of the agent
/// loop is.
pub fn measure(bench: &Bench) -> Result<()> {
    bench.progress(&format!("graph of {VISITS} visits with {KEYS} keys of 1 KB, sqlite async"));
    let (mut early, mut late, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.size(5, 15) {
        let directory = bench.directory()?;
        let told = child(FLAG, directory.path())?;
        let [at_100, at_end, bytes] = told[..] else { return Err("the child did not tell three figures".into()) };
        early.push(at_100);
        late.push(at_end);
        written.push(bytes);
    }
    let name = format!("visit at {VISITS} against at 100, {KEYS} keys, sqlite async");
    bench.record(name, (median(&late), median(&early)), "us", Bar::AtMost(1.2))?;
    bench.record(
        "stored bytes of a visit that changes 1 KB",
        (median(&written), KEY_BYTES as f64),
        "bytes",
        Bar::AtMost(3.0),
    )
}

/// Runs the graph and prints the medians of its visits, early and late, and the bytes of one.
pub fn visits_child(directory: &Path) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let visits = runtime.block_on(run(&directory.join("long"), VISITS))?;
    runtime.block_on(run(&directory.join("short"), 1))?;
    drop(runtime);
    let (long, short) = (stored_bytes(&directory.join("long"))?, stored_bytes(&directory.join("short"))?);
    let bytes = long.saturating_sub(short) as f64 / VISITS as f64;
    println!("{} {} {bytes}", median(&visits[100..100 + AROUND]), median(&visits[visits.len() - AROUND..]));
    Ok(())
}

/// How long each visit took.
async fn run(directory: &Path, visits: usize) -> Result<Vec<f64>> {
    std::fs::create_dir_all(directory)?;
    let engine = Engine::open(&format!("sqlite:{}/rekindle.db", directory.display()))?;
    let change = Change::new(visits)?;
    let began = Arc::clone(&change.began);
    let graph = Graph::builder("bench")
        .tool(change)
        .function("end", async |_, _: serde_json::Map<String, serde_json::Value>| Ok(()))
        .node(NodeSpec::tool("change", "change").writes(["k*"]).max_visits(u64::MAX))
        .node(NodeSpec::function("end"))
        .edge(EdgeSpec::new("change", "change").when(Condition::result().at("/more").is(true)))
        .edge(EdgeSpec::new("change", "end").or_else())
        .durability(Durability::Async)
        .build()?;
    let mut texts = texts();
    let memory = (0..KEYS).fold(GraphInput::new(), |input, key| input.with(format!("k{key}"), texts()));
    let session = engine.create("graph").await?;
    let report = graph.run(memory, &session).await?.report().await?;
    if report.outcome != RunOutcome::Succeeded {
        return Err(format!("the graph ended {:?}: {}", report.outcome, report.reason).into());
    }
    let began = began.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(began.windows(2).map(|pair| microseconds(pair[1].duration_since(pair[0]))).collect())
}

/// Texts whose JSON has 1 KB.
fn texts() -> impl FnMut() -> String {
    let mut messages = Messages::new(9);
    move || {
        // Quotes and backslashes would take more room than they have.
        let text = messages.next().content.replace(['"', '\\'], "_");
        text.chars().take(KEY_BYTES - 2).collect()
    }
}

/// Changes one key of the memory each time.
#[derive(Debug)]
struct Change {
    spec: ToolSpec,
    options: ToolOptions,
    values: Vec<Json>,
    visits: usize,
    count: AtomicUsize,
    began: Arc<Mutex<Vec<Instant>>>,
}

impl Change {
    fn new(visits: usize) -> Result<Self> {
        let mut texts = texts();
        let spec = ToolSpec {
            name: "change".into(),
            description: "Changes a key.".into(),
            parameters: Json::parse(r#"{"type":"object"}"#)?,
            version: None,
        };
        let values = (0..=KEYS).map(|_| Json::from(texts().as_str())).collect();
        let (count, began) = (AtomicUsize::new(0), Arc::default());
        Ok(Self { spec, options: ToolOptions::default(), values, visits, count, began })
    }
}

#[async_trait]
impl Tool for Change {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, _arguments: &Json) -> Result<ToolOutput, ToolError> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let more = number + 1 < self.visits;
        let value = self.values[number % self.values.len()].clone();
        let output = ToolOutput::json(Json::of(&serde_json::json!({ "more": more }))?);
        Ok(output.and_remember(format!("k{}", number % KEYS), value))
    }
}
