//! How fast the state of a long session comes back: the latest, and one in the middle.

use std::time::{Duration, Instant};

use rekindle_core::codec::Codec;
use rekindle_core::record::Durability;
use rekindle_core::{Journal, Position, SessionKey};

use super::LONG;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::floor::PlainTable;
use crate::measure::Rounds;
use crate::workload::{Session, StoreKind, after_steps};

/// Measures restoring.
pub async fn measure(bench: &Bench) -> Result<()> {
    let latest = format!("restore the latest of {LONG} steps, sqlite");
    bench.progress(&latest);
    let directory = bench.directory()?;
    let journal = StoreKind::Sqlite.journal(directory.path(), Codec::new())?;
    let (session, plain) = write(&journal, PlainTable::create(directory.path())?).await?;
    let rounds = Rounds { rounds: bench.size(12, 100), each: 1 };
    let whole = async || timed_load(&journal, &session, None).await;
    let compared = rounds.compare(async || plain.read_and_parse(), whole).await?;
    bench.record(latest, (compared.figure, compared.floor), "us", Bar::AtMost(1.5))?;

    let middle = format!("restore step {} against step {LONG}, sqlite", LONG / 2);
    bench.progress(&middle);
    let position = after_steps(LONG as u64 / 2);
    let half = async || timed_load(&journal, &session, Some(&position)).await;
    let compared = rounds.compare(whole, half).await?;
    bench.record(middle, (compared.figure, compared.floor), "us", Bar::AtMost(0.6))
}

/// A long session, and the same payloads in a plain table.
async fn write(journal: &Journal, mut plain: PlainTable) -> Result<(SessionKey, PlainTable)> {
    let mut session = Session::open(journal, "restore", Durability::Async).await?;
    let mut payloads = Vec::with_capacity(LONG);
    for _ in 0..LONG {
        let records = session.step()?;
        payloads.push(serde_json::to_vec(&records)?);
        session.commit(&records).await?;
    }
    plain.insert(&payloads)?;
    let key = session.key().clone();
    session.close().await?;
    Ok((key, plain))
}

async fn timed_load(journal: &Journal, session: &SessionKey, at: Option<&Position>) -> Result<Duration> {
    let start = Instant::now();
    let restored = journal.load(session, at).await?;
    let elapsed = start.elapsed();
    drop(restored);
    Ok(elapsed)
}
