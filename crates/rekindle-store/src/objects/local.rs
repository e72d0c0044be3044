//! Writing over one version of an object in a directory: what services do by tags, here under a lock
//! between processes.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as ServiceError, ObjectStore, ObjectStoreExt};
use rekindle_core::{Error, ErrorKind, Hash, Result};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::backend::{Put, Tag};
use super::failure::service_error;

/// The order of such writes: one of a handle at a time waits for the lock file.
#[derive(Debug)]
pub(super) struct LocalTurn {
    root: PathBuf,
    turn: Arc<Mutex<()>>,
}

/// A tag that goes by the content alone: times of files are too coarse to tell versions apart.
pub(super) fn content_tag(bytes: &[u8]) -> Tag {
    Tag { entity: Some(Hash::of(bytes).to_string()), version: None }
}

impl LocalTurn {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, turn: Arc::default() }
    }

    /// Writes over the version of an object that has this tag.
    pub(super) async fn put_over(
        &self,
        service: Arc<dyn ObjectStore>,
        shown: &str,
        path: Path,
        bytes: Bytes,
        tag: &Tag,
    ) -> Result<Put> {
        let (turn, lock_path, tag) = (self.turn.clone().lock_owned().await, self.root.join(".lock"), tag.clone());
        let (shown, name, runtime) = (shown.to_owned(), path.to_string(), Handle::current());
        // On a thread to its end, so that a caller who goes does not give the lock back too early.
        let work = move || {
            let _turn = turn;
            let unusable = |error: io::Error| {
                Error::new(ErrorKind::StoreUnavailable, format!("{} cannot be locked", lock_path.display()))
                    .because(error)
            };
            let lock = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(unusable)?;
            lock.lock().map_err(unusable)?;
            runtime
                .block_on(write_over(&*service, &path, bytes, &tag))
                .map_err(|error| service_error(&shown, &name, &error))
        };
        let stopped = |error| Error::new(ErrorKind::StoreUnavailable, "the write was stopped").because(error);
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }
}

async fn write_over(service: &dyn ObjectStore, path: &Path, bytes: Bytes, tag: &Tag) -> Result<Put, ServiceError> {
    let current = match service.get(path).await {
        Ok(found) => found.bytes().await?,
        Err(ServiceError::NotFound { .. }) => return Ok(Put::Exists),
        Err(error) => return Err(error),
    };
    if content_tag(&current) != *tag {
        return Ok(Put::Exists);
    }
    service.put(path, bytes.into()).await.map(|_| Put::Done)
}
