//! One fixture for each store, and one for each decorator over any of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rekindle_core::values::Values;
use rekindle_core::{Clock, Store};
use rekindle_store::anchored::beside::{MarkDatabase, MarkFolder};
use rekindle_store::{
    Anchored, FaultPlan, FaultyStore, FileStore, MarksIn, MemoryStore, MeteredStore, Observation, SqliteStore,
    StoreObserver, StoreOptions,
};
use rekindle_testkit::{Fixture, Hooked};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::anchored::values::MemoryValues;

/// The memory store: there is no reopening, every handle shares the data.
#[derive(Default)]
pub struct Memory(OnceCell<MemoryStore>);

#[async_trait]
impl Fixture for Memory {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let store = self.0.get_or_init(|| async { MemoryStore::new(StoreOptions::new().with_clock(clock)) });
        Arc::new(store.await.clone())
    }

    async fn stored_bytes(&self) -> Option<u64> {
        self.0.get().map(MemoryStore::stored_bytes)
    }
}

/// The file store in a directory of its own.
pub struct Files(pub TempDir);

impl Default for Files {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

#[async_trait]
impl Fixture for Files {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(FileStore::open(self.0.path().join("store"), StoreOptions::new().with_clock(clock)).unwrap())
    }

    async fn stored_bytes(&self) -> Option<u64> {
        Some(bytes_below(self.0.path()))
    }
}

/// The SQLite store in a directory of its own.
pub struct Sqlite(pub TempDir);

impl Default for Sqlite {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("rekindle.db"), StoreOptions::new().with_clock(clock)).unwrap())
    }

    async fn stored_bytes(&self) -> Option<u64> {
        Some(bytes_below(self.0.path()))
    }
}

pub fn bytes_below(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

/// Any fixture with the fault decorator around it, and nothing going wrong.
#[derive(Default)]
pub struct Faulty<F>(F);

#[async_trait]
impl<F: Fixture> Fixture for Faulty<F> {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(FaultyStore::new(self.0.open(clock).await, Arc::<FaultPlan>::default()))
    }

    async fn stored_bytes(&self) -> Option<u64> {
        self.0.stored_bytes().await
    }
}

/// Any fixture with high-water marks, which live as long as the fixture.
#[derive(Default)]
pub struct Marked<F> {
    fixture: F,
    values: MemoryValues,
}

#[async_trait]
impl<F: Fixture> Fixture for Marked<F> {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let marks = MarksIn::beside("memory", Arc::new(self.values.clone()));
        Arc::new(Anchored::new(self.fixture.open(clock).await, &[marks]))
    }

    async fn stored_bytes(&self) -> Option<u64> {
        self.fixture.stored_bytes().await
    }
}

/// The places for marks beside a store, as the values of a store in memory.
pub struct Beside {
    store: Memory,
    directory: TempDir,
    open: fn(PathBuf) -> Arc<dyn Values>,
}

impl Beside {
    pub fn database() -> Self {
        Self::new(|path| Arc::new(MarkDatabase::new(path, false)))
    }

    pub fn folder() -> Self {
        Self::new(|path| Arc::new(MarkFolder::new(path, false)))
    }

    fn new(open: fn(PathBuf) -> Arc<dyn Values>) -> Self {
        Self { store: Memory::default(), directory: tempfile::tempdir().unwrap(), open }
    }
}

#[async_trait]
impl Fixture for Beside {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let values = (self.open)(self.directory.path().join("marks"));
        Arc::new(Hooked::new(self.store.open(clock).await, ()).with_values(values))
    }
}

/// Any fixture with the metrics decorator around it.
#[derive(Default)]
pub struct Metered<F> {
    fixture: F,
    seen: Arc<Seen>,
}

/// Remembers what it was told.
#[derive(Debug, Default)]
pub struct Seen(pub Mutex<Vec<Observation>>);

impl StoreObserver for Seen {
    fn observed(&self, observation: Observation) {
        self.0.lock().unwrap().push(observation);
    }
}

#[async_trait]
impl<F: Fixture> Fixture for Metered<F> {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(MeteredStore::new(self.fixture.open(clock).await, self.seen.clone()))
    }

    async fn stored_bytes(&self) -> Option<u64> {
        self.fixture.stored_bytes().await
    }
}
