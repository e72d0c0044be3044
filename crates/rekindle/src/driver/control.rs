//! What a run is told from outside while it works: to pause, to stop its step, to stop for good;
//! and that it is no longer the owner of its session.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rekindle_core::Error;
use tokio_util::sync::CancellationToken;

/// How a run is to be stopped. A later one counts if it is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Let calls under way end, then pause.
    Pause,
    /// Stop the calls under way, then pause.
    Interrupt,
    /// Stop the calls under way, for good.
    Cancel,
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    inner: Mutex<Inner>,
    /// Fires when calls under way are to end, whatever step they belong to.
    stop_calls: CancellationToken,
    /// Fires as soon as anything is asked for.
    asked: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    stop: Option<(Stop, String)>,
    lost: Option<Error>,
    step: CancellationToken,
    /// A message came in between, and nobody has seen to it yet.
    interrupted: bool,
}

impl Control {
    /// Asks the run to stop.
    pub(crate) fn stop(&self, stop: Stop, reason: impl Into<String>) {
        let mut inner = self.inner();
        if inner.stop.as_ref().is_none_or(|(known, _)| *known < stop) {
            inner.stop = Some((stop, reason.into()));
        }
        drop(inner);
        self.asked.cancel();
        if stop > Stop::Pause {
            self.stop_calls.cancel();
        }
    }

    /// Calls under way are to end now.
    pub(crate) fn stop_calls(&self) {
        self.stop_calls.cancel();
    }

    /// Stops the calls of the current step; the run itself goes on.
    pub(crate) fn interrupt_step(&self) {
        let mut inner = self.inner();
        inner.interrupted = true;
        inner.step.cancel();
    }

    /// Whether a message came in between, since this was last asked.
    pub(crate) fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.inner().interrupted)
    }

    /// The session belongs to somebody else.
    pub(crate) fn lose(&self, error: Error) {
        self.inner().lost.get_or_insert(error);
        self.asked.cancel();
        self.stop_calls.cancel();
    }

    /// A token for the calls of a new step.
    pub(crate) fn begin_step(&self) -> CancellationToken {
        let token = self.stop_calls.child_token();
        self.inner().step = token.clone();
        token
    }

    /// The token of the current step.
    pub(crate) fn step(&self) -> CancellationToken {
        self.inner().step.clone()
    }

    /// How the run is to be stopped, and why.
    pub(crate) fn stopping(&self) -> Option<(Stop, String)> {
        self.inner().stop.clone()
    }

    /// Why the session is no longer ours.
    pub(crate) fn lost(&self) -> Option<Error> {
        self.inner().lost.as_ref().map(Error::duplicate)
    }

    /// Waits until anything is asked for.
    pub(crate) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
