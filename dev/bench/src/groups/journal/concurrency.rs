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
/// How many steps each commits in a round. Rows of many sessions lie between each other, and the
/// longer the sessions are, the farther apart: so a database is used for as many rounds, quick or
/// not.
const STEPS: usize = 50;
const ROUNDS: usize = 10;
/// One session alone commits more steps in a round, so that the round is not too short.
const STEPS_ALONE: usize = 10 * STEPS;

/// A session and what it is about to commit.
type Prepared = (Session, Vec<[Record; 2]>);

/// Commits per second, of each round.
#[derive(Debug, Default)]
struct Rates {
    alone: Vec<f64>,
    together: Vec<f64>,
    plain: Vec<f64>,
}

/// Measures commits per second.
pub async fn measure(bench: &Bench) -> Result<()> {
    bench.progress("commits per second of 100 sessions, sqlite sync");
    let mut rates = Rates::default();
    for _ in 0..bench.size(1, 8) {
        rates.sample(bench).await?;
    }
    let (alone, together, plain) = (median(&rates.alone), median(&rates.together), median(&rates.plain));
    bench.record("100 sessions against one alone, sqlite sync", (together, alone), "commits/s", Bar::AtLeast(6.0))?;
    bench.record("100 sessions against plain SQLite by the 100", (together, plain), "commits/s", Bar::AtLeast(0.5))
}

impl Rates {
    /// Adds the rounds of one database. All three take turns; the first turn of each warms up.
    async fn sample(&mut self, bench: &Bench) -> Result<()> {
        let directory = bench.directory()?;
        let journal = StoreKind::Sqlite.journal(directory.path(), Codec::new())?;
        let mut alone = vec![Session::open(&journal, "alone", Durability::Sync).await?];
        let mut together = Vec::new();
        for index in 0..SESSIONS {
            together.push(Session::open(&journal, &format!("session-{index}"), Durability::Sync).await?);
        }
        let mut plain = PlainTable::create(directory.path())?;
        let bodies = stored_bodies(&mut alone[0], SESSIONS * STEPS)?;
        for round in 0..=ROUNDS {
            let (one, all);
            (one, alone) = commit_at_once(alone, STEPS_ALONE).await?;
            let inserted = plain.insert(&bodies)?;
            (all, together) = commit_at_once(together, STEPS).await?;
            if round > 0 {
                self.alone.push(rate(STEPS_ALONE, one));
                self.plain.push(rate(bodies.len(), inserted));
                self.together.push(rate(SESSIONS * STEPS, all));
            }
        }
        Ok(())
    }
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
            Result::Ok((session, batches))
        });
    }
    let done = tasks.join_all().await;
    let elapsed = start.elapsed();
    let done: Vec<Prepared> = done.into_iter().collect::<Result<_>>()?;
    Ok((elapsed, done.into_iter().map(|(session, _)| session).collect()))
}
