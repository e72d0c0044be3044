//! Paths under a root, walked directory by directory, never through a link.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Protected;

/// What temporary files end with. A crash may leave one behind; none is listed.
const TEMPORARY: &str = ".rekindle-tmp";

/// A directory that paths do not lead out of. It is opened anew for each call, so that one that was
/// replaced is noticed.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    path: PathBuf,
    protected: Protected,
}

/// The purpose for which a path is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Reading,
    /// A file that is there is replaced.
    Replacing,
    /// A file is written, with the directories above it.
    Creating,
}

/// A name in a directory.
pub(super) struct Place {
    pub(super) parent: OwnedFd,
    pub(super) name: String,
    /// The whole path, as it is shown.
    pub(super) shown: String,
}

impl Root {
    /// An error names the directory if it is none.
    pub(super) fn new(path: PathBuf, protected: Protected) -> Result<Self, String> {
        // Seen from wherever the process is now, not from where it goes later.
        let path = std::path::absolute(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let root = Self { path, protected };
        root.open()?;
        Ok(root)
    }

    fn open(&self) -> Result<OwnedFd, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.path, flags, Mode::empty())
            .map_err(|errno| format!("the root `{}` is no directory that can be read: {errno}", self.path.display()))
    }

    /// The directory at `path`.
    pub(super) fn directory(&self, path: &str) -> Result<OwnedFd, String> {
        self.walk(&components(path)?, For::Reading)
    }

    /// The directory that holds `path`, and its name there. To write, directories that are missing can be
    /// made, and what is protected is refused.
    pub(super) fn place(&self, path: &str, purpose: For) -> Result<Place, String> {
        let mut components = components(path)?;
        let name = components.pop().ok_or("the path is empty: name a file")?;
        let parent = self.walk(&components, purpose)?;
        let shown = components.iter().chain([&name]).map(|part| part.as_str()).collect::<Vec<_>>().join("/");
        if purpose != For::Reading && self.protected.includes(&parent, &name) {
            return Err(protected(&shown));
        }
        Ok(Place { parent, name, shown })
    }

    fn walk(&self, components: &[String], purpose: For) -> Result<OwnedFd, String> {
        let mut directory = self.open()?;
        if purpose != For::Reading && self.protected.covers(&self.path) {
            return Err(protected("."));
        }
        for (index, name) in components.iter().enumerate() {
            let shown = || components[..=index].join("/");
            if purpose != For::Reading && self.protected.includes(&directory, name) {
                return Err(protected(&shown()));
            }
            let create = purpose == For::Creating;
            let mut opened = open_directory(&directory, name);
            if create && opened.as_ref().is_err_and(|errno| *errno == Errno::NOENT) {
                make_directory(&directory, name).map_err(|errno| format!("`{}`: {errno}", shown()))?;
                opened = open_directory(&directory, name);
            }
            directory = opened.map_err(|errno| explain(&directory, name, &shown(), errno))?;
        }
        Ok(directory)
    }
}

impl Place {
    /// Opens it for reading; only what is a regular file.
    pub(super) fn read(&self) -> Result<(File, u64), String> {
        // A pipe would wait for a writer for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.parent, &*self.name, flags, Mode::empty())
            .map_err(|errno| explain(&self.parent, &self.name, &self.shown, errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| format!("`{}`: {errno}", self.shown))?;
        match kind(&stat) {
            FileType::RegularFile => Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or_default())),
            FileType::Directory => Err(format!("`{}` is a directory", self.shown)),
            _ => Err(format!("`{}` is no regular file", self.shown)),
        }
    }

    /// Puts `content` there, all of it or nothing, and makes that durable. Doing it again changes
    /// nothing.
    pub(super) fn replace(&self, content: &[u8]) -> Result<(), String> {
        let before = rustix::fs::statat(&self.parent, &*self.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        match before.as_ref().map(kind) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Directory) => return Err(format!("`{}` is a directory", self.shown)),
            Some(FileType::Symlink) => return Err(link(&self.shown)),
            Some(_) => return Err(format!("`{}` is no regular file", self.shown)),
        }
        let temporary = temporary_name();
        let written = self.write_temporary(&temporary, before.as_ref(), content).and_then(|()| {
            rustix::fs::renameat(&self.parent, &*temporary, &self.parent, &*self.name)?;
            rustix::fs::fsync(&self.parent)?;
            Ok(())
        });
        written.map_err(|error| {
            let _ = rustix::fs::unlinkat(&self.parent, &*temporary, AtFlags::empty());
            format!("`{}` cannot be written: {error}", self.shown)
        })
    }

    fn write_temporary(&self, name: &str, before: Option<&Stat>, content: &[u8]) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.parent, name, flags, Mode::from_raw_mode(0o666))?;
        if let Some(before) = before {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o777))?;
        }
        let mut file = File::from(file);
        file.write_all(content)?;
        file.sync_all()
    }
}

/// Opens a directory by its name in another one; a link is none.
pub(super) fn open_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Makes a directory, durably. That somebody else was faster is fine.
fn make_directory(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => rustix::fs::fsync(parent),
        Err(errno) => Err(errno),
    }
}

/// What kind of file it is.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether it is a file that was being written when a process died.
pub(super) fn is_temporary(name: &str) -> bool {
    name.ends_with(TEMPORARY)
}

/// The parts of a path, or why it is not one under a root.
fn components(path: &str) -> Result<Vec<String>, String> {
    if path.contains('\0') {
        return Err("the path has a NUL in it".to_owned());
    }
    if path.starts_with('/') {
        return Err(format!("`{path}` is absolute; paths are relative to the root"));
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let parts: Vec<String> = parts.map(str::to_owned).collect();
    match parts.iter().any(|part| part == "..") {
        true => Err(format!("`{path}` has `..` in it; paths stay under the root")),
        false => Ok(parts),
    }
}

/// Why something could not be opened. Systems tell links apart in different ways, so it is looked at.
fn explain(parent: impl AsFd, name: &str, shown: &str, errno: Errno) -> String {
    let is_link =
        rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| kind(&stat) == FileType::Symlink);
    match errno {
        _ if is_link => link(shown),
        Errno::NOENT => format!("there is no `{shown}`"),
        Errno::NOTDIR => format!("`{shown}` is no directory"),
        Errno::ACCESS | Errno::PERM => format!("`{shown}` may not be opened: {errno}"),
        _ => format!("`{shown}` cannot be opened: {errno}"),
    }
}

fn protected(shown: &str) -> String {
    format!("`{shown}` belongs to this agent itself (its definition, configuration or store); it is not written")
}

fn link(shown: &str) -> String {
    format!("`{shown}` is a symbolic link; links are not followed")
}

/// A name that no other writer uses at the same time: two of them never write the same file.
fn temporary_name() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    format!(".{random:016x}-{}{TEMPORARY}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_under_the_root() {
        let check = |path: &str, expected: Result<&[&str], &str>| {
            let expected = expected.map(|parts| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
            assert_eq!(components(path), expected.map_err(str::to_owned));
        };
        check("", Ok(&[]));
        check(".", Ok(&[]));
        check("a/./b//c/", Ok(&["a", "b", "c"]));
        check("...", Ok(&["..."]));
        check("/a", Err("`/a` is absolute; paths are relative to the root"));
        check("a/../b", Err("`a/../b` has `..` in it; paths stay under the root"));
        check("..", Err("`..` has `..` in it; paths stay under the root"));
        check("a\0b", Err("the path has a NUL in it"));
    }
}
