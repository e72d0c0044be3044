//! The signals that ask a program to stop.

use rekindle::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, SIGTERM and a terminal that was closed.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From now on they no longer end the program.
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::new(ErrorKind::Unsupported, "signals cannot be listened to").because(error))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "a closed terminal",
        }
    }
}
