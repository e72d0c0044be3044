//! How much is read, held and waited for.

use std::time::Duration;

/// What one server takes. Every value has a default that suits one team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) body: usize,
    pub(crate) reading: Duration,
    pub(crate) answering: Duration,
    pub(crate) writing: Duration,
    pub(crate) draining: Duration,
    pub(crate) greeting: Duration,
    pub(crate) connections: usize,
    pub(crate) unauthenticated: usize,
    pub(crate) sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            reading: Duration::from_secs(30),
            answering: Duration::from_secs(120),
            writing: Duration::from_secs(30),
            draining: Duration::from_secs(10),
            greeting: Duration::from_secs(10),
            connections: 512,
            unauthenticated: 64,
            sessions: 256,
        }
    }
}

impl Limits {
    /// The bytes a request may have; more is answered with 413.
    pub fn with_body(self, bytes: usize) -> Self {
        Self { body: bytes, ..self }
    }

    /// How long a request may take to arrive, its head and its body each; then 408.
    pub fn with_reading(self, time: Duration) -> Self {
        Self { reading: time, ..self }
    }

    /// How long an answer may take to begin; then 504. A stream that has begun may go on.
    pub fn with_answering(self, time: Duration) -> Self {
        Self { answering: time, ..self }
    }

    /// How long a client may take none of the bytes that are sent to it.
    pub fn with_writing(self, time: Duration) -> Self {
        Self { writing: time, ..self }
    }

    /// How long answers under way are waited for once the server is to stop.
    pub fn with_draining(self, time: Duration) -> Self {
        Self { draining: time, ..self }
    }

    /// The time a connection may take until its first request has shown a credential; then it is closed.
    pub fn with_greeting(self, time: Duration) -> Self {
        Self { greeting: time, ..self }
    }

    /// The most connections of one address that may be open without having shown a credential; for one more, the
    /// oldest of them is closed.
    pub fn with_unauthenticated(self, most: usize) -> Self {
        Self { unauthenticated: most.max(1), ..self }
    }

    /// The most connections that are served at once. For one more, one is closed that has not shown a credential; if
    /// all have, it waits to be accepted.
    pub fn with_connections(self, most: usize) -> Self {
        Self { connections: most.max(1), ..self }
    }

    /// The most clients of the revisions with sessions that are served at once. For one more, the one is forgotten
    /// that has been idle longest, and has to begin again; if none is idle, the new one gets 503.
    pub fn with_sessions(self, most: usize) -> Self {
        Self { sessions: most, ..self }
    }
}
