//! A few threads with a connection each. A job wakes one of them; the others sleep on.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rekindle_core::Result;
use rusqlite::Connection;

use super::worker::{no_thread, stopped};

/// How many reads go on at once.
pub(super) const READERS: usize = 2;

/// What a reader is given to do.
pub(super) type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// The threads. Dropping it lets them finish what they were given and waits for them.
#[derive(Debug)]
pub(super) struct Readers {
    jobs: Arc<Jobs>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> Result<Self> {
        let mut readers = Self { jobs: Arc::default(), threads: Vec::new() };
        for connection in connections {
            let present = Present::enter(readers.jobs.clone());
            let body = move || {
                while let Some(job) = present.0.next() {
                    job(&connection);
                }
            };
            let thread = Builder::new().name("rekindle-sqlite-reader".into()).spawn(body).map_err(no_thread)?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Hands over a job. Nobody waits for room: a job is small, and one that nobody waits for any more does
    /// nothing.
    pub(super) fn send(&self, job: ReadJob, path: &Path) -> Result<()> {
        let mut waiting = self.jobs.lock();
        if waiting.present == 0 {
            return Err(stopped(path));
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.jobs.come.notify_one();
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs.lock().over = true;
        self.jobs.come.notify_all();
        for thread in self.threads.drain(..) {
            // Whoever waited for a thread that panicked was told already.
            let _ = thread.join();
        }
    }
}

#[derive(Default)]
struct Jobs {
    waiting: Mutex<Waiting>,
    come: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<ReadJob>,
    /// How many threads there are.
    present: usize,
    /// Whether nothing more will come.
    over: bool,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("waiting", &self.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; nothing once all is done.
    fn next(&self) -> Option<ReadJob> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.over {
                return None;
            }
            waiting = self.come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A thread while it lasts. The last one that goes, if only by a panic, leaves nobody waiting.
struct Present(Arc<Jobs>);

impl Present {
    fn enter(jobs: Arc<Jobs>) -> Self {
        jobs.lock().present += 1;
        Self(jobs)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.present -= 1;
        let forsaken = if waiting.present == 0 { std::mem::take(&mut waiting.jobs) } else { VecDeque::new() };
        drop(waiting);
        drop(forsaken);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn readers(count: usize) -> Readers {
        Readers::start((0..count).map(|_| Connection::open_in_memory().unwrap()).collect()).unwrap()
    }

    #[test]
    fn what_was_handed_over_is_done_before_the_end() {
        let (sender, done) = mpsc::channel();
        let readers = readers(2);
        for number in 0..100 {
            let sender = sender.clone();
            readers.send(Box::new(move |_| sender.send(number).unwrap()), Path::new("x")).unwrap();
        }
        drop(readers);
        drop(sender);
        let mut numbers: Vec<_> = done.into_iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_waits_for_threads_that_panicked() {
        let readers = readers(2);
        let panics = || readers.send(Box::new(|_| panic!("a job that panics")), Path::new("x"));
        assert!(panics().is_ok());
        let (sender, done) = mpsc::channel();
        readers.send(Box::new(move |_| sender.send(()).unwrap()), Path::new("x")).unwrap();
        assert!(done.recv().is_ok(), "the other thread goes on");
        // From the second panic on there is nobody, and jobs that still waited are dropped.
        while panics().is_ok() {
            std::thread::yield_now();
        }
        assert!(readers.jobs.lock().jobs.is_empty());
    }
}
