//! What an iteration costs on disk: how many commits, how long, and how often a result is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::InDoubtPolicy;
use rekindle::core::{Entry, Record, Seq};
use rekindle::{BranchId, Engine, Journal, SessionKey};
use rekindle_core::codec::Codec;
use rekindle_store::{MeteredStore, Observation, StoreObserver, StoreOptions, SystemClock, open, system_ids};

use super::subject::{LoopModel, agent, marker};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::floor::RawFile;
use crate::measure::{median, microseconds};
use crate::workload::StoreKind;

/// The iterations of one session, between two looks at the floor.
const ITERATIONS: u64 = 25;
/// Sessions that only make the database's log as long as it stays.
const WARM_UP: usize = 16;

/// Measures durable iterations.
pub async fn measure(bench: &Bench) -> Result<()> {
    sync(bench, InDoubtPolicy::Idempotent, "a side-effecting", 3.0).await?;
    sync(bench, InDoubtPolicy::ReplaySafe, "a replay-safe", 2.0).await?;
    background(bench).await?;
    stored_once(bench).await
}

/// Counts appends.
#[derive(Debug, Default)]
struct Appends(AtomicU64);

impl StoreObserver for Appends {
    fn observed(&self, observation: Observation) {
        if observation.operation == "append" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn sync(bench: &Bench, policy: InDoubtPolicy, tool: &str, most: f64) -> Result<()> {
    bench.progress(&format!("iteration with {tool} tool, sqlite sync"));
    let directory = bench.directory()?;
    let appends = Arc::new(Appends::default());
    let url = format!("sqlite:{}/store.db", directory.path().display());
    let store = MeteredStore::new(open(&url, StoreOptions::new())?, appends.clone());
    let journal = Journal::new(Arc::new(store), Codec::new(), Arc::new(SystemClock), system_ids()?);
    let engine = Engine::with_journal(journal);
    let mut raw = RawFile::create(directory.path())?;
    let (mut times, mut floors, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM_UP + bench.size(12, 60) {
        let session = engine.create(&format!("sync-{round}")).await?;
        let model = LoopModel::new(ITERATIONS, Duration::ZERO);
        let before = appends.0.load(Ordering::Relaxed);
        for _ in 0..ITERATIONS {
            floors.push(microseconds(raw.append()?));
        }
        agent(&model, Durability::Sync, policy)?.run_once("go", &session).await?;
        // The turn itself has a commit at its beginning and two at its end.
        commits.push((appends.0.load(Ordering::Relaxed) - before - 3) as f64 / ITERATIONS as f64);
        times.extend(model.iterations().into_iter().map(microseconds));
        if round < WARM_UP {
            times.clear();
            floors.clear();
        }
    }
    let commits = median(&commits);
    let floor = commits.round() * median(&floors);
    bench.record(format!("commits of an iteration with {tool} tool"), (commits, 1.0), "commits", Bar::AtMost(most))?;
    let name = format!("iteration with {tool} tool, sqlite sync");
    bench.record(name, (median(&times), floor), "us", Bar::AtMost(1.5))
}

async fn background(bench: &Bench) -> Result<()> {
    bench.progress("iteration with a model of 20 ms, sqlite async");
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    for round in 0..bench.size(3, 10) {
        for (kind, times) in [(StoreKind::Memory, &mut floors), (StoreKind::Sqlite, &mut figures)] {
            let directory = bench.directory()?;
            let engine = Engine::with_journal(kind.journal(directory.path(), Codec::new())?);
            let session = engine.create(&format!("async-{round}")).await?;
            let model = LoopModel::new(20, Duration::from_millis(20));
            agent(&model, Durability::Async, InDoubtPolicy::ReplaySafe)?.run_once("go", &session).await?;
            times.extend(model.iterations().into_iter().map(microseconds));
        }
    }
    let name = "iteration with a model of 20 ms, sqlite async against memory";
    bench.record(name, (median(&figures), median(&floors)), "us", Bar::AtMost(1.15))
}

/// Looks for each result in everything that was stored.
async fn stored_once(bench: &Bench) -> Result<()> {
    bench.progress("how often a result is stored");
    let directory = bench.directory()?;
    let engine = Engine::with_journal(StoreKind::Sqlite.journal(directory.path(), Codec::new())?);
    let session = engine.create("once").await?;
    let calls = 50;
    let model = LoopModel::new(calls, Duration::ZERO);
    agent(&model, Durability::Async, InDoubtPolicy::ReplaySafe)?.run_once("go", &session).await?;
    let text = everything(&engine, session.key()).await?;
    let found: usize = (0..calls).map(|number| text.matches(&marker(&number.to_string())).count()).sum();
    let name = "times a result is stored";
    bench.record(name, (found as f64 / calls as f64, 1.0), "times", Bar::AtMost(1.0))
}

async fn everything(engine: &Engine, session: &SessionKey) -> Result<String> {
    let (mut text, mut from) = (String::new(), Seq(1));
    loop {
        let entries = engine.journal().read(session, &BranchId::main(), from, 500).await?;
        if entries.is_empty() {
            return Ok(text);
        }
        for entry in entries {
            let Entry::Batch(batch) = entry else { return Err("the journal is damaged".into()) };
            from = batch.last.next();
            for record in &batch.records {
                text.push_str(&serde_json::to_string::<Record>(record)?);
            }
        }
    }
}
