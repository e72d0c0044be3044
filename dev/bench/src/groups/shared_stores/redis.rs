//! What one append costs on Redis, with every write on disk before it is acknowledged.

use std::time::Instant;

use rekindle_core::record::Durability;
use rekindle_fixtures::Redis;

use super::journal;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::Rounds;
use crate::workload::Session;

/// Measures one append after the other, against XADD of the same bytes by the same driver.
pub async fn measure(bench: &Bench) -> Result<()> {
    for (fsync, words) in [("always", "on disk"), ("everysec", "on disk each second")] {
        append(bench, fsync, words).await?;
    }
    Ok(())
}

async fn append(bench: &Bench, fsync: &str, words: &str) -> Result<()> {
    let name = format!("append of a 2 KB step, redis {words}, p50");
    bench.progress(&name);
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", fsync]);
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let journal = journal(&server.url())?;
    let mut session = Session::open(&journal, "append", Durability::Sync).await?;
    let body = session.frame()?.0.to_bytes().to_vec();
    let floor = async || {
        let start = Instant::now();
        let add = redis::cmd("XADD").arg("plain").arg("*").arg("body").arg(&body).clone();
        let _: String = add.query_async(&mut connection).await?;
        Ok(start.elapsed())
    };
    let rounds = Rounds { rounds: bench.size(20, 100), each: 25 };
    let compared = rounds.compare(floor, async || session.timed_commit().await).await?;
    session.close().await?;
    bench.record(name, (compared.figure, compared.floor), "us", Bar::AtMost(2.0))
}
