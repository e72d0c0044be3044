//! A plan of many independent steps, against plain rows of the same bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::plan::StepSpec;
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::{Engine, Json, Plan};
use tokio::runtime::Builder;

use crate::Result;
use crate::bench::Bench;
use crate::directory::stored_bytes;
use crate::figure::Bar;
use crate::floor::PlainTable;
use crate::measure::median;
use crate::workload::Messages;

/// The steps of the plan.
const STEPS: usize = 1_000;
/// How many run at once, and how many rows stand in a transaction of the floor.
const AT_ONCE: usize = 32;

/// Measures a plan, on one thread: how two pass work to each other is not the engine's doing.
pub fn measure(bench: &Bench) -> Result<()> {
    bench.progress(&format!("plan of {STEPS} independent steps, sqlite async"));
    let outputs = outputs();
    let bytes: usize = outputs.iter().map(|output| output.as_str().len()).sum();
    let rows: Vec<Vec<u8>> = outputs.iter().map(|output| output.as_str().as_bytes().to_vec()).collect();
    let (mut rates, mut floors, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.size(5, 15) {
        let plain = bench.directory()?;
        floors.push(per_second(PlainTable::create(plain.path())?.insert_in(&rows, AT_ONCE)?));
        let directory = bench.directory()?;
        let runtime = Builder::new_current_thread().enable_time().build()?;
        rates.push(per_second(runtime.block_on(carry_out(directory.path(), &outputs))?));
        drop(runtime);
        // The store is closed by now, so nothing waits in a log.
        stored.push(stored_bytes(directory.path())? as f64);
    }
    let name = format!("steps of a plan of {STEPS}, {AT_ONCE} at once, sqlite async");
    bench.record(name, (median(&rates), median(&floors)), "steps/s", Bar::AtLeast(0.3))?;
    bench.record(
        format!("stored bytes of a plan of {STEPS} steps"),
        (median(&stored), bytes as f64),
        "bytes",
        Bar::AtMost(1.5),
    )
}

fn per_second(took: Duration) -> f64 {
    STEPS as f64 / took.as_secs_f64()
}

/// What the steps give back: 2 KB each.
fn outputs() -> Arc<Vec<Json>> {
    let mut texts = Messages::new(5);
    Arc::new((0..STEPS).map(|_| Json::from(texts.next().content.as_str())).collect())
}

/// Carries the plan out: from its start until its end is on the disk.
async fn carry_out(directory: &std::path::Path, outputs: &Arc<Vec<Json>>) -> Result<Duration> {
    let engine = Engine::open(&format!("sqlite:{}/rekindle.db", directory.display()))?;
    let steps = (0..STEPS).map(|number| StepSpec::new(format!("s{number}"), "fetch").with("number", number));
    let plan = Plan::builder("bench")
        .tool(Fetch::new(outputs)?)
        .steps(steps)
        .parallel(AT_ONCE)
        .durability(Durability::Async)
        .build()?;
    let session = engine.create("plan").await?;
    let start = Instant::now();
    let report = plan.run("go", &session).await?.report().await?;
    let took = start.elapsed();
    match report.outcome {
        RunOutcome::Succeeded => Ok(took),
        other => Err(format!("the plan ended {other:?}: {}", report.reason).into()),
    }
}

/// Gives back a text that was made before.
#[derive(Debug)]
struct Fetch {
    spec: ToolSpec,
    options: ToolOptions,
    outputs: Arc<Vec<Json>>,
}

impl Fetch {
    fn new(outputs: &Arc<Vec<Json>>) -> Result<Self> {
        let spec = ToolSpec {
            name: "fetch".into(),
            description: "Fetches a text.".into(),
            parameters: Json::parse(r#"{"type":"object","properties":{"number":{"type":"integer"}}}"#)?,
            version: None,
        };
        Ok(Self { spec, options: ToolOptions::default(), outputs: Arc::clone(outputs) })
    }
}

#[async_trait]
impl Tool for Fetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let number = arguments.to_value()?["number"].as_u64().unwrap_or_default();
        let output = self.outputs.get(number as usize).cloned();
        output.map(ToolOutput::json).ok_or_else(|| ToolError::failed("there is no such text"))
    }
}
