//! What the tests share: stores as new processes see them, an external ledger, small tools.
//! Several test programs include this file, and not each of them uses all of it.
#![allow(dead_code, unused_imports, unused_macros)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle::core::codec::Codec;
use rekindle::core::{Entry, IdSource, LogName, Record, Seq};
use rekindle::schemars::{self, JsonSchema};
use rekindle::{Clock, Engine, Journal, Message, SessionKey, State, Store};
use rekindle_store::{MemoryStore, StoreOptions};
use rekindle_testkit::ManualClock;
use serde::Deserialize;
use tempfile::TempDir;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Files,
    Sqlite,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Files, Self::Sqlite];
}

/// Tests that call `stop(kind, durability)` for each store and each durability.
macro_rules! on_every_store {
    ($stop:ident) => {
        on_every_store! { $stop
            memory_sync: Memory, Sync;
            memory_async: Memory, Async;
            memory_exit: Memory, Exit;
            files_sync: Files, Sync;
            files_async: Files, Async;
            files_exit: Files, Exit;
            sqlite_sync: Sqlite, Sync;
            sqlite_async: Sqlite, Async;
            sqlite_exit: Sqlite, Exit;
        }
    };
    ($stop:ident $($name:ident: $kind:ident, $durability:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $stop($crate::support::Kind::$kind, rekindle::Durability::$durability).await;
        }
    )*};
}
pub(crate) use on_every_store;

/// A place for data that outlives the "processes" that open it.
pub struct World {
    kind: Kind,
    pub directory: TempDir,
    memory: MemoryStore,
    pub clock: Arc<ManualClock>,
    seed: std::cell::Cell<u8>,
}

impl World {
    pub fn new(kind: Kind) -> Self {
        let clock = Arc::new(ManualClock::default());
        let memory = MemoryStore::new(StoreOptions::new().with_clock(clock.clone()));
        Self { kind, directory: TempDir::new().unwrap(), memory, clock, seed: 1.into() }
    }

    /// The store, as a new process would open it.
    pub fn store(&self) -> Arc<dyn Store> {
        let options = StoreOptions::new().with_clock(self.clock.clone());
        let path = self.directory.path().display();
        match self.kind {
            Kind::Memory => Arc::new(self.memory.clone()),
            Kind::Files => rekindle_store::open(&format!("file:{path}/files"), options).unwrap(),
            Kind::Sqlite => rekindle_store::open(&format!("sqlite:{path}/store.db"), options).unwrap(),
        }
    }

    /// An engine of its own, as a new process would have it.
    pub fn engine(&self) -> Engine {
        self.engine_over(self.store())
    }

    pub fn engine_over(&self, store: Arc<dyn Store>) -> Engine {
        self.seed.set(self.seed.get().wrapping_add(1));
        let clock: Arc<dyn Clock> = self.clock.clone();
        let ids = IdSource::seeded([self.seed.get(); 32]);
        // A store that fails stands for a process that dies: nothing comes back.
        Engine::with_journal(Journal::new(store, Codec::new(), clock, ids))
            .with_poll(Duration::from_millis(10))
            .with_store_patience(Duration::ZERO)
    }

    /// The leases of dead processes expire.
    pub fn pass_leases(&self) {
        self.clock.advance(Duration::from_secs(3_600));
    }

    pub fn pass_leases_short(&self) {
        self.clock.advance(Duration::from_secs(16));
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.directory.path().join("ledger"))
    }
}

/// What really happened, written by the tools themselves, one line each.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    pub fn write(&self, line: &str) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.0).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|known| *known == line).count()
    }

    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        self.lines().into_iter().for_each(|line| *counts.entry(line).or_default() += 1);
        counts
    }
}

/// The arguments of most tools here.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Of {
    pub what: String,
}

/// The state of a session's current branch.
pub async fn state(engine: &Engine, session: &SessionKey) -> State {
    engine.journal().load(session, None).await.unwrap().state
}

/// The messages of a session, without their ids.
pub async fn messages(engine: &Engine, session: &SessionKey) -> Vec<Message> {
    let state = state(engine, session).await;
    let messages = state.log(&LogName::new("messages").unwrap());
    messages.iter().map(|json| Message { id: None, ..Message::from_json(json).unwrap() }).collect()
}

/// Every record of a session's branch.
pub async fn records(engine: &Engine, session: &SessionKey, branch: &rekindle::BranchId) -> Vec<(Seq, Record)> {
    let mut records = Vec::new();
    let mut from = Seq(1);
    loop {
        let entries = engine.journal().read(session, branch, from, 500).await.unwrap();
        if entries.is_empty() {
            return records;
        }
        for entry in entries {
            let Entry::Batch(batch) = entry else { panic!("damaged: {entry:?}") };
            from = batch.last.next();
            records.extend(batch.numbered().map(|(seq, record)| (seq, record.clone())));
        }
    }
}
