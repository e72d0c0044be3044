//! Files people name: read with a limit, written whole or not at all, never over another one
//! unless they say so.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rekindle::{Error, ErrorKind, Result};

/// The text of a file, or of standard input for `-`.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    let name = path.display();
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => io::stdin().lock().take(limit + 1).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(limit + 1).read_to_string(&mut text)),
    };
    read.map_err(|error| unreadable(path, error))?;
    match text.len() as u64 {
        size if size > limit => Err(Error::limit(format!("bytes of {name}"), size, limit)),
        _ => Ok(text),
    }
}

/// The error of a file that cannot be read.
pub fn unreadable(path: &Path, error: io::Error) -> Error {
    let message = format!("{} cannot be read", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(message).because(error).hint("check the path"),
        _ => Error::invalid(message).because(error).hint("check the path and who may read it"),
    }
}

/// The error of a file that cannot be written.
pub fn unwritable(path: &Path, error: io::Error) -> Error {
    let message = format!("{} cannot be written", path.display());
    Error::new(ErrorKind::PersistFailed, message)
        .because(error)
        .hint("check the path, who may write there, and the disk")
}

/// The error of a file that is in the way.
pub fn in_the_way(path: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("there is a file {} already", path.display()))
        .hint("choose another name, or say --force to replace it")
}

/// Replaces a file of others, or makes it with the folders above: whole or not at all, where a link leads,
/// and for those who could read it.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| unwritable(path, error);
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = match target.exists() {
        true => NewFile::begin(&target, true)?,
        false => NewFile::begin_readable(&target, false)?,
    };
    file.file.write_all(bytes).map_err(failed)?;
    file.finish().map(drop)
}

/// A file under way: it gets its name when it is complete and on disk.
#[derive(Debug)]
pub struct NewFile<'a> {
    path: &'a Path,
    force: bool,
    file: tempfile::NamedTempFile,
}

impl<'a> NewFile<'a> {
    /// Begins a file; refused if there is one and `force` is not said. Only its owner can read it, unless it
    /// replaces a file that others can read.
    pub fn begin(path: &'a Path, force: bool) -> Result<Self> {
        let new = Self::begin_with(path, force, tempfile::Builder::new().prefix(".rekindle-"))?;
        let mode = path.metadata().map_or(0o600, |found| found.permissions().mode() & 0o777);
        let set = new.file.as_file().set_permissions(Permissions::from_mode(mode));
        set.map_err(|error| unwritable(path, error)).map(|()| new)
    }

    /// The same for a file that others may read, as far as the umask allows.
    pub fn begin_readable(path: &'a Path, force: bool) -> Result<Self> {
        let readable = Permissions::from_mode(0o644);
        Self::begin_with(path, force, tempfile::Builder::new().prefix(".rekindle-").permissions(readable))
    }

    fn begin_with(path: &'a Path, force: bool, builder: &tempfile::Builder<'_, '_>) -> Result<Self> {
        if !force && path.symlink_metadata().is_ok() {
            return Err(in_the_way(path));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = builder.tempfile_in(folder);
        Ok(Self { path, force, file: file.map_err(|error| unwritable(path, error))? })
    }

    /// Where to write.
    pub fn writer(&mut self) -> io::BufWriter<&mut File> {
        io::BufWriter::with_capacity(256 << 10, self.file.as_file_mut())
    }

    /// Gives it its name, and says how many bytes it has.
    pub fn finish(mut self) -> Result<u64> {
        let flushed = self.file.flush().and_then(|()| self.file.as_file().sync_all());
        flushed.map_err(|error| unwritable(self.path, error))?;
        let bytes = self.file.as_file().metadata().map_err(|error| unwritable(self.path, error))?.len();
        let named = match self.force {
            true => self.file.persist(self.path),
            false => self.file.persist_noclobber(self.path),
        };
        match named {
            Ok(_) => {
                // The name is on disk when its folder is.
                let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let synced = std::fs::File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
                synced.map_err(|error| unwritable(self.path, error)).map(|()| bytes)
            }
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(in_the_way(self.path)),
            Err(error) => Err(unwritable(self.path, error.error)),
        }
    }
}
