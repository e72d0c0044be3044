//! What a fork costs, wherever it starts: time, and bytes on the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use rekindle_core::codec::Codec;
use rekindle_core::record::Durability;
use rekindle_core::{BranchId, Journal, Position, SessionKey};

use super::LONG;
use crate::Result;
use crate::bench::Bench;
use crate::directory::stored_bytes;
use crate::figure::Bar;
use crate::measure::{median, microseconds};
use crate::workload::{Session, StoreKind, after_steps};

/// The steps after which a fork is measured: early, in the middle, late.
const POSITIONS: [u64; 3] = [10, LONG as u64 / 2, LONG as u64 - 10];
/// How often each session is forked at each position: few times, since a session with many
/// branches is another matter.
const FORKS_EACH: usize = 10;
/// The steps of the session whose bytes are counted, and how often it is forked.
const STEPS: usize = 1_000;
const FORKS: u64 = 100;

/// Measures forks.
pub async fn measure(bench: &Bench) -> Result<()> {
    for kind in [StoreKind::Sqlite, StoreKind::Files] {
        time(bench, kind).await?;
        bytes(bench, kind).await?;
    }
    Ok(())
}

/// The slowest of the three positions, against commits of the sessions that are forked.
async fn time(bench: &Bench, kind: StoreKind) -> Result<()> {
    let name = format!("fork at the worst position against a commit, {}", kind.name());
    bench.progress(&name);
    let directory = bench.directory()?;
    let journal = kind.journal(directory.path(), Codec::new())?;
    let (mut commits, mut forks) = (Vec::new(), POSITIONS.map(|_| Vec::new()));
    for index in 0..bench.size(5, 20) {
        let mut session = Session::open(&journal, &format!("fork-{index}"), Durability::Async).await?;
        session.commit_steps(LONG).await?;
        let mut session = session.switch(Durability::Sync).await?;
        let key = session.key().clone();
        for _ in 0..FORKS_EACH {
            for (steps, forks) in POSITIONS.into_iter().zip(&mut forks) {
                commits.push(microseconds(session.timed_commit().await?));
                forks.push(microseconds(timed_fork(&journal, &key, &after_steps(steps)).await?));
            }
        }
        session.close().await?;
    }
    let worst = forks.iter().map(|times| median(times)).fold(0.0, f64::max);
    bench.record(name, (worst, median(&commits)), "us", Bar::AtMost(3.0))
}

/// What forks add to the disk, against the one message that each would copy at least if forks
/// copied.
async fn bytes(bench: &Bench, kind: StoreKind) -> Result<()> {
    let name = format!("bytes of a fork against a message, {}", kind.name());
    bench.progress(&name);
    let directory = bench.directory()?;
    let (key, message_bytes) = write(kind, directory.path()).await?;
    let before = stored_bytes(directory.path())?;
    fork_often(kind, directory.path(), &key).await?;
    let grown = stored_bytes(directory.path())?.saturating_sub(before);
    let message = message_bytes as f64 / STEPS as f64;
    bench.record(name, (grown as f64 / FORKS as f64, message), "bytes", Bar::AtMost(0.3))
}

async fn write(kind: StoreKind, directory: &Path) -> Result<(SessionKey, u64)> {
    let journal = kind.journal(directory, Codec::new())?;
    let mut session = Session::open(&journal, "fork", Durability::Async).await?;
    session.commit_steps(STEPS).await?;
    let written = (session.key().clone(), session.message_bytes());
    session.close().await?;
    Ok(written)
}

async fn fork_often(kind: StoreKind, directory: &Path, key: &SessionKey) -> Result<()> {
    let journal = kind.journal(directory, Codec::new())?;
    for fork in 1..=FORKS {
        timed_fork(&journal, key, &after_steps(fork * STEPS as u64 / FORKS)).await?;
    }
    Ok(())
}

async fn timed_fork(journal: &Journal, session: &SessionKey, position: &Position) -> Result<Duration> {
    let branch = BranchId::generate(journal.ids(), journal.clock().now());
    let start = Instant::now();
    journal.fork(session, position, branch).await?;
    Ok(start.elapsed())
}
