//! What one commit costs: on each store, at the end of a long session, and when compressed and
//! encrypted.

use std::path::Path;
use std::time::Instant;

use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::record::Durability;

use super::LONG;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::floor::RawFile;
use crate::measure::{Compared, Rounds, median, microseconds};
use crate::workload::{Session, StoreKind};

/// The steps of a short session.
const SHORT: usize = 100;
/// How many commits are measured around a step.
const AROUND: usize = 100;
/// So short a time that many are taken at once.
const MEMORY_BATCH: usize = 100;
/// Compresses steps of 2 KB, which by default are too small for it.
const COMPRESSION: (usize, i32) = (1_024, 3);

/// Measures commits.
pub async fn measure(bench: &Bench) -> Result<()> {
    durable(bench, StoreKind::Sqlite, Bar::AtMost(1.5)).await?;
    durable(bench, StoreKind::Files, Bar::AtMost(1.3)).await?;
    in_memory(bench).await?;
    after_many(bench).await?;
    protected(bench).await
}

async fn durable(bench: &Bench, kind: StoreKind, bar: Bar) -> Result<()> {
    let name = format!("commit of a 2 KB step, {} sync, p50", kind.name());
    bench.progress(&name);
    let directory = bench.directory()?;
    let mut raw = RawFile::create(directory.path())?;
    let journal = kind.journal(directory.path(), Codec::new())?;
    let mut session = Session::open(&journal, "commit", Durability::Sync).await?;
    let rounds = Rounds { rounds: bench.size(30, 150), each: 50 };
    let compared = rounds.compare(async || raw.append(), async || session.timed_commit().await).await?;
    session.close().await?;
    bench.record(name, (compared.figure, compared.floor), "us", bar)
}

/// From the message to the commit, as the floor is from the message to its JSON.
async fn in_memory(bench: &Bench) -> Result<()> {
    let name = "commit of a 2 KB step, memory";
    bench.progress(name);
    let directory = bench.directory()?;
    let journal = StoreKind::Memory.journal(directory.path(), Codec::new())?;
    let mut session = Session::open(&journal, "commit", Durability::Sync).await?;
    let messages: Vec<_> = (0..MEMORY_BATCH).map(|_| session.message()).collect();
    let floor = async || {
        let start = Instant::now();
        for message in &messages {
            std::hint::black_box(serde_json::to_vec(message)?);
        }
        Ok(start.elapsed())
    };
    let figure = async || {
        let start = Instant::now();
        for message in &messages {
            let records = session.step_with(message)?;
            session.commit(&records).await?;
        }
        Ok(start.elapsed())
    };
    let Compared { figure, floor } = Rounds { rounds: bench.size(30, 100), each: 5 }.compare(floor, figure).await?;
    session.close().await?;
    let each = |micros: f64| micros / MEMORY_BATCH as f64;
    bench.record(name, (each(figure), each(floor)), "us", Bar::AtMost(8.0))
}

/// Both sessions are written in turns, each in a database of its own. Both databases were closed
/// and opened again before, so that the log of neither has an advantage.
async fn after_many(bench: &Bench) -> Result<()> {
    let name = format!("commit at step {LONG} against step {SHORT}, sqlite sync");
    bench.progress(&name);
    let (mut floors, mut figures) = (Vec::new(), Vec::new());
    for _ in 0..bench.size(3, 12) {
        let (short_directory, long_directory) = (bench.directory()?, bench.directory()?);
        let mut short = session_at(short_directory.path(), SHORT - AROUND / 2).await?;
        let mut long = session_at(long_directory.path(), LONG - AROUND / 2).await?;
        for _ in 0..AROUND / 10 {
            for _ in 0..10 {
                floors.push(microseconds(short.timed_commit().await?));
            }
            for _ in 0..10 {
                figures.push(microseconds(long.timed_commit().await?));
            }
        }
        short.close().await?;
        long.close().await?;
    }
    bench.record(name, (median(&figures), median(&floors)), "us", Bar::AtMost(1.2))
}

async fn session_at(directory: &Path, steps: usize) -> Result<Session> {
    write_steps(directory, steps).await?;
    let journal = StoreKind::Sqlite.journal(directory, Codec::new())?;
    Session::open(&journal, "growing", Durability::Sync).await
}

async fn write_steps(directory: &Path, steps: usize) -> Result<()> {
    let journal = StoreKind::Sqlite.journal(directory, Codec::new())?;
    let mut session = Session::open(&journal, "growing", Durability::Async).await?;
    session.commit_steps(steps).await?;
    session.close().await
}

async fn protected(bench: &Bench) -> Result<()> {
    let name = "commit compressed and encrypted, sqlite sync, p50";
    bench.progress(name);
    let (plain_directory, sealed_directory) = (bench.directory()?, bench.directory()?);
    let (threshold, level) = COMPRESSION;
    let sealing = Codec::new().with_compression(threshold, level).with_encryption(KeyRing::new("bench", [7; 32])?);
    let plain_journal = StoreKind::Sqlite.journal(plain_directory.path(), Codec::new())?;
    let sealed_journal = StoreKind::Sqlite.journal(sealed_directory.path(), sealing)?;
    let mut plain = Session::open(&plain_journal, "codec", Durability::Sync).await?;
    let mut sealed = Session::open(&sealed_journal, "codec", Durability::Sync).await?;
    check_protection(&mut sealed)?;
    let rounds = Rounds { rounds: bench.size(40, 240), each: 25 };
    let compared = rounds.compare(async || plain.timed_commit().await, async || sealed.timed_commit().await).await?;
    plain.close().await?;
    sealed.close().await?;
    bench.record(name, (compared.figure, compared.floor), "us", Bar::AtMost(1.3))
}

/// An error unless steps are really compressed and encrypted: otherwise nothing was measured.
fn check_protection(session: &mut Session) -> Result<()> {
    let (frame, plain_bytes) = session.frame()?;
    match frame.is_sealed() && frame.stored_len() < plain_bytes {
        true => Ok(()),
        false => Err("the steps are not compressed and encrypted".into()),
    }
}
