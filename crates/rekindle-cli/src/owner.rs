//! Who runs a session, said so that another process of the same machine can tell whether it is
//! still alive.

use std::fs;

use rekindle::{Error, ErrorKind, OwnerId};

/// This process, as owner of what it runs: `host/place/pid/start`.
pub fn this_process() -> String {
    let pid = std::process::id();
    format!("{}/{}/{pid}/{}", host(), place(), started(pid).unwrap_or_default())
}

/// Whether the owner an error names is a process of this machine that has ended: its session can
/// be taken over at once. Any doubt counts as alive; a mistake would only cost the lease's time,
/// since the journal fences out whoever is taken over from.
pub fn has_died(error: &Error) -> bool {
    let ErrorKind::AlreadyRunning { owner, .. } = error.kind() else { return false };
    is_dead(owner)
}

/// The same of an owner.
pub fn is_dead(owner: &OwnerId) -> bool {
    died(owner.as_str()).unwrap_or(false)
}

fn died(owner: &str) -> Option<bool> {
    let mut parts = owner.split('/');
    let (their_host, their_place) = (parts.next()?, parts.next()?);
    let (pid, their_start) = (parts.next()?.parse::<u32>().ok()?, parts.next()?);
    if their_host != host() || their_place != place() || their_place.is_empty() || their_start.is_empty() {
        return None;
    }
    // A pid that is there again belongs to somebody who started at another time.
    Some(started(pid).is_none_or(|start| start != their_start))
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// The boot and the namespace in which pids mean what they mean; empty where that cannot be told.
fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    if boot.is_empty() || digits.is_empty() { String::new() } else { format!("{}-{digits}", boot.trim()) }
}

/// When a process started, in ticks since the boot; nothing if there is no such process, or it has
/// ended and only its parent has not noticed.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    match *fields.first()? {
        "Z" | "X" => None,
        _ => fields.get(19).map(|ticks| (*ticks).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_whether_another_is_alive() {
        let me = format!("{}/own_1", this_process());
        assert_eq!(died(&me), Some(false));
        let (host, place) = (host(), place());
        assert_eq!(died(&format!("{host}/{place}/4294967294/1/own_1")), Some(true));
        let reused = format!("{host}/{place}/{}/1/own_1", std::process::id());
        assert_eq!(died(&reused), Some(true));
    }

    #[test]
    fn any_doubt_counts_as_alive() {
        for owner in ["", "own_1", "elsewhere/1-2/1/1", "a/b/c/d/e", &format!("{}/other-boot/1/1", host())] {
            assert_ne!(died(owner), Some(true), "{owner}");
        }
    }
}
