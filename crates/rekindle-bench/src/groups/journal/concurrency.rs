//! How many commits per second 100 sessions reach together, against one session alone and
//! against SQLite without Rekindle.

use std::time::{Duration, Instant};

use rekindle_core::Record;
use rekindle_core::codec::Codec;
use rekindle_core::record::Durability;
use tokio::task::JoinSet;

use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::floor::PlainTable;
use crate::measure::median;
use crate::workload::{Session, StoreKind};

/// How many sessions commit at once.
const SESSIONS: usize = 100;

/// A session and what it is about to commit.
type Prepared = (Session, Vec<[Record; 2]>);

/// Measures commits per second.
pub async fn measure(bench: &Bench) -> Result<()> {
    bench.progress("commits per second of 100 sessions, sqlite sync");
    let directory = bench.directory()?;
    let journal = StoreKind::Sqlite.journal(directory.path(), Codec::new())?;
    let mut alone = vec![Session::open(&journal, "alone", Durability::Sync).await?];
    let mut together = Vec::new();
    for index in 0..SESSIONS {
        together.push(Session::open(&journal, &format!("session-{index}"), Durability::Sync).await?);
    }
    let mut plain = PlainTable::create(directory.path())?;
    let steps = 50;
    let bodies = stored_bodies(&mut alone[0], SESSIONS * steps)?;
    let (mut alone_rates, mut together_rates, mut plain_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=bench.size(10, 24) {
        let (one, plainly, all);
        (one, alone) = commit_at_once(alone, steps * 10).await?;
        plainly = plain.insert(&bodies)?;
        (all, together) = commit_at_once(together, steps).await?;
        // The first round warms up.
        if round > 0 {
            alone_rates.push(rate(steps * 10, one));
            plain_rates.push(rate(bodies.len(), plainly));
            together_rates.push(rate(SESSIONS * steps, all));
        }
    }
    let (alone, together, plain) = (median(&alone_rates), median(&together_rates), median(&plain_rates));
    bench.record("100 sessions against one alone, sqlite sync", (together, alone), "commits/s", Bar::AtLeast(6.0))?;
    bench.record("100 sessions against plain SQLite by the 100", (together, plain), "commits/s", Bar::AtLeast(0.5))
}

fn rate(count: usize, duration: Duration) -> f64 {
    count as f64 / duration.as_secs_f64()
}

/// Rows as large as those the store writes.
fn stored_bodies(session: &mut Session, count: usize) -> Result<Vec<Vec<u8>>> {
    (0..count).map(|_| Ok(session.frame()?.0.to_bytes().to_vec())).collect()
}

/// Every session commits `steps` steps, each waiting for one before the next; the sessions do
/// not wait for each other. The records are made beforehand.
async fn commit_at_once(sessions: Vec<Session>, steps: usize) -> Result<(Duration, Vec<Session>)> {
    let mut prepared: Vec<Prepared> = Vec::new();
    for mut session in sessions {
        let batches = (0..steps).map(|_| session.step()).collect::<Result<_>>()?;
        prepared.push((session, batches));
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut session, batches) in prepared {
        tasks.spawn(async move {
            for records in &batches {
                session.commit(records).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((session, batches))
        });
    }
    let done = tasks.join_all().await;
    let elapsed = start.elapsed();
    let done: Vec<Prepared> = done.into_iter().collect::<Result<_>>()?;
    Ok((elapsed, done.into_iter().map(|(session, _)| session).collect()))
}
