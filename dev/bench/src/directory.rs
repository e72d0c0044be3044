//! Where the data goes: a directory of our own on a real disk, removed afterwards.

use std::path::Path;

use tempfile::TempDir;

use crate::Result;

/// File systems that keep everything in memory: nothing there costs what a disk costs.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];

/// A directory that goes when this does.
#[derive(Debug)]
pub struct DataDirectory(TempDir);

impl DataDirectory {
    /// A new directory under `parent`, or under `target` here.
    pub fn create(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.unwrap_or(Path::new("target"));
        let context = |error| format!("{} cannot hold the data: {error}", parent.display());
        std::fs::create_dir_all(parent).map_err(context)?;
        let parent = parent.canonicalize().map_err(context)?;
        // Only Linux has the file; elsewhere nobody benchmarks in memory by accident.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if let Some(kind) = file_system(&mounts, &parent).filter(|kind| IN_MEMORY.contains(kind)) {
            let parent = parent.display();
            return Err(format!("{parent} is kept in memory ({kind}); name a directory on a disk with --dir").into());
        }
        let directory = tempfile::Builder::new().prefix("rekindle-bench-").tempdir_in(&parent).map_err(context)?;
        Ok(Self(directory))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The kind of file system that holds `path`, by the table of mounts.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mount = |line: &'a str| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    };
    let holding = mounts.lines().filter_map(mount).filter(|(point, _)| path.starts_with(point));
    // Of two mounts at one place the later one is seen.
    holding.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// The bytes of all files under `path`.
pub fn stored_bytes(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => stored_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_holds_a_path() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n";
        let check = |path: &str, expected| assert_eq!(file_system(mounts, Path::new(path)), expected, "{path}");
        check("/work", Some("ext4"));
        check("/tmp/x", Some("tmpfs"));
        check("/tmp/disk/x", Some("xfs"));
        check("/tmpfoo", Some("ext4"));
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn bytes_are_counted_in_all_directories() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("inner")).unwrap();
        std::fs::write(directory.path().join("inner/file"), "12345").unwrap();
        std::fs::write(directory.path().join("file"), "123").unwrap();
        assert_eq!(stored_bytes(directory.path()).unwrap(), 8);
    }
}
