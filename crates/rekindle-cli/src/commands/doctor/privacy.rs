//! Checks of who else can read or write the files of a store.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Check;
use super::surroundings::place;
use crate::app::App;

/// The most files of a store that are looked at: others are made by the same rules.
const MOST: usize = 2_000;
/// Permissions of the group and of everybody else.
const GROUP: u32 = 0o070;
const EVERYBODY: u32 = 0o007;

/// One warning for each place of this machine that others have access to.
pub fn checks(app: &App) -> Vec<Check> {
    let settings = &app.settings;
    let places = [Some(settings.store_url()), settings.archive_url(), settings.large_values_url()];
    let mut checks = Vec::new();
    for (index, url) in places.iter().enumerate() {
        let Some(url) = url.as_ref().filter(|url| !places[..index].contains(&Some((*url).clone()))) else { continue };
        checks.extend(place(url).and_then(|path| check(&path)));
    }
    checks
}

fn check(path: &Path) -> Option<Check> {
    let parts: Vec<PathBuf> = ["", "-wal", "-shm", "-marks", "-marks-wal", "-marks-shm"]
        .iter()
        .map(|end| {
            let mut name: OsString = path.into();
            name.push(end);
            PathBuf::from(name)
        })
        .filter(|part| part.exists())
        .collect();
    let mut left = MOST;
    let open: Vec<(&Path, Open)> =
        parts.iter().filter_map(|part| Some((part.as_path(), find(part, above(part), &mut left)?))).collect();
    let (_, first) = open.first()?;
    let more = if open.len() > 1 { ", and files beside it" } else { "" };
    let says = format!("others can {} {} (mode {:04o}){more}", first.verb, first.path.display(), first.mode);
    let names: Vec<String> =
        open.iter().map(|(part, _)| crate::words::next::quoted(&part.display().to_string())).collect();
    let recursive = if parts.iter().any(|part| part.is_dir()) { "-R " } else { "" };
    Some(Check::warning("private", says, format!("chmod {recursive}go-rwx {}", names.join(" "))))
}

/// A file or directory that others have access to.
struct Open {
    path: PathBuf,
    mode: u32,
    verb: &'static str,
}

/// Those of the group and of everybody else who can enter all directories above.
fn above(path: &Path) -> u32 {
    path.ancestors().skip(1).filter_map(|directory| directory.metadata().ok()).fold(GROUP | EVERYBODY, |who, found| {
        // The group of a file need not be the group of the directories above it.
        let (group, everybody) = (found.mode() & 0o011 != 0, found.mode() & 0o001 != 0);
        who & (if group { GROUP } else { 0 } | if everybody { EVERYBODY } else { 0 })
    })
}

/// The first file that those of `who` can read or write, or directory they can change.
fn find(path: &Path, who: u32, left: &mut usize) -> Option<Open> {
    *left = left.checked_sub(1)?;
    let found = path.symlink_metadata().ok().filter(|found| !found.is_symlink())?;
    let mode = found.mode() & 0o777;
    let given = mode & who;
    let open = |verb| Some(Open { path: path.to_owned(), mode, verb });
    if given & 0o022 != 0 {
        return open(if given & 0o044 != 0 { "read and write" } else { "write" });
    }
    if !found.is_dir() {
        return if given & 0o044 != 0 { open("read") } else { None };
    }
    let enter = if given & 0o010 != 0 { GROUP } else { 0 } | if given & 0o001 != 0 { EVERYBODY } else { 0 };
    if enter == 0 {
        return None;
    }
    let entries = std::fs::read_dir(path).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| find(&entry.path(), enter, left))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn modes_that_let_others_in_are_found() {
        let check = |directory: u32, inner: u32, file: u32, expected: Option<(&str, &str)>| {
            let folder = tempfile::tempdir().unwrap();
            let (root, below) = (folder.path().join("store"), folder.path().join("store/below"));
            std::fs::create_dir_all(&below).unwrap();
            std::fs::write(below.join("file"), "x").unwrap();
            for (path, mode) in [(below.join("file"), file), (below.clone(), inner), (root.clone(), directory)] {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            let found = find(&root, GROUP | EVERYBODY, &mut 100);
            let name = |open: &Open| open.path.file_name().unwrap().to_str().unwrap().to_owned();
            let told = found.as_ref().map(|open| (name(open), open.verb));
            let expected = expected.map(|(name, verb)| (name.to_owned(), verb));
            assert_eq!(told, expected, "{directory:o} {inner:o} {file:o}");
        };
        check(0o700, 0o755, 0o644, None);
        check(0o755, 0o700, 0o644, None);
        check(0o755, 0o755, 0o600, None);
        check(0o755, 0o755, 0o644, Some(("file", "read")));
        check(0o755, 0o755, 0o622, Some(("file", "write")));
        check(0o755, 0o777, 0o600, Some(("below", "read and write")));
        check(0o710, 0o750, 0o640, Some(("file", "read")));
        check(0o710, 0o755, 0o604, None);
        check(0o770, 0o700, 0o600, Some(("store", "read and write")));
    }
}
