//! Threads for blocking disk access, so that neither the caller's runtime waits for a
//! disk nor one is needed. Jobs of one session always go to the same thread, in order;
//! different sessions commit in parallel.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use rekindle_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// Many, because most of them wait: the more commits reach the disk together, the more of them
/// one flush of its cache serves.
const THREADS: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

/// The threads; each is started when it is first needed and ends when the store is dropped.
#[derive(Debug, Default)]
pub(super) struct Workers {
    threads: [Mutex<Option<Sender<Job>>>; THREADS],
}

impl Workers {
    /// Runs `work` on the thread of `affinity`. If the future is dropped, the work is still
    /// done, whole.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        affinity: impl Hash,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody may be waiting for the answer any more.
            let _ = reply.send(work());
        });
        self.submit(affinity, job)?;
        answer.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::StoreUnavailable, "the store's thread failed")))
    }

    fn submit(&self, affinity: impl Hash, job: Job) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        affinity.hash(&mut hasher);
        let index = (hasher.finish() % THREADS as u64) as usize;
        let mut thread = self.threads[index].lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &*thread {
            Some(sender) => sender,
            None => thread.insert(start(index)?),
        };
        sender.send(job).map_err(|_| Error::new(ErrorKind::StoreUnavailable, "the store's thread ended"))
    }
}

fn start(index: usize) -> Result<Sender<Job>> {
    let (sender, receiver) = channel();
    std::thread::Builder::new().name(format!("rekindle-files-{index}")).spawn(move || serve(&receiver)).map_err(
        |error| Error::new(ErrorKind::StoreUnavailable, "the store's thread could not be started").because(error),
    )?;
    Ok(sender)
}

fn serve(receiver: &Receiver<Job>) {
    while let Ok(job) = receiver.recv() {
        // A job that panics fails alone: its caller gets an error, later jobs still run.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}
