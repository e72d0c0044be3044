//! What the file store needs of a disk, and nothing else: every access goes through here, so
//! that tests can put a disk underneath that loses power at any moment.

use std::fmt;
use std::io;
use std::path::Path;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To read a file that exists.
    Read,
    /// To read and write; the file is made if it does not exist.
    Create,
}

/// A file system. Calls block.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;

    /// The length of the file at `path`.
    fn size(&self, path: &Path) -> io::Result<u64>;

    /// The names in a directory, in any order; names that are not text are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory whose parent exists; `AlreadyExists` if something is there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Moves a file or directory, replacing a file that is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it; not atomic.
    fn remove_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file. Closing it releases its lock.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Its length now.
    fn size(&self) -> io::Result<u64>;

    /// Returns whether this is still the file at `path`, not one that was deleted, moved or replaced.
    fn is_at(&self, path: &Path) -> io::Result<bool>;

    /// Reads at most as much as fits into `buffer`; zero at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`; the file grows as needed. May stop half way with an error.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Waits for the advisory lock of this file, against other open files of any process.
    fn lock(&self, exclusive: bool) -> io::Result<()>;

    /// Gives the lock back.
    fn unlock(&self) -> io::Result<()>;
}

impl dyn DiskFile + '_ {
    /// Reads exactly `len` bytes at `offset`.
    pub(super) fn read_exact_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.read_at(offset + done as u64, &mut bytes[done..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(bytes)
    }

    /// Reads at most the first `limit` bytes.
    pub(super) fn read_start(&self, limit: usize) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.size()?).unwrap_or(usize::MAX).min(limit);
        self.read_exact_at(0, len)
    }
}
