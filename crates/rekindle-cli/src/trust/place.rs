//! The users who can change a file: its owner, and everybody who may write to it or to its directory.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::words::next::quoted;

/// The largest file that is read.
const LARGEST: u64 = 4 << 20;

/// The most links that may lead to a file.
const LINKS: usize = 16;

/// Bits of a mode: writable by the group, by others, and only owners remove files.
const GROUP: u32 = 0o020;
const OTHERS: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// A file that was found: its content, and who else may have written it.
#[derive(Debug)]
pub struct Found {
    pub bytes: Vec<u8>,
    pub exposed: Option<Exposed>,
}

/// The reason why others may have written a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The reason, for people.
    pub why: String,
    /// The command that changes it; none if only trust helps.
    pub remedy: Option<String>,
}

/// Reads a regular file that was found, and finds out who may have written it. What was read is what was
/// looked at: both go by the open file.
pub fn read(path: &Path) -> io::Result<Found> {
    // A pipe would wait for a writer for ever.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is larger than {} MiB", LARGEST >> 20)));
    }
    Ok(Found { bytes, exposed: exposed(path, &found, User::this()) })
}

/// The user whose files are believed, beside root's.
#[derive(Clone, Copy, Debug)]
struct User(u32);

impl User {
    fn this() -> Self {
        Self(rustix::process::geteuid().as_raw())
    }

    fn owns(self, found: &Metadata) -> bool {
        found.uid() == self.0 || found.uid() == 0
    }
}

/// Finds out who else may have written what `path` leads to, by way of every link.
fn exposed(path: &Path, file: &Metadata, user: User) -> Option<Exposed> {
    of_file(path, file, user).or_else(|| {
        let mut at = path.to_owned();
        for _ in 0..LINKS {
            let folder =
                at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            let unseen = |_| Exposed { why: format!("{} cannot be looked at", folder.display()), remedy: None };
            let found = match folder.metadata().map_err(unseen) {
                Ok(found) => found,
                Err(unseen) => return Some(unseen),
            };
            if let Some(exposed) = of_folder(&folder, &found, user) {
                return Some(exposed);
            }
            match at.symlink_metadata() {
                Ok(link) if link.is_symlink() && !user.owns(&link) => {
                    return Some(Exposed {
                        why: format!("the link {} {}", at.display(), belongs(&link)),
                        remedy: None,
                    });
                }
                Ok(link) if link.is_symlink() => at = folder.join(std::fs::read_link(&at).unwrap_or_default()),
                _ => return None,
            }
        }
        Some(Exposed { why: "too many links lead to it".to_owned(), remedy: None })
    })
}

fn of_file(path: &Path, found: &Metadata, user: User) -> Option<Exposed> {
    if !user.owns(found) {
        return Some(Exposed { why: format!("it {}", belongs(found)), remedy: None });
    }
    writable(found, user).map(|who| {
        let remedy = format!("chmod go-w {}", quoted(&path.display().to_string()));
        Exposed { why: format!("{who} may write to it"), remedy: Some(remedy) }
    })
}

fn of_folder(folder: &Path, found: &Metadata, user: User) -> Option<Exposed> {
    let real: PathBuf = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if !user.owns(found) {
        return Some(Exposed { why: format!("its directory {} {}", real.display(), belongs(found)), remedy: None });
    }
    // Where only owners remove files, others can put none in the place of ours.
    writable(found, user).filter(|_| found.mode() & STICKY == 0).map(|who| {
        let remedy = format!("chmod go-w {}", quoted(&real.display().to_string()));
        Exposed { why: format!("{who} may write to its directory {}", real.display()), remedy: Some(remedy) }
    })
}

/// Says who may write beside the owner.
fn writable(found: &Metadata, user: User) -> Option<&'static str> {
    match found.mode() {
        mode if mode & OTHERS != 0 => Some("everybody"),
        mode if mode & GROUP != 0 && !is_private_group(found.gid(), user) => Some("its group"),
        _ => None,
    }
}

/// Returns whether a group has this user and nobody else in it, as each user's own group on many systems, where files
/// are writable by the group from the beginning.
fn is_private_group(group: u32, user: User) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    has_nobody_else(&read("/etc/passwd"), &read("/etc/group"), group, user)
}

fn has_nobody_else(users: &str, groups: &str, group: u32, user: User) -> bool {
    let (group, user) = (group.to_string(), user.0.to_string());
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let users: Vec<_> = users.lines().map(fields).filter(|user| user.len() > 3).collect();
    let groups: Vec<_> = groups.lines().map(fields).filter(|group| group.len() > 3).collect();
    let Some(name) = users.iter().find(|known| known[2] == user).map(|known| known[0].clone()) else { return false };
    let Some(members) = groups.iter().find(|known| known[2] == group).map(|known| known[3].clone()) else {
        return false;
    };
    let others = users.iter().any(|known| known[3] == group && known[2] != user);
    !others && members.split(',').all(|member| member.is_empty() || member == name)
}

fn belongs(found: &Metadata) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let id = found.uid().to_string();
    let name = users.lines().find(|line| line.split(':').nth(2) == Some(&id)).and_then(|line| line.split(':').next());
    match name {
        Some(name) => format!("belongs to {name} (user {id})"),
        None => format!("belongs to user {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_one_is_private() {
        let users = "root:x:0:0::/root:/bin/sh\nmaria:x:1000:1000::/home/maria:/bin/sh\nben:x:1001:100::/:/bin/sh\n";
        let groups = "root:x:0:\nusers:x:100:\nmaria:x:1000:\nstaff:x:50:maria,ben\nown:x:60:maria\nbroken\n";
        let check = |group: u32, user: u32, expected: bool| {
            assert_eq!(has_nobody_else(users, groups, group, User(user)), expected, "{group} {user}");
        };
        check(1000, 1000, true);
        check(60, 1000, true);
        check(0, 0, true);
        check(100, 1000, false);
        check(50, 1000, false);
        check(1000, 1001, false);
        check(777, 1000, false);
        check(1000, 777, false);
    }
}
