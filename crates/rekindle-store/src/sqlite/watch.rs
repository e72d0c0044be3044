//! Notices that the database was deleted, moved or replaced while it is in use. SQLite goes on writing to files
//! that no longer have a name; what it acknowledges then is lost when the process ends.

use std::io;
use std::path::{Path, PathBuf};

use rekindle_core::{Error, Result};

/// Device and inode: no other file has both while this one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

/// The database and its log as they were when they were opened.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    log_path: PathBuf,
    database: Option<Identity>,
    /// Known from the first commit on: SQLite makes the log when it is needed.
    log: Option<Identity>,
}

impl Watch {
    /// Remembers the database that was just opened.
    pub(super) fn new(path: &Path) -> Self {
        let mut log_path = path.as_os_str().to_owned();
        log_path.push("-wal");
        Self { database: identity(path).ok().flatten(), path: path.to_owned(), log_path: log_path.into(), log: None }
    }

    /// An error if what was just committed is not in the files under the path of the database. Costs two looks at
    /// the file system. Files that cannot be looked at are taken to be there.
    pub(super) fn check(&mut self) -> Result<()> {
        if let (Some(known), Ok(found)) = (self.database, identity(&self.path))
            && found != Some(known)
        {
            return Err(replaced("the database", &self.path));
        }
        let Ok(found) = identity(&self.log_path) else { return Ok(()) };
        match self.log {
            Some(known) if found != Some(known) => Err(replaced("the log of the database,", &self.log_path)),
            Some(_) => Ok(()),
            None => {
                self.log = found;
                Ok(())
            }
        }
    }
}

/// The error of commits into files that no longer have their names. It is not one that passes: a run ends.
fn replaced(what: &str, path: &Path) -> Error {
    Error::corrupt(format!("{what} {} was deleted, moved or replaced while it was in use", path.display()))
        .hint("find out what removed it; put it back from a backup or a copy, then resume")
}

/// Which file is at `path`; nothing if none is.
#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(Identity(metadata.dev(), metadata.ino()))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

// Elsewhere an open file can be neither deleted nor replaced.
#[cfg(not(unix))]
fn identity(_: &Path) -> io::Result<Option<Identity>> {
    Ok(Some(Identity(0, 0)))
}
