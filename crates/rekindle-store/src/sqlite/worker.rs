//! A thread that owns a connection and takes messages from async callers.

use std::io;
use std::path::Path;
use std::thread::{Builder, JoinHandle};

use rekindle_core::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

/// Messages that may wait before callers do.
const WAITING: usize = 1_024;

/// A thread behind a channel. Dropping it lets it finish what it was given and waits for it.
#[derive(Debug)]
pub(super) struct Worker<M> {
    sender: Option<mpsc::Sender<M>>,
    thread: Option<JoinHandle<()>>,
}

impl<M: Send + 'static> Worker<M> {
    /// Starts a thread with the end it takes messages from.
    pub(super) fn start(name: &str, body: impl FnOnce(mpsc::Receiver<M>) + Send + 'static) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let thread = Builder::new().name(name.into()).spawn(move || body(receiver)).map_err(no_thread)?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
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
        // Whoever waited for a thread that panicked was told already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The error of a thread that could not be started.
pub(super) fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the operating system gave no thread").because(error)
}

/// The error of whoever waits for a thread that is gone.
pub(super) fn stopped(path: &Path) -> Error {
    Error::new(ErrorKind::Closed, format!("the threads of the database stopped: {}", path.display()))
        .hint("open the store again; repeating the call is safe")
}
