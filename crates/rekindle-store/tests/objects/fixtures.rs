//! The store over a directory and over S3.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use rekindle_core::{Clock, Store};
use rekindle_fixtures::{ForeignS3, S3};
use rekindle_store::{Bucket, LargeValues, MemoryStore, ObjectsStore, StoreOptions};
use rekindle_testkit::Fixture;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Small, so that short histories are merged several times.
pub const COMPACT_EVERY: u64 = 6;

/// A store in a directory of its own.
pub struct Directory(pub TempDir);

impl Default for Directory {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

pub fn directory_url(path: &Path) -> String {
    format!("objects:{}", path.join("bucket").display())
}

#[async_trait]
impl Fixture for Directory {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let options = StoreOptions::new().with_clock(clock);
        let bucket = Bucket::open(&directory_url(self.0.path()), &options).unwrap();
        Arc::new(ObjectsStore::with_compaction(bucket, options, COMPACT_EVERY).unwrap())
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

/// A store in a bucket of its own of the S3 in this process.
pub struct Cloud(String);

impl Default for Cloud {
    fn default() -> Self {
        static BUCKETS: AtomicUsize = AtomicUsize::new(0);
        Self(format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::SeqCst)))
    }
}

#[async_trait]
impl Fixture for Cloud {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let options = StoreOptions::new().with_clock(clock);
        let bucket = Bucket::open(&S3::shared().url(&self.0), &options).unwrap();
        Arc::new(ObjectsStore::with_compaction(bucket, options, COMPACT_EVERY).unwrap())
    }

    async fn stored_bytes(&self) -> Option<u64> {
        Some(S3::shared().stored_bytes(&self.0))
    }
}

/// Numbers the folders of one process.
fn new_folder() -> String {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    format!("folder-{}", FOLDERS.fetch_add(1, Ordering::SeqCst))
}

/// A store in a folder of a service that others wrote; of the S3 in this process if that cannot be had here.
fn open_below(service: Option<&ForeignS3>, folder: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
    let options = StoreOptions::new().with_clock(clock);
    let url = service.map_or_else(|| S3::shared().url(folder), |service| service.url_below(folder));
    let bucket = Bucket::open(&url, &options).unwrap();
    Arc::new(ObjectsStore::with_compaction(bucket, options, COMPACT_EVERY).unwrap())
}

/// A store in a folder of moto.
pub struct Moto(String);

impl Default for Moto {
    fn default() -> Self {
        Self(new_folder())
    }
}

#[async_trait]
impl Fixture for Moto {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        static MOTO: LazyLock<Option<ForeignS3>> = LazyLock::new(ForeignS3::moto);
        open_below(MOTO.as_ref(), &self.0, clock)
    }
}

/// A store in a folder of SeaweedFS.
pub struct SeaweedFs(String);

impl Default for SeaweedFs {
    fn default() -> Self {
        Self(new_folder())
    }
}

#[async_trait]
impl Fixture for SeaweedFs {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        static SEAWEEDFS: LazyLock<Option<ForeignS3>> = LazyLock::new(ForeignS3::seaweedfs);
        open_below(SEAWEEDFS.as_ref(), &self.0, clock)
    }
}

/// Any fixture with large values in a bucket: nearly everything is large here.
pub struct Large<F>(F, TempDir);

impl<F: Default> Default for Large<F> {
    fn default() -> Self {
        Self(F::default(), tempfile::tempdir().unwrap())
    }
}

#[async_trait]
impl<F: Fixture> Fixture for Large<F> {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let bucket = Bucket::open(&directory_url(self.1.path()), &StoreOptions::new()).unwrap();
        Arc::new(LargeValues::new(self.0.open(clock).await, bucket).with_threshold(64))
    }

    async fn stored_bytes(&self) -> Option<u64> {
        Some(self.0.stored_bytes().await? + bytes_below(self.1.path()))
    }
}

/// The memory store: every handle shares the data.
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

/// The SQLite store in a directory of its own.
#[cfg(feature = "sqlite")]
pub struct Sqlite(TempDir);

#[cfg(feature = "sqlite")]
impl Default for Sqlite {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

#[cfg(feature = "sqlite")]
#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let options = StoreOptions::new().with_clock(clock);
        Arc::new(rekindle_store::SqliteStore::open(self.0.path().join("rekindle.db"), options).unwrap())
    }
}
