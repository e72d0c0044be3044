//! What an iteration costs beside the model and the tool, early and late in a session.

use std::time::{Duration, Instant};

use rekindle::Engine;
use rekindle::record::{Durability, InDoubtPolicy};
use rekindle_core::codec::Codec;

use super::subject::{LoopModel, agent};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::{median, microseconds};
use crate::workload::{Messages, StoreKind};

/// The iterations of a session.
const ITERATIONS: u64 = 5_000;
/// How many iterations are measured around a place.
const AROUND: usize = 200;

/// Measures the overhead.
pub async fn measure(bench: &Bench) -> Result<()> {
    bench.progress("overhead per iteration with one call, memory");
    let (mut early, mut late, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.size(5, 15) {
        floors.push(json_of_a_message()?);
        let model = LoopModel::new(ITERATIONS, Duration::ZERO);
        run(bench, &model, round).await?;
        let iterations: Vec<f64> = model.iterations().into_iter().map(microseconds).collect();
        early.push(median(&iterations[10..10 + AROUND]));
        late.push(median(&iterations[iterations.len() - AROUND..]));
    }
    let (early, late, floor) = (median(&early), median(&late), median(&floors));
    bench.record("overhead per iteration at 10, memory", (early, floor), "us", Bar::AtMost(40.0))?;
    bench.record(format!("overhead per iteration at {ITERATIONS}, memory"), (late, floor), "us", Bar::AtMost(40.0))?;
    bench.record(format!("overhead at {ITERATIONS} against at 10, memory"), (late, early), "us", Bar::AtMost(1.2))
}

async fn run(bench: &Bench, model: &LoopModel, round: usize) -> Result<()> {
    let directory = bench.directory()?;
    let engine = Engine::with_journal(StoreKind::Memory.journal(directory.path(), Codec::new())?);
    let session = engine.create(&format!("overhead-{round}")).await?;
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
