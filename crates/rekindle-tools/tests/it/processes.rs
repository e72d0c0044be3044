//! Processes, as the system shows them: which belong to a call, and whether they are gone.

use std::str::FromStr;
use std::time::{Duration, Instant};

/// The processes that were started with that variable and run.
pub fn carrying(variable: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{variable}={value}");
    let carries = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == wanted.as_bytes())
    };
    all().filter(carries).collect()
}

/// The processes of a call that run: its guard, its program, and what that started.
pub fn of_call(key: &str) -> Vec<i32> {
    carrying("REKINDLE_IDEMPOTENCY_KEY", key)
}

/// The processes of groups, those included that have ended and were not waited for.
pub fn of_groups(groups: &[i32]) -> Vec<i32> {
    all().filter(|pid| field(*pid, 2).is_some_and(|group| groups.contains(&group))).collect()
}

/// The processes of groups that run. Those that ended may be waited for by nobody: by a runtime that is
/// gone, or by the first process of a container.
pub fn running_of_groups(groups: &[i32]) -> Vec<i32> {
    let runs = |pid: &i32| state(*pid).is_some_and(|state| !matches!(state, 'Z' | 'X'));
    of_groups(groups).into_iter().filter(runs).collect()
}

/// Waits until something is so; a minute is more than any machine needs.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn all() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn state(pid: i32) -> Option<char> {
    field(pid, 0)
}

/// A field of what the kernel says of a process, counted from its state.
fn field<T: FromStr>(pid: i32, at: usize) -> Option<T> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(at)?.parse().ok()
}
