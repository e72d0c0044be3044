//! Places beside the data of a store, written without syncs: marks that a power cut takes lie behind
//! the journal, which is harmless.

#[cfg(feature = "sqlite")]
mod database;
#[cfg(feature = "files")]
mod folder;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(feature = "sqlite")]
pub use database::MarkDatabase;
#[cfg(feature = "files")]
pub use folder::MarkFolder;

/// The place beside the data at `path`: a sibling, so that replacing or deleting the data leaves it.
/// Links are followed, so that every path to the data leads to the same marks.
pub(super) fn beside(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = path.canonicalize().unwrap_or_else(|_| absolute());
    let mut name: OsString = path.file_name().map_or_else(|| "store".into(), ToOwned::to_owned);
    name.push("-marks");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn marks_are_siblings_of_what_they_are_about() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink(root.join("data"), root.join("link")).unwrap();
        for path in ["data", "data/", "./data/../data", "link"] {
            assert_eq!(beside(&root.join(path)), root.join("data-marks"), "{path}");
        }
        assert_eq!(beside(&root.join("new.db")), root.join("new.db-marks"));
    }
}
