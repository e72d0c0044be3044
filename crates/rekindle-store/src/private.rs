//! Files and directories that only their owner may read, whatever the umask says. Everything a store or a
//! command creates goes through here; what exists keeps its mode.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The most links that may lead to a file.
const LINKS: usize = 16;

/// The permissions new files and directories get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    file: u32,
    directory: u32,
}

impl Modes {
    /// Only the owner: 0600 and 0700.
    pub const PRIVATE: Self = Self { file: 0o600, directory: 0o700 };

    /// The modes of new parts of something that is there: who may read or write `path` may do the same with
    /// them. [`Self::PRIVATE`] if there is nothing at `path`.
    pub fn like(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::PRIVATE, |found| Self::of(permissions(&found)))
    }

    fn of(mode: u32) -> Self {
        let file = mode & 0o666 | 0o600;
        // Directories can be entered by those who may read them.
        Self { file, directory: file | (file & 0o444) >> 2 }
    }

    /// Creates a file to be read and written; `AlreadyExists` if there is one.
    pub fn create_new(self, path: &Path) -> io::Result<File> {
        let file = with_mode(OpenOptions::new().read(true).write(true).create_new(true), self.file).open(path)?;
        // A umask may have taken away what the owner needs, or what a shared store has.
        let metadata = file.metadata()?;
        if permissions(&metadata) & 0o777 != self.file {
            file.set_permissions(with_bits(&metadata, self.file))?;
        }
        Ok(file)
    }

    /// Opens a file to be read and written; created if there is none.
    pub fn open_or_create(self, path: &Path) -> io::Result<File> {
        let existing = || OpenOptions::new().read(true).write(true).open(path);
        match existing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.create_new(path) {
                // Another process was faster; or a link leads nowhere, which opening reports.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
                other => other,
            },
            other => other,
        }
    }

    /// Opens a file to be appended to; created if there is none.
    pub fn append(self, path: &Path) -> io::Result<File> {
        match self.create_new(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        OpenOptions::new().append(true).open(path)
    }

    /// Creates a file with this content; `AlreadyExists` if there is one.
    pub fn write_new(self, path: &Path, content: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut self.create_new(path)?, content)
    }

    /// Creates a directory whose parent exists; `AlreadyExists` if something is there.
    pub fn create_dir(self, path: &Path) -> io::Result<()> {
        make_directory(path, self.directory)?;
        let metadata = std::fs::metadata(path)?;
        if permissions(&metadata) & 0o777 != self.directory {
            std::fs::set_permissions(path, with_bits(&metadata, self.directory))?;
        }
        Ok(())
    }

    /// Creates a directory and those above it that are missing.
    pub fn create_dir_all(self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        match self.create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().ok_or(error)?;
                self.create_dir_all(parent)?;
                self.create_dir(path).or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })
            }
            // Another process was faster.
            Err(_) if path.is_dir() => Ok(()),
            other => other,
        }
    }
}

#[cfg(unix)]
fn permissions(metadata: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o7777
}

/// Only these nine bits change: the setgid bit of a shared directory stays.
#[cfg(unix)]
fn with_bits(metadata: &std::fs::Metadata, mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(permissions(metadata) & 0o7000 | mode)
}

#[cfg(unix)]
fn with_mode(options: &mut OpenOptions, mode: u32) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, mode)
}

#[cfg(unix)]
fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(mode).create(path)
}

// Elsewhere there are no such modes: new files get what their directory says.
/// The path that a link leads to, by way of every link, whether or not anything is there.
pub fn target(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        match std::fs::read_link(&at) {
            Ok(next) => at = at.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => break,
        }
    }
    at
}

#[cfg(not(unix))]
fn permissions(_: &std::fs::Metadata) -> u32 {
    0o600
}

#[cfg(not(unix))]
fn with_bits(metadata: &std::fs::Metadata, _: u32) -> std::fs::Permissions {
    metadata.permissions()
}

#[cfg(not(unix))]
fn with_mode(options: &mut OpenOptions, _: u32) -> &mut OpenOptions {
    options
}

#[cfg(not(unix))]
fn make_directory(path: &Path, _: u32) -> io::Result<()> {
    std::fs::create_dir(path)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn new_parts_are_as_private_as_what_is_there() {
        let check = |existing: u32, file: u32, directory: u32| {
            assert_eq!(Modes::of(existing), Modes { file, directory }, "{existing:o}");
        };
        check(0o600, 0o600, 0o700);
        check(0o660, 0o660, 0o770);
        check(0o644, 0o644, 0o755);
        check(0o666, 0o666, 0o777);
        check(0o000, 0o600, 0o700);
        check(0o2770, 0o660, 0o770);
        assert_eq!(Modes::like(Path::new("/nowhere/at/all")), Modes::PRIVATE);
    }

    #[test]
    fn what_exists_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (file, directory) = (folder.path().join("file"), folder.path().join("a/b"));
        Modes::PRIVATE.write_new(&file, b"one").unwrap();
        Modes::PRIVATE.create_dir_all(&directory).unwrap();
        assert_eq!((mode(&file), mode(&directory), mode(directory.parent().unwrap())), (0o600, 0o700, 0o700));
        for path in [&file, &directory] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Modes::PRIVATE.open_or_create(&file).unwrap();
        Modes::PRIVATE.append(&file).unwrap();
        Modes::PRIVATE.create_dir_all(&directory).unwrap();
        assert_eq!((mode(&file), mode(&directory)), (0o755, 0o755));
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        let taken = Modes::PRIVATE.write_new(&file, b"two").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert!(Modes::PRIVATE.create_dir_all(&file.join("below")).is_err());
    }

    #[test]
    fn the_group_of_a_shared_directory_is_inherited() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o2770)).unwrap();
        let below = folder.path().join("below");
        Modes::of(0o660).create_dir(&below).unwrap();
        assert_eq!(mode(&below), 0o2770);
    }
}
