//! Threads that own connections and take messages from async callers.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use rekindle_core::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

/// Messages that may wait before callers do.
const WAITING: usize = 1_024;

/// One or more threads behind one channel. Dropping it lets them finish what they were given and
/// waits for them.
#[derive(Debug)]
pub(super) struct Worker<M> {
    sender: Option<mpsc::Sender<M>>,
    threads: Vec<JoinHandle<()>>,
}

impl<M: Send + 'static> Worker<M> {
    /// A worker without threads, and the end its threads take messages from.
    pub(super) fn new() -> (Self, mpsc::Receiver<M>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { sender: Some(sender), threads: Vec::new() }, receiver)
    }

    /// Adds a thread.
    pub(super) fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = Builder::new().name(name.into()).spawn(body).map_err(|error| {
            Error::new(ErrorKind::StoreUnavailable, "the operating system gave no thread").because(error)
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Hands over a message, waiting while too many are waiting already.
    pub(super) async fn send(&self, message: M, path: &Path) -> Result<()> {
        let sender = self.sender.as_ref().ok_or_else(|| stopped(path))?;
        sender.send(message).await.map_err(|_| stopped(path))
    }
}

impl<M> Drop for Worker<M> {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            // Whoever waited for a thread that panicked was told already.
            let _ = thread.join();
        }
    }
}

/// The error of whoever waits for a thread that is gone.
pub(super) fn stopped(path: &Path) -> Error {
    Error::new(ErrorKind::Closed, format!("the threads of the database stopped: {}", path.display()))
        .hint("open the store again; repeating the call is safe")
}
