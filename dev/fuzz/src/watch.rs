//! Notices an input that a target never finishes with. A thread cannot be ended from outside, so the
//! process is: after the input was kept.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::regressions;

/// No decode of a few kilobytes takes this long, on any machine and beside any load.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time an input was begun with, and the input.
type Begun = (Instant, Vec<u8>);
type Case = Arc<Mutex<Option<Begun>>>;

/// The input under way, seen by a thread that looks at it now and then.
pub(crate) struct Watch {
    case: Case,
    _stop: Sender<()>,
}

impl Watch {
    pub fn start(name: &'static str, folder: &Path) -> Self {
        let (stop, stopped) = channel();
        let case = Case::default();
        let (seen, folder) = (Arc::clone(&case), folder.to_owned());
        std::thread::spawn(move || look(name, folder, seen, stopped));
        Self { case, _stop: stop }
    }

    pub fn begin(&self, input: &[u8]) {
        *self.case.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
    }

    pub fn end(&self) {
        *self.case.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn look(name: &'static str, folder: PathBuf, seen: Case, stopped: Receiver<()>) {
    while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let case = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = overdue(case.as_ref(), Instant::now()) {
            let kept = regressions::keep(&folder, name, input);
            give_up(&format!("fuzz target `{name}` does not come to an end; its input is in {}", kept.display()));
        }
    }
}

fn overdue(case: Option<&Begun>, now: Instant) -> Option<&[u8]> {
    case.filter(|(begun, _)| now.saturating_duration_since(*begun) > PATIENCE).map(|(_, input)| input.as_slice())
}

#[allow(clippy::print_stderr)]
fn give_up(message: &str) -> ! {
    eprintln!("{message}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_overdue_after_a_while() {
        let begun = Instant::now();
        let case = Some((begun, b"x".to_vec()));
        let check = |case: &Option<Begun>, after: Duration, expected: Option<&[u8]>| {
            assert_eq!(overdue(case.as_ref(), begun + after), expected);
        };
        check(&None, PATIENCE * 2, None);
        check(&case, PATIENCE, None);
        check(&case, PATIENCE * 2, Some(b"x"));
    }
}
