//! What a session leaves on the disk, all of its history kept and every step a checkpoint.

use std::path::Path;

use rekindle_core::codec::Codec;
use rekindle_core::record::Durability;

use super::LONG;
use crate::Result;
use crate::bench::Bench;
use crate::directory::stored_bytes;
use crate::figure::Bar;
use crate::workload::{Session, StoreKind};

/// Measures stored bytes.
pub async fn measure(bench: &Bench) -> Result<()> {
    for kind in [StoreKind::Sqlite, StoreKind::Files] {
        // In a database of 400 steps every ninth page is the only one of a table or an index, nearly empty.
        for (steps, bar) in [(400, 1.6), (LONG, 1.4)] {
            stored(bench, kind, steps, bar).await?;
        }
    }
    Ok(())
}

async fn stored(bench: &Bench, kind: StoreKind, steps: usize, bar: f64) -> Result<()> {
    let name = format!("stored bytes after {steps} steps, {}", kind.name());
    bench.progress(&name);
    let directory = bench.directory()?;
    let message_bytes = write(kind, directory.path(), steps).await?;
    // The store is closed by now, so nothing waits in a log.
    let stored = stored_bytes(directory.path())?;
    bench.record(name, (stored as f64, message_bytes as f64), "bytes", Bar::AtMost(bar))
}

async fn write(kind: StoreKind, directory: &Path, steps: usize) -> Result<u64> {
    let journal = kind.journal(directory, Codec::new())?;
    let mut session = Session::open(&journal, "size", Durability::Async).await?;
    session.commit_steps(steps).await?;
    let message_bytes = session.message_bytes();
    session.close().await?;
    Ok(message_bytes)
}
