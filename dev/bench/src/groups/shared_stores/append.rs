//! What one append costs.

use std::time::Instant;

use rekindle_core::record::Durability;
use rekindle_fixtures::Postgres;

use super::{connect, journal, plain_table};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::Rounds;
use crate::workload::Session;

/// Measures one append after the other, against a row of the same bytes by the same driver.
pub async fn measure(bench: &Bench, postgres: &Postgres) -> Result<()> {
    let name = "append of a 2 KB step, postgres, p50";
    bench.progress(name);
    let client = connect(postgres).await?;
    let insert = client.prepare(&plain_table(&client, "plain_append").await?).await?;
    let journal = journal(&postgres.url())?;
    let mut session = Session::open(&journal, "append", Durability::Sync).await?;
    let body = session.frame()?.0.to_bytes().to_vec();
    let floor = async || {
        let start = Instant::now();
        client.execute(&insert, &[&body]).await?;
        Ok(start.elapsed())
    };
    let rounds = Rounds { rounds: bench.size(20, 100), each: 25 };
    let compared = rounds.compare(floor, async || session.timed_commit().await).await?;
    session.close().await?;
    bench.record(name, (compared.figure, compared.floor), "us", Bar::AtMost(1.5))
}
