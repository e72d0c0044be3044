//! Names the process that holds the write lock of a database, for people who meet a locked one. Linux lists the locks of
//! all processes; elsewhere nothing is known.

use std::path::Path;

/// The byte of the `-shm` file whose lock is the write lock in WAL mode.
const WRITE_LOCK: u64 = 120;

/// A process that holds the write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pid: u32,
    /// The name of its program, if that can be seen.
    name: Option<String>,
    /// True if it was stopped, e.g. with SIGSTOP or Ctrl-Z.
    stopped: bool,
}

impl Holder {
    /// A sentence about it.
    pub(super) fn said(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let stopped = if self.stopped { " and is stopped" } else { "" };
        format!("process {}{name} holds its write lock{stopped}", self.pid)
    }

    /// The commands that help.
    pub(super) fn hint(&self) -> String {
        let pid = self.pid;
        match self.stopped {
            true => format!("let process {pid} go on with: kill -CONT {pid}; or end it with: kill -9 {pid}"),
            false => format!("try again when process {pid} has finished"),
        }
    }
}

/// The process that holds the write lock of the database at `path` now; nothing if none does or it
/// cannot be told.
#[cfg(target_os = "linux")]
pub(super) fn of(path: &Path) -> Option<Holder> {
    use std::os::unix::fs::MetadataExt as _;

    let mut shared = path.as_os_str().to_owned();
    shared.push("-shm");
    let inode = std::fs::metadata(shared).ok()?.ino();
    let pid = pid_in(&std::fs::read_to_string("/proc/locks").ok()?, inode)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // It may have given the lock back and ended while this was looked up.
    let stopped = field("State:").is_some_and(|state| state.starts_with(['T', 't']));
    Some(Holder { pid, name: field("Name:").map(str::to_owned), stopped })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn of(_: &Path) -> Option<Holder> {
    None
}

/// The process with a write lock on the byte, by the list of the system. The device is not compared:
/// file systems in layers name another one there than for the file.
#[cfg(any(target_os = "linux", test))]
fn pid_in(locks: &str, inode: u64) -> Option<u32> {
    let mut holders = locks.lines().filter_map(|line| {
        // `1: POSIX  ADVISORY  WRITE 4711 08:01:1234 120 120`; a waiting one has `->` in second place.
        let mut fields = line.split_whitespace().skip(1);
        let (kind, _, access) = (fields.next()?, fields.next()?, fields.next()?);
        let (pid, file, first, last) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let held = kind == "POSIX" && access == "WRITE" && file.rsplit(':').next()?.parse::<u64>().ok()? == inode;
        let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
        let covers = first.parse::<u64>().ok()? <= WRITE_LOCK && last >= WRITE_LOCK;
        // Processes of other namespaces have no number here.
        pid.parse::<u32>().ok().filter(|pid| held && covers && *pid > 0)
    });
    let holder = holders.next()?;
    // Files of two file systems may have the same number: then it cannot be told.
    holders.all(|other| other == holder).then_some(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(locks: &str, expected: Option<u32>) {
        assert_eq!(pid_in(locks, 99), expected, "{locks}");
    }

    #[test]
    fn the_holder_is_found_in_the_list_of_locks() {
        check("", None);
        check("1: POSIX  ADVISORY  WRITE 4711 08:01:99 120 120", Some(4711));
        check("1: POSIX  ADVISORY  READ  4711 08:01:99 120 120", None);
        check("1: POSIX  ADVISORY  WRITE 4711 08:01:98 120 120", None);
        check("1: POSIX  ADVISORY  WRITE 4711 08:01:99 124 127", None);
        check("1: POSIX  ADVISORY  WRITE 4711 08:01:99 0 EOF", Some(4711));
        check("1: -> POSIX  ADVISORY  WRITE 4711 08:01:99 120 120", None);
        check("1: OFDLCK ADVISORY  WRITE -1 08:01:99 120 120", None);
        check("1: POSIX  ADVISORY  WRITE 0 08:01:99 120 120", None);
        check("nonsense\n1: POSIX\n2: POSIX  ADVISORY  WRITE 7 00:2f:99 100 130", Some(7));
        let two = "1: POSIX  ADVISORY  WRITE 7 08:01:99 120 120\n2: POSIX  ADVISORY  WRITE 8 08:02:99 120 120";
        check(two, None);
    }

    #[test]
    fn what_is_known_is_said() {
        let holder = |name: Option<&str>, stopped| Holder { pid: 1, name: name.map(str::to_owned), stopped };
        assert_eq!(holder(Some("rekindle"), false).said(), "process 1 (rekindle) holds its write lock");
        assert_eq!(holder(None, true).said(), "process 1 holds its write lock and is stopped");
        assert!(holder(None, true).hint().contains("kill -CONT 1"));
    }

    #[test]
    fn fuzzed_lock_lists() {
        let seeds = [format!(
            "1: POSIX  ADVISORY  WRITE 4711 08:01:1234 {WRITE_LOCK} {WRITE_LOCK}\n2: FLOCK ADVISORY WRITE 1 08:01:1 0 EOF"
        )];
        rekindle_fuzz::fuzz!("lock-list").seeds(seeds).words(["->", "EOF", "POSIX "]).text(|text| pid_in(text, 1234));
    }
}
