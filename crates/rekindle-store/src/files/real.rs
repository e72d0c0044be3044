//! The disk of this machine.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, DiskFile, OpenMode};
use super::layout::MARKER;
use crate::private::Modes;

/// The file system of the operating system. What it creates may be read by those who may read the file that
/// makes a directory a store; only by its owner in a new store.
#[derive(Clone, Debug)]
pub struct RealDisk {
    marker: PathBuf,
}

impl RealDisk {
    /// The disk below the root of a store.
    pub fn below(root: &Path) -> Self {
        Self { marker: root.join(MARKER) }
    }

    fn modes(&self) -> Modes {
        Modes::like(&self.marker)
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let file = match mode {
            OpenMode::Read => File::open(path)?,
            OpenMode::Create => match File::options().read(true).write(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.modes().open_or_create(path)?,
                other => other?,
            },
        };
        let identity = identity(&file.metadata()?);
        Ok(Box::new(RealFile { file, identity }))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        fs::metadata(path).map(|metadata| metadata.len())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.modes().create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    // Elsewhere a directory cannot be opened as a file; renames there are durable by themselves
    // or not at all.
    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    identity: Identity,
}

/// Device and inode: no other file has both while this one is open.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

// Elsewhere an open file can be neither deleted nor replaced.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Identity {
    (0, 0)
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(identity(&metadata) == self.identity),
            Err(error) if super::layout::absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_at(&self.file, offset, bytes)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn lock(&self, exclusive: bool) -> io::Result<()> {
        if exclusive { self.file.lock() } else { self.file.lock_shared() }
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

#[cfg(unix)]
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(unix)]
fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

// A session's files are used under its mutex, so the shared cursor is nobody else's.
#[cfg(not(unix))]
fn read_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read(buffer)
}

#[cfg(not(unix))]
fn write_at(mut file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}
