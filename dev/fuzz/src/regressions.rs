//! Inputs that failed once, one file each: `<folder>/<target>/<hash>`. The bytes themselves are kept, not a
//! seed, so that they stay what they are when strategies change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Writes the input and returns its path, whether or not writing worked: the caller is about to
/// fail anyway and says where to look.
pub(crate) fn keep(folder: &Path, target: &str, input: &[u8]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let folder = folder.join(target);
    let path = folder.join(format!("{:016x}", hasher.finish()));
    let _ = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
    path
}

/// The inputs of a target, in the order of their names.
pub(crate) fn all(folder: &Path, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder.join(target)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}
