//! Where things stand in the directory of a file store, how a file is replaced atomically, and
//! how errors of the disk become errors of the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle_core::{BranchId, Error, ErrorKind, Head, IdSource, Result, Seq, SessionKey, file_name};
use serde::{Deserialize, Serialize};

use super::disk::{Disk, DiskFile, OpenMode};

/// The file that makes a directory a store. New parts of the store get its mode.
pub(crate) const MARKER: &str = "rekindle.json";

/// The layout this build writes, and the newest it reads.
const LAYOUT: u32 = 1;

/// The most a file other than a segment may hold.
pub(super) const LARGEST_OBJECT: usize = 128 << 20;

/// The directory of a store and what is needed to work in it.
#[derive(Debug)]
pub(super) struct Layout {
    pub disk: Arc<dyn Disk>,
    pub root: PathBuf,
    pub writable: bool,
    pub segment_bytes: u64,
    pub ids: IdSource,
}

#[derive(Serialize, Deserialize)]
struct StoreFile {
    format: String,
    layout: u32,
}

impl Layout {
    pub(super) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub(super) fn namespace(&self, namespace: &str) -> PathBuf {
        self.sessions().join(file_name(namespace))
    }

    pub(super) fn session(&self, key: &SessionKey) -> PathBuf {
        self.namespace(key.namespace.as_str()).join(file_name(key.id.as_str()))
    }

    /// A name in the trash that nothing has.
    pub(super) fn trash(&self) -> PathBuf {
        self.root.join("trash").join(self.unique())
    }

    /// Text unlike any other.
    pub(super) fn unique(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.ids.nonce()))
    }

    /// Makes the directory a store, or checks that it is one.
    pub(super) fn prepare(&self, create: bool) -> Result<()> {
        let path = self.root.join(MARKER);
        match self.read_small(&path)? {
            Some(bytes) => check_layout(&bytes, &path)?,
            None if create && self.writable => {
                self.create_root()?;
                let file = StoreFile { format: "rekindle file store".into(), layout: LAYOUT };
                let mut text = serde_json::to_vec(&file).expect("a struct of plain fields is always JSON");
                text.push(b'\n');
                // Another process may have made the store at the same moment.
                if let Err(error) = self.replace(&path, &text) {
                    let bytes = self.read_small(&path)?.ok_or(error)?;
                    check_layout(&bytes, &path)?;
                }
            }
            None => {
                let message = format!("there is no store at {}", self.root.display());
                return Err(Error::not_found(message).hint("check the path, or allow the store to be created"));
            }
        }
        if self.writable {
            self.empty_trash();
        }
        Ok(())
    }

    fn create_root(&self) -> Result<()> {
        let mut missing = Vec::new();
        let mut directory = self.root.as_path();
        loop {
            match self.disk.list(directory) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(directory),
                Err(error) => return Err(unusable(directory, error)),
            }
            match directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) => directory = parent,
                None => break,
            }
        }
        for directory in missing.into_iter().rev() {
            self.create_dir(directory)?;
        }
        Ok(())
    }

    // What was renamed here is gone already; only its space is left to free.
    fn empty_trash(&self) {
        let trash = self.root.join("trash");
        for name in self.disk.list(&trash).unwrap_or_default() {
            let _ = self.disk.remove_all(&trash.join(name));
        }
    }

    /// Makes a directory and its entry durable, unless it is there.
    pub(super) fn create_dir(&self, path: &Path) -> Result<()> {
        match self.disk.create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(|error| unusable(path, error))?,
        }
        // Synced even if it was there: whoever made it may have died before doing so.
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.sync_dir(parent),
            None => Ok(()),
        }
    }

    /// Makes the entries of a directory durable.
    pub(super) fn sync_dir(&self, path: &Path) -> Result<()> {
        self.disk.sync_dir(path).map_err(writing(path))
    }

    /// Opens a file to write, making it if need be.
    pub(super) fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        self.disk.open(path, OpenMode::Create).map_err(writing(path))
    }

    /// The names in a directory; none if there is no such directory.
    pub(super) fn names(&self, path: &Path) -> Result<Vec<String>> {
        match self.disk.list(path) {
            Err(error) if absent(&error) => Ok(Vec::new()),
            other => other.map_err(reading(path)),
        }
    }

    /// The content of a file other than a segment, if it is there.
    pub(super) fn read_small(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        match self.disk.open(path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(unusable(path, error)),
            Err(error) => Err(reading(path)(error)),
            Ok(file) => file.read_start(LARGEST_OBJECT).map(Some).map_err(reading(path)),
        }
    }

    /// Replaces a file: after a crash either the old content is there or the new one, and
    /// after a return the new one.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let written = self.create(&temporary).and_then(|file| {
            file.truncate(0)
                .and_then(|()| file.write_at(0, bytes))
                .and_then(|()| file.sync_data())
                .map_err(writing(path))
        });
        let renamed = written.and_then(|()| self.disk.rename(&temporary, path).map_err(writing(path)));
        if renamed.is_err() {
            let _ = self.disk.remove_file(&temporary);
        }
        renamed?;
        match path.parent() {
            Some(parent) => self.sync_dir(parent),
            None => Ok(()),
        }
    }

    /// Writes a file over what it held, without waiting for the disk: after a crash it may hold anything. A file
    /// that is renamed or emptied first would be written to the disk at once by some file systems.
    pub(super) fn overwrite(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        file.write_at(0, bytes).and_then(|()| file.truncate(bytes.len() as u64)).map_err(writing(path))
    }

    /// Moves what is at `path` into the trash, durably, then frees its space as far as it can.
    pub(super) fn discard(&self, path: &Path) -> Result<()> {
        self.create_dir(&self.root.join("trash"))?;
        let trash = self.trash();
        match self.disk.rename(path, &trash) {
            Err(error) if absent(&error) => return Ok(()),
            other => other.map_err(writing(path))?,
        }
        if let Some(parent) = path.parent() {
            self.sync_dir(parent)?;
        }
        // What stays is removed when the store is next opened.
        let _ = self.disk.remove_all(&trash);
        Ok(())
    }
}

/// The directory of a branch in that of its session.
pub(super) fn branch_directory(session: &Path, branch: &BranchId) -> PathBuf {
    session.join("branches").join(file_name(branch.as_str()))
}

/// The id whose directory has that name, unless the name holds only the start and the hash of a long id.
pub(super) fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|id| file_name(id) == name)
}

/// The name of the segment that begins with `first`.
pub(super) fn segment_name(first: Seq) -> String {
    format!("{:020}.jsonl", first.0)
}

/// The first record of the segment of that name.
pub(super) fn segment_first(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(".jsonl").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok().map(Seq))?
}

/// The name of the file of a base. The hash keeps a new base from replacing the current one
/// before the session says so.
pub(super) fn base_name(head: Head) -> String {
    format!("base-{:020}-{}.jsonl", head.seq.0, head.hash.short())
}

fn check_layout(bytes: &[u8], path: &Path) -> Result<()> {
    let file: StoreFile = serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt(format!("{} is not the file of a store", path.display())).because(error))?;
    if file.layout > LAYOUT {
        let kind = ErrorKind::VersionTooNew { what: "layout".into(), found: file.layout, supported: LAYOUT };
        return Err(Error::new(kind, format!("the store has layout {}; this build reads up to {LAYOUT}", file.layout)));
    }
    Ok(())
}

/// Whether an error says that there is nothing.
pub(super) fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The error of a read that failed.
pub(super) fn reading(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| {
        Error::new(ErrorKind::StoreUnavailable, format!("{} could not be read", path.display()))
            .because(error)
            .hint("check that the file is readable and the disk is healthy, then try again")
    }
}

/// The error of a write that failed.
pub(super) fn writing(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| {
        let reported = Error::new(ErrorKind::PersistFailed, format!("{} could not be written", path.display()));
        match refused(&error) {
            true => reported.because(error).hint(
                "the store can only be read here: make it writable, or copy it with `rekindle copy --to` and go on there",
            ),
            false => reported.because(error),
        }
    }
}

/// Returns whether an error says that writing, or looking, is not allowed.
pub(super) fn refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The error of a write into files that no longer have their names.
pub(super) fn replaced(path: &Path) -> Error {
    Error::corrupt(format!("{} was deleted, moved or replaced while it was in use", path.display()))
        .hint("find out what removed it; put it back from a backup or a copy, then resume")
}

fn unusable(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, NotADirectory};
    if matches!(error.kind(), NotADirectory | AlreadyExists) {
        let message = format!("{} is not a directory", path.display());
        return Error::invalid(message).because(error).hint("give the path of a directory, or of one to make");
    }
    writing(path)(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_decoded_unless_they_hold_a_hash() {
        for id in ["a", "A/b", "../x", "🦀", "100%"] {
            assert_eq!(decoded(&file_name(id)).as_deref(), Some(id));
        }
        for name in [&file_name(&"x".repeat(200)), "A", "%2", "%zz", "%+1", "%41b%c3", "a.b"] {
            assert_eq!(decoded(name), None, "{name}");
        }
    }

    #[test]
    fn segment_names_round_trip_and_nothing_else_is_one() {
        assert_eq!(segment_first(&segment_name(Seq(42))), Some(Seq(42)));
        for name in ["1.jsonl", "base-00000000000000000001-x.jsonl", "+0000000000000000042.jsonl", "lock"] {
            assert_eq!(segment_first(name), None, "{name}");
        }
    }
}
