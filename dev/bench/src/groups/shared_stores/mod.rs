//! Stores that many processes share: PostgreSQL and Redis, each a server of its own that this group
//! starts, with every commit on disk. Floors are what the same server does for the same bytes
//! without Rekindle.

mod append;
mod rate;
mod redis;
mod size;
mod workers;

use rekindle_core::Journal;
use rekindle_core::codec::Codec;
use rekindle_fixtures::Postgres;
use rekindle_store::{StoreOptions, SystemClock, system_ids};
use tokio_postgres::{Client, NoTls};

use crate::Result;
use crate::bench::Bench;
use crate::groups::Group;

/// This group.
pub const GROUP: Group = Group { name: "shared-stores", about: "PostgreSQL, Redis and workers", run };

fn run(bench: &Bench) -> Result<()> {
    let postgres = Postgres::start(&["max_connections=200", "shared_buffers=256MB"]);
    bench.block_on(async {
        append::measure(bench, &postgres).await?;
        rate::measure(bench, &postgres).await?;
        size::measure(bench, &postgres).await?;
        workers::measure(bench, &postgres).await?;
        redis::measure(bench).await
    })
}

/// A journal over the store at `url`, as an engine would make it.
fn journal(url: &str) -> Result<Journal> {
    let store = rekindle_store::open(url, StoreOptions::new())?;
    let codec = Codec::new().with_compression(store.capabilities().compress_from, 1);
    Ok(Journal::new(store, codec, std::sync::Arc::new(SystemClock), system_ids()?))
}

/// A plain connection by the same driver.
async fn connect(postgres: &Postgres) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A table of our own with one column of bytes, and how rows go into it.
async fn plain_table(client: &Client, name: &str) -> Result<String> {
    client
        .batch_execute(&format!(
            "CREATE TABLE IF NOT EXISTS {name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);
             ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL"
        ))
        .await?;
    Ok(format!("INSERT INTO {name} (body) VALUES ($1)"))
}

/// What a child process of this group does, if the flag is one of a child.
pub fn as_child(flag: &str, directory: &std::path::Path) -> Option<Result<()>> {
    workers::as_child(flag, directory)
}
