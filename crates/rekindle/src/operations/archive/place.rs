//! Where archives are kept: a bucket, or whatever can do the same.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::Result;

/// Keeps archives. Names are safe paths, parts separated by `/`, each made by
/// [`file_name`](rekindle_core::file_name).
#[async_trait]
pub trait ArchivePlace: Send + Sync {
    /// Its name for people, without secrets.
    fn shown(&self) -> String;

    /// Writes an object, whatever was there.
    async fn put(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// Writes an object unless another is there; whether it is the one written.
    async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool>;

    /// An object; nothing if there is none.
    async fn get(&self, name: &str) -> Result<Option<Bytes>>;

    /// Removes an object; one that is not there is removed already.
    async fn delete(&self, name: &str) -> Result<()>;

    /// The names and sizes of at most `limit` objects below `folder` that come behind `after`, by name.
    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>>;

    /// The names and sizes of the objects below `folder` that were written at least `age` ago, by the clock of the place.
    /// A place that cannot tell names none, and then no garbage is found there.
    async fn older_than(&self, folder: &str, age: Duration) -> Result<Vec<(String, u64)>> {
        let _ = (folder, age);
        Ok(Vec::new())
    }
}

#[cfg(feature = "objects")]
#[async_trait]
impl ArchivePlace for rekindle_store::Bucket {
    fn shown(&self) -> String {
        Self::shown(self).to_owned()
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        Self::put(self, name, bytes).await
    }

    async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool> {
        Self::put_new(self, name, bytes).await
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        Self::get(self, name).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        Self::delete(self, name).await
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>> {
        Self::list(self, folder, after, limit).await
    }

    async fn older_than(&self, folder: &str, age: Duration) -> Result<Vec<(String, u64)>> {
        Self::older_than(self, folder, age).await
    }
}
