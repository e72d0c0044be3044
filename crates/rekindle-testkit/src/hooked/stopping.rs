//! A process that dies at a call.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rekindle_core::{Error, ErrorKind, Result};

use super::{Call, Hook};

/// The moment a process stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before the call does anything.
    Before,
    /// After the call is done; its answer is lost.
    After,
}

/// Stops at the call with a number, and at every call from then on, as the death of the process would. Shared
/// between several stores, it counts the calls of all of them.
#[derive(Debug)]
pub struct Stopping {
    at: u64,
    how: Stop,
    writes_only: bool,
    calls: AtomicU64,
}

impl Stopping {
    /// Stops at the call `at`, counted from 0; reads count too.
    pub fn at_call(at: u64, how: Stop) -> Self {
        Self { at, how, writes_only: false, calls: AtomicU64::new(0) }
    }

    /// Stops at the write `at`, counted from 0.
    pub fn at_write(at: u64, how: Stop) -> Self {
        Self { writes_only: true, ..Self::at_call(at, how) }
    }

    /// The number of calls so far that count.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns whether the number was reached.
    pub fn has_stopped(&self) -> bool {
        self.calls() > self.at
    }

    /// Counts a call that is no [`Call`] of a hooked store. An error if it must not happen.
    pub fn pass(&self) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let happens = number < self.at || (number == self.at && self.how == Stop::After);
        if happens { Ok(()) } else { Err(stopped()) }
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "stopped")
}

#[async_trait]
impl Hook for Stopping {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        match self.writes_only && !call.is_write() {
            true if self.has_stopped() => Err(stopped()),
            true => Ok(()),
            false => self.pass(),
        }
    }

    async fn after(&self, _: Call<'_>) -> Result<()> {
        if self.has_stopped() { Err(stopped()) } else { Ok(()) }
    }
}
