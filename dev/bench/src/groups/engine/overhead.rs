//! What an iteration costs beside the model and the tool, early and late in a session.

use std::path::Path;
use std::time::{Duration, Instant};

use rekindle::Durability;
use rekindle::Engine;
use rekindle::core::record::InDoubtPolicy;
use rekindle_core::codec::Codec;
use tokio::runtime::Builder;

use super::subject::{LoopModel, agent};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::groups::child;
use crate::measure::{median, microseconds};
use crate::workload::{Messages, StoreKind};

/// The iterations of a session.
const ITERATIONS: u64 = 5_000;
/// How many iterations are measured around a place.
const AROUND: usize = 200;

/// The flag under which this program measures one session for itself; not for people.
pub const FLAG: &str = "--overhead-child";

/// Measures the overhead: each session in a process of its own, since memory that one session gave
/// back would make the beginning of the next one fast; and on one thread, since how two pass work to
/// each other is not the engine's doing.
pub fn measure(bench: &Bench) -> Result<()> {
    bench.progress("overhead per iteration with one call, memory");
    let (mut early, mut late, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.size(7, 21) {
        floors.push(json_of_a_message()?);
        let directory = bench.directory()?;
        let medians = child(FLAG, directory.path())?;
        let [at_10, at_end] = medians[..] else { return Err("the child did not tell two figures".into()) };
        early.push(at_10);
        late.push(at_end);
    }
    let (early, late, floor) = (median(&early), median(&late), median(&floors));
    bench.record("overhead per iteration at 10, memory", (early, floor), "us", Bar::AtMost(40.0))?;
    bench.record(format!("overhead per iteration at {ITERATIONS}, memory"), (late, floor), "us", Bar::AtMost(40.0))?;
    bench.record(format!("overhead at {ITERATIONS} against at 10, memory"), (late, early), "us", Bar::AtMost(1.2))
}

/// Runs one session and prints the medians of its iterations, early and late.
pub fn overhead_child(directory: &Path) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let model = LoopModel::new(ITERATIONS, Duration::ZERO);
    runtime.block_on(run(directory, &model))?;
    let iterations: Vec<f64> = model.iterations().into_iter().map(microseconds).collect();
    println!("{} {}", median(&iterations[10..10 + AROUND]), median(&iterations[iterations.len() - AROUND..]));
    Ok(())
}

async fn run(directory: &Path, model: &LoopModel) -> Result<()> {
    let engine = Engine::with_journal(StoreKind::Memory.journal(directory, Codec::new())?);
    let session = engine.create("overhead").await?;
    agent(model, Durability::Async, InDoubtPolicy::ReplaySafe)?.run_once("go", &session).await?;
    Ok(())
}

/// How long it takes to write a message of 2 KB as JSON.
fn json_of_a_message() -> Result<f64> {
    const TIMES: u32 = 2_000;
    let message = Messages::new(3).next();
    let start = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(serde_json::to_vec(std::hint::black_box(&message))?);
    }
    Ok(microseconds(start.elapsed() / TIMES))
}
