//! Time to restore the state of a long session: the latest, one in the middle, and what protection adds.

use std::time::{Duration, Instant};

use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::record::Durability;
use rekindle_core::{Journal, Position, SessionKey};

use super::LONG;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::floor::PlainTable;
use crate::measure::Rounds;
use crate::workload::{Session, StoreKind, after_steps};

/// The steps of the session that is opened signed and encrypted.
const PROTECTED: usize = 1_000;

/// Measures restoring.
pub async fn measure(bench: &Bench) -> Result<()> {
    latest_and_middle(bench).await?;
    protected(bench, "signed", |keys| Codec::new().with_signing(keys)).await?;
    protected(bench, "encrypted", |keys| Codec::new().with_encryption(keys)).await
}

async fn latest_and_middle(bench: &Bench) -> Result<()> {
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

/// A store and a session of it that are opened anew each time, then restored, against the same without keys.
async fn protected(bench: &Bench, how: &str, protect: fn(KeyRing) -> Codec) -> Result<()> {
    let (opening, restoring) = (
        format!("open a store and a session, {how}, sqlite"),
        format!("restore the latest of {PROTECTED} steps, {how}, sqlite"),
    );
    bench.progress(&opening);
    let (plain_directory, protected_directory) = (bench.directory()?, bench.directory()?);
    let (mut sessions, mut journals) = (Vec::new(), Vec::new());
    let journal = |side: usize| match side {
        0 => StoreKind::Sqlite.journal(plain_directory.path(), Codec::new()),
        _ => StoreKind::Sqlite.journal(protected_directory.path(), protect(KeyRing::new("bench", [7; 32])?)),
    };
    for side in 0..2 {
        let journal = journal(side)?;
        let mut session = Session::open(&journal, "protected", Durability::Async).await?;
        session.commit_steps(PROTECTED).await?;
        sessions.push(session.key().clone());
        session.close().await?;
        journals.push(journal);
    }
    let open = async |side: usize| {
        let start = Instant::now();
        journal(side)?.open(&sessions[side]).await?;
        Result::Ok(start.elapsed())
    };
    let rounds = Rounds { rounds: bench.size(20, 100), each: 2 };
    let compared = rounds.compare(async || open(0).await, async || open(1).await).await?;
    bench.record(opening, (compared.figure, compared.floor), "us", Bar::AtMost(1.3))?;
    bench.progress(&restoring);
    let load = async |side: usize| timed_load(&journals[side], &sessions[side], None).await;
    let compared = rounds.compare(async || load(0).await, async || load(1).await).await?;
    bench.record(restoring, (compared.figure, compared.floor), "us", Bar::AtMost(2.5))
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
