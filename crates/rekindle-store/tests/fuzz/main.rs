//! Stores on mutated data, and files that are imported; see `docs/fuzzing.md`. Decoders that are private are
//! fuzzed beside their code, in tests named `fuzzed_…`.
#![cfg(all(feature = "files", feature = "sqlite", feature = "objects"))]
#![allow(clippy::unwrap_used)]

mod exports;
mod stored;

use std::future::Future;
use std::sync::Arc;

use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::{BranchId, Entry, IdSource, Journal, Record, Seq, SessionHeader, SessionId, SessionKey, Store};
use rekindle_store::SystemClock;
use rekindle_testkit::History;

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn session() -> SessionKey {
    SessionId::new("victim").unwrap().into()
}

fn signing() -> Codec {
    Codec::new().with_signing(KeyRing::new("s", [7; 32]).unwrap())
}

fn sealing() -> Codec {
    Codec::new().with_encryption(KeyRing::new("e", [7; 32]).unwrap())
}

fn journal(store: Arc<dyn Store>, codec: Codec) -> Journal {
    Journal::new(store, codec, Arc::new(SystemClock), IdSource::seeded([1; 32]))
}

/// Writes a session with a fork, an inbox and a description, and returns the records of `main`.
async fn write(journal: &Journal) -> Vec<Record> {
    let mut header = SessionHeader::new(session());
    header.title = Some("title".into());
    header.metadata.insert("n".into(), rekindle_core::Json::from("1"));
    journal.create(header).await.unwrap();
    let mut main = History::begin(journal, &session()).await;
    main.append_steps(5).await.unwrap();
    let mut fork = main.fork("fork", 4).await.unwrap();
    fork.append_steps(2).await.unwrap();
    journal.send(&session(), &[rekindle_testkit::message("sent")]).await.unwrap();
    main.records()
}

/// The records of `main`, if they can be read.
async fn records(journal: &Journal) -> Option<Vec<Record>> {
    let entries = journal.read(&session(), &BranchId::main(), Seq(1), 1_000).await.ok()?;
    let batches = entries.into_iter().map(|entry| match entry {
        Entry::Batch(batch) => Some(batch.records),
        Entry::Damaged(_) => None,
    });
    Some(batches.collect::<Option<Vec<_>>>()?.concat())
}
