//! Writing objects into a directory: readable by those who may read the directory, whole or not at all; and
//! over one version of an object, which services do by tags, under a lock between processes.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error as ServiceError, ObjectStoreExt};
use rekindle_core::{Error, ErrorKind, Hash, Result};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::backend::{Put, Tag, Write};
use super::failure::service_error;
use crate::private::Modes;

/// Writes into a directory; one conditional write of a handle at a time waits for the lock file.
#[derive(Debug)]
pub(super) struct LocalTurn {
    root: PathBuf,
    service: Arc<LocalFileSystem>,
    turn: Arc<Mutex<()>>,
}

/// A tag that goes by the content alone: times of files are too coarse to tell versions apart.
pub(super) fn content_tag(bytes: &[u8]) -> Tag {
    Tag { entity: Some(Hash::of(bytes).to_string()), version: None }
}

impl LocalTurn {
    pub(super) fn new(root: PathBuf, service: Arc<LocalFileSystem>) -> Self {
        Self { root, service, turn: Arc::default() }
    }

    /// Writes an object.
    pub(super) async fn put(&self, shown: &str, path: Path, bytes: Bytes, write: Write) -> Result<Put> {
        let place = self.place(shown, &path)?;
        let written = tokio::task::spawn_blocking(move || place.publish(&bytes, write)).await;
        written.map_err(stopped)?.map_err(|error| failed(shown, path.as_ref(), error))
    }

    /// Writes over the version of an object that has this tag.
    pub(super) async fn put_over(&self, shown: &str, path: Path, bytes: Bytes, tag: &Tag) -> Result<Put> {
        let place = self.place(shown, &path)?;
        let (turn, lock_path, tag) = (self.turn.clone().lock_owned().await, self.root.join(".lock"), tag.clone());
        let (shown, service, runtime) = (shown.to_owned(), self.service.clone(), Handle::current());
        // On a thread to its end, so that a caller who goes does not give the lock back too early.
        let work = move || {
            let _turn = turn;
            let unusable = |error: io::Error| {
                Error::new(ErrorKind::StoreUnavailable, format!("{} cannot be locked", lock_path.display()))
                    .because(error)
            };
            let lock = place.modes().open_or_create(&lock_path).map_err(unusable)?;
            lock.lock().map_err(unusable)?;
            let current = runtime.block_on(read(&service, &path));
            match current.map_err(|error| service_error(&shown, path.as_ref(), &error))? {
                Some(current) if content_tag(&current) == tag => {
                    place.publish(&bytes, Write::Replace).map_err(|error| failed(&shown, path.as_ref(), error))
                }
                _ => Ok(Put::Exists),
            }
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }

    fn place(&self, shown: &str, path: &Path) -> Result<Place> {
        let file = self.service.path_to_filesystem(path);
        let file = file.map_err(|error| service_error(shown, path.as_ref(), &error))?;
        let top = path.as_ref().split('/').count() - 1;
        Ok(Place { file, top })
    }
}

async fn read(service: &LocalFileSystem, path: &Path) -> Result<Option<Bytes>, ServiceError> {
    match service.get(path).await {
        Ok(found) => found.bytes().await.map(Some),
        Err(ServiceError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn stopped(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the write was stopped").because(error)
}

fn failed(shown: &str, name: &str, error: io::Error) -> Error {
    service_error(shown, name, &ServiceError::Generic { store: "LocalFileSystem", source: Box::new(error) })
}

/// The file of an object.
struct Place {
    file: PathBuf,
    /// The number of directories between the root and the file.
    top: usize,
}

impl Place {
    /// New directories and files below a directory of the root get the mode of that directory, so that sharing
    /// it once is enough. The root itself may be a directory made for other reasons: it says nothing.
    fn modes(&self) -> Modes {
        match self.top {
            0 => Modes::PRIVATE,
            top => self.file.ancestors().nth(top).map_or(Modes::PRIVATE, Modes::like),
        }
    }

    /// Writes the object beside its name, which it gets when it is on disk.
    fn publish(&self, bytes: &[u8], write: Write) -> io::Result<Put> {
        let (mut file, staged) = self.stage()?;
        let published = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| match write {
            Write::Replace => std::fs::rename(&staged, &self.file).map(|()| Put::Done),
            Write::New => match std::fs::hard_link(&staged, &self.file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Put::Exists),
                other => other.map(|()| Put::Done),
            },
        });
        if write == Write::New || published.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        let published = published?;
        // Also for an object that is there: whoever wrote it may have died before its name was on disk.
        self.file.parent().map_or(Ok(()), sync_directory)?;
        Ok(published)
    }

    /// A new file beside that of the object. Listings leave out names that end with `#` and digits.
    fn stage(&self) -> io::Result<(File, PathBuf)> {
        let modes = self.modes();
        let mut number = 1_u64;
        loop {
            let mut name = self.file.clone().into_os_string();
            name.push(format!("#{number}"));
            let staged = PathBuf::from(name);
            match modes.create_new(&staged) {
                Ok(file) => return Ok((file, staged)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let parent = self.file.parent().ok_or(error)?;
                    create_directories(parent, modes)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Creates directories so that they are there after a crash.
fn create_directories(path: &FilePath, modes: Modes) -> io::Result<()> {
    let existing = path.ancestors().find(|above| above.is_dir());
    modes.create_dir_all(path)?;
    for directory in path.ancestors() {
        sync_directory(directory)?;
        if Some(directory) == existing {
            break;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn sync_directory(path: &FilePath) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_path: &FilePath) -> io::Result<()> {
    Ok(())
}
