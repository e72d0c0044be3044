//! Finding and ending processes of calls whose run is gone, through `/proc`. Where there is no
//! `/proc`, guards end them, and a moment is waited for that.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rekindle::core::Epoch;
use rustix::process::{Pid, Signal, getuid, kill_process, kill_process_group};

use super::guard::{FENCE, GUARD, KEY};
#[cfg(feature = "mcp")]
use super::guard::{HOST, SERVER};

/// Time processes may take to be gone once they were killed.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Time a guard has to notice the death of its host where that cannot be seen.
const BLIND_GRACE: Duration = Duration::from_secs(1);

/// The most that is read of an environment: more than Linux allows by default.
const ENVIRONMENT_BYTES: u64 = 8 << 20;

/// A process, as `/proc` shows it.
#[derive(Debug)]
struct Seen {
    pid: i32,
    stat: Stat,
    environment: Vec<u8>,
}

#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    state: u8,
    group: i32,
    session: i32,
    start: u64,
}

/// Ends the processes of a call that this or an earlier owner made, and waits until they are gone: the
/// groups of its guards, and whatever of it is in their session or in ours. Describes what still runs.
/// Left alone are processes that made a session of their own, and those of a later owner: an owner
/// that was evicted must not end the check that its successor runs. Blocks.
pub(crate) fn end_call(key: &str, fence: Epoch) -> Vec<String> {
    let is_of_call = |seen: &Seen| seen.variable(KEY) == Some(key.as_bytes());
    let may_end = |seen: &Seen| is_of_call(seen) && seen.fence() <= fence;
    end(is_of_call, may_end, |seen| may_end(seen) && seen.variable(GUARD).is_some())
}

#[cfg(feature = "mcp")]
/// Ends the groups of servers whose host is gone, and waits until they are gone. Blocks.
pub(crate) fn end_orphaned_servers() -> Vec<String> {
    let own_namespace = namespace(std::process::id());
    let is_orphaned = |seen: &Seen| {
        seen.variable(GUARD) == Some(SERVER.as_bytes())
            // The number of a host in another namespace says nothing here.
            && own_namespace.is_some()
            && namespace(seen.pid.unsigned_abs()) == own_namespace
            && seen.variable(HOST).is_some_and(|host| !is_alive(host))
    };
    end(is_orphaned, is_orphaned, is_orphaned)
}

/// Ends the groups of guards, and the processes that may be ended and did not leave the session.
/// Describes those of `is_ours` that still run.
fn end(
    is_ours: impl Fn(&Seen) -> bool,
    may_end: impl Fn(&Seen) -> bool,
    is_guard: impl Fn(&Seen) -> bool,
) -> Vec<String> {
    let deadline = Instant::now() + GONE_WITHIN;
    // 0 where the leader is outside our namespace, as in a container: what `getsid` cannot return.
    let own = stat_of(Path::new("/proc/self"));
    let (me, own_group) = (i32::try_from(std::process::id()).unwrap_or_default(), own.as_ref().map(|own| own.group));
    let mut sessions: BTreeSet<i32> = own.iter().map(|own| own.session).collect();
    let mut groups = BTreeSet::new();
    let mut pause = Duration::from_millis(2);
    loop {
        let Some(all) = survey() else {
            std::thread::sleep(BLIND_GRACE);
            return Vec::new();
        };
        let guards = all.iter().filter(|seen| is_guard(seen) && Some(seen.stat.group) != own_group);
        for guard in guards {
            sessions.insert(guard.stat.session);
            groups.insert(guard.stat.group);
            kill_group(guard.stat.group);
        }
        let ends = |seen: &Seen| {
            groups.contains(&seen.stat.group)
                || may_end(seen) && sessions.contains(&seen.stat.session) && Some(seen.stat.group) != own_group
        };
        let (ending, rest): (Vec<_>, Vec<_>) = all.iter().filter(|seen| seen.pid != me).partition(|seen| ends(seen));
        ending.iter().filter(|seen| !groups.contains(&seen.stat.group)).for_each(|seen| seen.kill());
        if ending.is_empty() || Instant::now() >= deadline {
            let escaped = rest.into_iter().filter(|seen| is_ours(seen));
            return ending.into_iter().chain(escaped).map(Seen::describe).collect();
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Returns true if a process of that group still runs. Where that cannot be seen: not known, so yes.
pub(super) fn is_group_alive(group: Pid) -> bool {
    survey_stats().is_none_or(|mut all| all.any(|(_, stat)| stat.group == raw(group)))
}

/// Time at which this process was started, by the kernel's count; 0 where that cannot be seen.
pub(super) fn own_start() -> u64 {
    stat_of(Path::new("/proc/self")).map_or(0, |stat| stat.start)
}

#[cfg(feature = "mcp")]
/// Returns true if the host that a guard names is alive: `pid:start`.
fn is_alive(host: &[u8]) -> bool {
    let read = std::str::from_utf8(host).ok().and_then(|host| host.split_once(':'));
    let Some((Ok(pid), Ok(start))) = read.map(|(pid, start)| (pid.parse::<u32>(), start.parse::<u64>())) else {
        // What cannot be read proves nothing.
        return true;
    };
    stat_of(Path::new(&format!("/proc/{pid}"))).is_some_and(|stat| stat.start == start)
}

#[cfg(feature = "mcp")]
fn namespace(pid: u32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The processes of this user that run; nothing if there is no `/proc`.
fn survey() -> Option<Vec<Seen>> {
    let user = getuid().as_raw();
    let seen = survey_stats()?.map(|(pid, stat)| {
        let folder = format!("/proc/{pid}");
        let ours = std::fs::metadata(&folder).is_ok_and(|found| found.uid() == user);
        // One that ends meanwhile, or is not to be looked into, is none of ours.
        let environment = if ours { read(Path::new(&folder).join("environ").as_path()) } else { None };
        Seen { pid, stat, environment: environment.unwrap_or_default() }
    });
    Some(seen.collect())
}

fn survey_stats() -> Option<impl Iterator<Item = (i32, Stat)>> {
    stat_of(Path::new("/proc/self"))?;
    let entries = std::fs::read_dir("/proc").ok()?;
    Some(entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, stat_of(&entry.path())?))
    }))
}

/// Reads what the kernel says of a process that runs; nothing of one that has ended.
fn stat_of(folder: &Path) -> Option<Stat> {
    let text = read(&folder.join("stat"))?;
    Stat::parse(&text).filter(|stat| !matches!(stat.state, b'Z' | b'X' | b'x'))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(ENVIRONMENT_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn kill_group(group: i32) {
    // The first process of a system and "everybody" are no groups of ours.
    if let Some(group) = Pid::from_raw(group).filter(|_| group > 1) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

impl Seen {
    /// The value of a variable it was started with.
    fn variable(&self, name: &str) -> Option<&[u8]> {
        let mut variables = self.environment.split(|byte| *byte == 0);
        variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// The epoch of the lease it was started under; 0 if it was not told.
    fn fence(&self) -> Epoch {
        let told = self.variable(FENCE).and_then(|told| std::str::from_utf8(told).ok()?.parse().ok());
        Epoch(told.unwrap_or_default())
    }

    /// Kills it, if it is still the one that was seen.
    fn kill(&self) {
        let now = stat_of(Path::new(&format!("/proc/{}", self.pid)));
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| now.is_some_and(|now| now.start == self.stat.start)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn describe(&self) -> String {
        format!("process {} ({})", self.pid, self.stat.name.escape_debug())
    }
}

impl Stat {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        // A name may hold parentheses and blanks.
        let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            name: name.to_owned(),
            state: *fields.first()?.as_bytes().first()?,
            group: number(2)?,
            session: number(3)?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_is_read_whatever_the_name_is() {
        let check = |text: &str, expected: Option<(&str, u8, i32, i32, u64)>| {
            let read = Stat::parse(text.as_bytes());
            let expected = expected.map(|(name, state, group, session, start)| {
                let name = name.to_owned();
                Stat { name, state, group, session, start }
            });
            assert_eq!(read, expected, "{text}");
        };
        let rest = "S 1 22 33 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 8 9";
        check(&format!("5 (sh) {rest}"), Some(("sh", b'S', 22, 33, 777)));
        check(&format!("5 (a) b (c)) {rest}"), Some(("a) b (c)", b'S', 22, 33, 777)));
        check("5 (sh) S 1 22", None);
        check("5 sh S", None);
        check("", None);
        check("5 (sh) S 1 x 33 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777", None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let stat = Stat { name: String::new(), state: b'S', group: 0, session: 0, start: 0 };
        let seen = Seen { pid: 1, stat, environment: b"AB=1\0B=2\0C\0D=\0B=3\0".to_vec() };
        assert_eq!(seen.variable("B"), Some(&b"2"[..]));
        assert_eq!(seen.variable("A"), None);
        assert_eq!((seen.variable("C"), seen.variable("D")), (None, Some(&b""[..])));
    }

    #[test]
    #[cfg(all(target_os = "linux", feature = "mcp"))]
    fn a_host_is_alive_only_with_its_start_time() {
        let me = std::process::id();
        assert!(own_start() > 0);
        assert!(is_alive(format!("{me}:{}", own_start()).as_bytes()));
        assert!(!is_alive(format!("{me}:{}", own_start() + 1).as_bytes()));
        assert!(is_alive(b"nonsense") && is_alive(b"\xff:1"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_later_owner_keeps_its_processes() {
        use std::os::unix::process::CommandExt as _;
        let key = format!("later-owner-{}-{}", std::process::id(), own_start());
        let start = |fence: Option<&str>, guard: bool| {
            let mut command = std::process::Command::new("sleep");
            command.arg("1000").env(KEY, &key).process_group(0);
            fence.map(|fence| command.env(FENCE, fence));
            guard.then(|| command.env(GUARD, "call"));
            command.spawn().unwrap()
        };
        let untold = start(None, true);
        let [earlier, own, later] = ["1", "2", "3"].map(|fence| [start(Some(fence), true), start(Some(fence), false)]);
        let mut later_pids: Vec<u32> = later.iter().map(std::process::Child::id).collect();
        later_pids.sort_unstable();
        let mut named = end_call(&key, Epoch(2));
        named.sort_unstable();
        let ended = [untold].into_iter().chain(earlier).chain(own);
        // One that has given up its memory runs no more, and can be waited for a moment later.
        let deadline = Instant::now() + GONE_WITHIN;
        for mut child in ended {
            while child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "process {} was left alone", child.id());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut later = later;
        let alive = later.iter_mut().all(|child| child.try_wait().unwrap().is_none());
        later.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait()).map(drop).unwrap());
        assert!(alive);
        assert_eq!(named, later_pids.iter().map(|pid| format!("process {pid} (sleep)")).collect::<Vec<_>>());
    }

    #[test]
    fn fuzzed_stats() {
        let seeds = ["5 (a) b (c)) S 1 22 33 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 8 9"];
        rekindle_fuzz::fuzz!("process-stat").seeds(seeds).bytes(|bytes| {
            let _ = is_alive(bytes);
            Stat::parse(bytes)
        });
    }
}
