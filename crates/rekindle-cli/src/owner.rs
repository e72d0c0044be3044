//! Who runs a session, said so that another process of the same machine can tell whether it is
//! still alive.

use std::fs;

use rekindle::core::OwnerId;
use rekindle::{Error, ErrorKind, SessionInfo, Status};
use rustix::process::{Pid, test_kill_process};

use crate::ui::printable;

/// This process, as owner of what it runs: `host/place/pid/start`.
pub fn this_process() -> String {
    let pid = std::process::id();
    format!("{}/{}/{pid}/{}", host(), place(), started(pid).unwrap_or_default())
}

/// Returns what a user of this machine is recognised by.
pub fn credential_of(uid: u32) -> String {
    format!("uid:{uid}@{}", host())
}

/// Whether the owner an error names is a process of this machine that has ended: its session can
/// be taken over at once. Any doubt counts as alive: the journal fences out whoever is taken over
/// from, but a call that one is making could be made twice.
pub fn has_died(error: &Error) -> bool {
    let ErrorKind::AlreadyRunning { owner, .. } = error.kind() else { return false };
    is_dead(owner)
}

/// Whether that owner is a process of this machine that has ended.
pub fn has_ended(owner: &str) -> bool {
    died(owner).unwrap_or(false)
}

/// What a session is doing, by what can be seen here: one whose process has died is interrupted,
/// although its lease may last a little longer.
pub fn status(info: &SessionInfo) -> Status {
    let dead = info.live_lease().is_some_and(|(_, lease)| has_ended(lease.owner.as_str()));
    match info.status() {
        Status::Running if dead => Status::Interrupted,
        status => status,
    }
}

/// An owner as people know it: `process 4711 on host`.
pub fn named(owner: &str) -> String {
    let parts: Vec<&str> = owner.split('/').collect();
    match parts.as_slice() {
        [host, _, pid, _, ..] if pid.parse::<u32>().is_ok() => printable(&format!("process {pid} on {host}")),
        _ => printable(owner),
    }
}

/// The same of an owner.
pub fn is_dead(owner: &OwnerId) -> bool {
    has_ended(owner.as_str())
}

fn died(owner: &str) -> Option<bool> {
    let mut parts = owner.split('/');
    let (their_host, their_place) = (parts.next()?, parts.next()?);
    let (pid, their_start) = (parts.next()?.parse::<u32>().ok()?, parts.next()?);
    if their_host != host() || their_place != place() || their_place.is_empty() || their_start.is_empty() {
        return None;
    }
    let pid_now = Pid::from_raw(i32::try_from(pid).ok()?)?;
    // What cannot be read is no proof: `/proc` may hide the processes of others, and files run out.
    if test_kill_process(pid_now) == Err(rustix::io::Errno::SRCH) {
        return Some(true);
    }
    match state(pid)? {
        State::Ended => Some(true),
        // A pid that is there again belongs to somebody who started at another time.
        State::Since(start) => Some(start != their_start),
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// The boot and the namespace in which pids mean what they mean; empty where that cannot be told.
fn place() -> String {
    // A `/proc` of another namespace tells of other processes.
    let shown = fs::read_link("/proc/self").unwrap_or_default();
    if shown.as_os_str() != std::process::id().to_string().as_str() {
        return String::new();
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    if boot.is_empty() || digits.is_empty() { String::new() } else { format!("{}-{digits}", boot.trim()) }
}

/// What is known of a process.
enum State {
    /// It has ended, and only its parent has not noticed.
    Ended,
    /// It started then, in ticks since the boot.
    Since(String),
}

/// What is known of a process; nothing if nothing can be seen of it.
fn state(pid: u32) -> Option<State> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    match *fields.first()? {
        "Z" | "X" => Some(State::Ended),
        _ => fields.get(19).map(|ticks| State::Since((*ticks).to_owned())),
    }
}

/// When a process started, in ticks since the boot.
fn started(pid: u32) -> Option<String> {
    match state(pid)? {
        State::Since(ticks) => Some(ticks),
        State::Ended => None,
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
        assert_eq!(died(&format!("{host}/{place}/{}/1/own_1", i32::MAX)), Some(true));
        let reused = format!("{host}/{place}/{}/1/own_1", std::process::id());
        assert_eq!(died(&reused), Some(true));
    }

    #[test]
    fn owners_have_names() {
        assert_eq!(named("vm/boot-1/4711/99/own_1"), "process 4711 on vm");
        assert_eq!(named("own_1\u{1b}"), "own_1\u{fffd}");
    }

    #[test]
    fn any_doubt_counts_as_alive() {
        let impossible = format!("{}/{}/4294967294/1", host(), place());
        for owner in ["", "own_1", "elsewhere/1-2/1/1", "a/b/c/d/e", &format!("{}/other-boot/1/1", host()), &impossible]
        {
            assert_ne!(died(owner), Some(true), "{owner}");
        }
    }

    #[test]
    fn fuzzed_owners() {
        let own = format!("{}/{}/1/1/own_1", host(), place());
        rekindle_fuzz::fuzz!("cli-owner").seeds([own, "vm/1-2/4711/99/own_1".to_owned()]).text(|text| {
            assert!(!named(text).contains('\u{1b}'));
            let _ = died(text);
        });
    }
}
