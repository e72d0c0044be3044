//! What a long session takes in the database, indexes and all.

use rekindle_core::record::Durability;
use rekindle_fixtures::Postgres;

use super::journal;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::workload::Session;

const STEPS: usize = 10_000;

/// Measures stored bytes, in a schema of its own.
pub async fn measure(bench: &Bench, postgres: &Postgres) -> Result<()> {
    let name = format!("stored bytes after {STEPS} steps, postgres");
    bench.progress(&name);
    let journal = journal(&format!("{}?schema=size", postgres.url()))?;
    let mut session = Session::open(&journal, "size", Durability::Async).await?;
    session.commit_steps(STEPS).await?;
    let message_bytes = session.message_bytes();
    session.close().await?;
    let stored: f64 = postgres
        .sql(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class
             WHERE relnamespace = 'size'::regnamespace AND relkind = 'r'",
        )
        .parse()?;
    bench.record(name, (stored, message_bytes as f64), "bytes", Bar::AtMost(1.6))
}
