//! The record of what was trusted: one file for each path and content, in a directory of the user's own.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rekindle::core::Hash;
use rekindle::{Error, ErrorKind, Result};

/// The number of contents of one file that stay trusted: edited files are run often.
const CONTENTS: usize = 16;

/// The directory in which it stands; none if nothing says where the user's files are.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: Option<PathBuf>,
}

/// A content of a file that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    pub content: String,
}

impl Ledger {
    /// The ledger of this user: `$XDG_STATE_HOME/rekindle/trust`, or in `~/.local/state`.
    pub fn of_user() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/state"));
        Self { folder: absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("rekindle/trust")) }
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns whether this content of a file is trusted.
    pub fn has(&self, path: &Path, content: Hash) -> bool {
        let Some(folder) = &self.folder else { return false };
        is_own(folder) && entry(folder, path, content).symlink_metadata().is_ok_and(|found| found.is_file())
    }

    /// Trusts this content of a file from now on.
    pub fn add(&self, path: &Path, content: Hash) -> Result<()> {
        if self.has(path, content) {
            return Ok(());
        }
        let Some(folder) = &self.folder else {
            return Err(failed("neither HOME nor XDG_STATE_HOME says where it could be recorded"));
        };
        let entry = entry(folder, path, content);
        let contents = entry.parent().unwrap_or(folder);
        let unwritable = |error: io::Error| failed(&format!("{} cannot be written", folder.display())).because(error);
        DirBuilder::new().recursive(true).mode(0o700).create(contents).map_err(unwritable)?;
        if !is_own(folder) {
            let problem = format!("{} belongs to another user, or others may write to it", folder.display());
            return Err(failed(&problem));
        }
        forget_oldest(contents);
        // The name alone decides; the path in it is for people. So it is no matter if a crash leaves it empty.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&entry);
        match file {
            Ok(mut file) => file.write_all(key(path).as_os_str().as_encoded_bytes()).map_err(unwritable),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(unwritable(error)),
        }
    }

    /// Everything that is trusted, in the order of the paths.
    pub fn list(&self) -> Vec<Entry> {
        let Some(folder) = self.folder.as_deref().filter(|folder| is_own(folder)) else { return Vec::new() };
        let mut found: Vec<Entry> =
            files_in(folder).into_iter().flat_map(|of| files_in(&of)).filter_map(of_file).collect();
        found.sort_by(|a, b| (&a.path, &a.content).cmp(&(&b.path, &b.content)));
        found
    }

    /// Trusts no content of a file any more; how many there were.
    pub fn revoke(&self, path: &Path) -> Result<usize> {
        let Some(folder) = &self.folder else { return Ok(0) };
        let contents = folder.join(Hash::of(key(path).as_os_str().as_encoded_bytes()).to_string());
        let mut revoked = 0;
        for file in files_in(&contents) {
            std::fs::remove_file(&file).map_err(|error| crate::files::unwritable(&file, error))?;
            revoked += 1;
        }
        let _ = std::fs::remove_dir(&contents);
        Ok(revoked)
    }
}

/// A path under which a file is known, however it was written down: links in its name are not followed, those
/// on the way are.
pub fn key(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, absolute.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

fn entry(folder: &Path, path: &Path, content: Hash) -> PathBuf {
    let of_path = Hash::of(key(path).as_os_str().as_encoded_bytes());
    folder.join(of_path.to_string()).join(content.to_string())
}

/// Returns whether nobody else can write to it. Another user's decisions are not this one's, not even for root.
fn is_own(folder: &Path) -> bool {
    let own = |found: &std::fs::Metadata| found.uid() == rustix::process::geteuid().as_raw();
    folder.metadata().is_ok_and(|found| found.is_dir() && own(&found) && found.mode() & 0o022 == 0)
}

/// Makes room for one more.
fn forget_oldest(contents: &Path) {
    let mut files = files_in(contents);
    files.sort_by_key(|file| file.metadata().and_then(|found| found.modified()).ok());
    for file in files.iter().take((files.len() + 1).saturating_sub(CONTENTS)) {
        let _ = std::fs::remove_file(file);
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()).map(|entry| entry.path()).collect()
}

fn of_file(file: PathBuf) -> Option<Entry> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = std::fs::read(&file).ok().filter(|path| !path.is_empty())?;
    let content = file.file_name()?.to_str()?.to_owned();
    Some(Entry { path: PathBuf::from(std::ffi::OsString::from_vec(path)), content })
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::PersistFailed, format!("what is trusted cannot be recorded: {why}"))
        .hint("name the file wherever it is needed (`--config FILE`, `--file FILE`), or set XDG_STATE_HOME")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn trust_is_by_path_and_content_and_can_be_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger { folder: Some(place.path().join("state/trust")) };
        let (one, two) = (place.path().join("a.yaml"), place.path().join("b.yaml"));
        let (old, new) = (Hash::of(b"old"), Hash::of(b"new"));
        ledger.add(&one, old).unwrap();
        ledger.add(&one, old).unwrap();
        let check = |path: &Path, content: Hash, expected: bool| assert_eq!(ledger.has(path, content), expected);
        check(&one, old, true);
        check(&place.path().join("x/../a.yaml"), old, false);
        check(&place.path().join("./a.yaml"), old, true);
        check(&one, new, false);
        check(&two, old, false);
        assert_eq!(ledger.list(), [Entry { path: key(&one), content: old.to_string() }]);
        let mode = |path: &str| place.path().join(path).metadata().unwrap().mode() & 0o777;
        assert_eq!((mode("state"), mode("state/trust")), (0o700, 0o700));

        std::fs::set_permissions(place.path().join("state/trust"), std::fs::Permissions::from_mode(0o777)).unwrap();
        check(&one, old, false);
        assert!(ledger.list().is_empty() && ledger.add(&two, old).is_err());
        std::fs::set_permissions(place.path().join("state/trust"), std::fs::Permissions::from_mode(0o700)).unwrap();

        assert_eq!((ledger.revoke(&one).unwrap(), ledger.revoke(&one).unwrap()), (1, 0));
        check(&one, old, false);
        for number in 0..CONTENTS + 5 {
            ledger.add(&one, Hash::of(&number.to_le_bytes())).unwrap();
        }
        assert_eq!(ledger.list().len(), CONTENTS);
        assert!(Ledger { folder: None }.add(&one, old).is_err());
    }
}
