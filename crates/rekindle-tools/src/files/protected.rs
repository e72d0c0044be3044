//! Paths that no file tool writes, wherever its root is.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Stat};

/// Paths that file tools read and never write: the definition, configuration and store of the run
/// itself. A directory is protected with everything below it, and so is a path at which there is
/// nothing yet.
///
/// ```
/// use rekindle_tools::{Protected, WriteFile};
/// # let root = std::env::temp_dir();
/// let protected = Protected::new([root.join("agent.yaml")]);
/// let tool = WriteFile::builder(&root).protect(protected).build()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Protected(Arc<[PathBuf]>);

/// A file or directory, whatever path leads to it.
type Identity = (u64, u64);

impl Protected {
    /// Protects `paths`, and what those of them that are links lead to.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut all = Vec::new();
        for path in paths {
            // Seen from wherever the process is now, not from where it goes later.
            let path = std::path::absolute(&path).unwrap_or(path);
            let target = path.canonicalize().ok().filter(|target| *target != path);
            all.extend(target.into_iter().chain([path]));
        }
        all.sort();
        all.dedup();
        Self(all.into())
    }

    /// Returns whether a directory lies in a protected one.
    pub(super) fn covers(&self, directory: &Path) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let known: Vec<Identity> = self.0.iter().filter_map(|path| of_path(path)).collect();
        let real = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        real.ancestors().filter_map(of_path).any(|ancestor| known.contains(&ancestor))
    }

    /// Returns whether `name` in `directory` is protected. It is compared by what it is, not by how it is
    /// written: a path may lead through links, and systems differ in which names are the same.
    pub(super) fn includes(&self, directory: &OwnedFd, name: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Ok(parent) = rustix::fs::fstat(directory).map(|stat| of_stat(&stat)) else { return true };
        let there = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| of_stat(&stat));
        self.0.iter().any(|path| {
            let named = path.file_name() == Some(OsStr::new(name));
            named && path.parent().and_then(of_path) == Some(parent) || there.is_some() && of_path(path) == there
        })
    }
}

fn of_path(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// The fields have other types on other systems.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
fn of_stat(stat: &Stat) -> Identity {
    (stat.st_dev as u64, stat.st_ino as u64)
}
