//! How many appends per second 32 sessions reach together, against `pgbench`.

use std::process::Command;
use std::time::{Duration, Instant};

use rekindle_core::record::Durability;
use rekindle_fixtures::Postgres;
use tokio::task::JoinSet;

use super::{connect, journal, plain_table};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::median;
use crate::workload::Session;

/// How many write at once.
const AT_ONCE: usize = 32;

/// Measures appends per second. Both take turns.
pub async fn measure(bench: &Bench, postgres: &Postgres) -> Result<()> {
    let name = format!("appends per second of {AT_ONCE} sessions, postgres");
    bench.progress(&name);
    let client = connect(postgres).await?;
    plain_table(&client, "plain_rate").await?;
    let journal = journal(&format!("{}?pool={AT_ONCE}", postgres.url()))?;
    let mut sessions = Vec::new();
    for index in 0..AT_ONCE {
        sessions.push(Session::open(&journal, &format!("rate-{index}"), Durability::Sync).await?);
    }
    let bytes = sessions[0].frame()?.0.stored_len();
    let seconds = bench.size(3, 8);
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=bench.size(2, 5) {
        let floor = pgbench(bench, postgres, bytes, seconds)?;
        let figure;
        (figure, sessions) = commit_for(sessions, Duration::from_secs(seconds)).await?;
        if round > 0 {
            floors.push(floor);
            figures.push(figure);
        }
    }
    bench.record(name, (median(&figures), median(&floors)), "appends/s", Bar::AtLeast(0.7))
}

/// Transactions per second of a script with one INSERT of so many bytes.
fn pgbench(bench: &Bench, postgres: &Postgres, bytes: usize, seconds: u64) -> Result<f64> {
    let directory = bench.directory()?;
    let script = directory.path().join("insert.sql");
    std::fs::write(&script, "INSERT INTO plain_rate (body) VALUES (convert_to(:body, 'UTF8'));\n")?;
    let output = Command::new(Postgres::program("pgbench"))
        .args(["-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-U", "rekindle", "-n", "-M", "prepared"])
        .args(["-c", &AT_ONCE.to_string(), "-j", "2", "-T", &seconds.to_string()])
        .args(["-D", &format!("body={}", "z".repeat(bytes)), "-f"])
        .arg(&script)
        .arg("rekindle")
        .env("PGPASSWORD", Postgres::PASSWORD)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.ok_or_else(|| format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Every session commits step after step for a while; together so many per second.
async fn commit_for(sessions: Vec<Session>, time: Duration) -> Result<(f64, Vec<Session>)> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut session in sessions {
        tasks.spawn(async move {
            let mut count = 0u32;
            while start.elapsed() < time {
                session.commit_steps(1).await?;
                count += 1;
            }
            Result::Ok((session, count))
        });
    }
    let done: Vec<(Session, u32)> = tasks.join_all().await.into_iter().collect::<Result<_>>()?;
    let elapsed = start.elapsed().as_secs_f64();
    let count: u32 = done.iter().map(|(_, count)| count).sum();
    Ok((f64::from(count) / elapsed, done.into_iter().map(|(session, _)| session).collect()))
}
