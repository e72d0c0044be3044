//! Processes, as the system shows them: which belong to a call, and whether they are gone.

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

/// A field of what the kernel says of a process, counted from its state.
fn field(pid: i32, at: usize) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(at)?.parse().ok()
}
