//! A hook that makes appends wait until a test lets them through, one by one, and what a
//! test needs to see that something waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use rekindle_core::Result;
use rekindle_testkit::{Call, Hook};
use tokio::sync::{Semaphore, watch};

/// Lets appends through one by one: first to the store, then back with its answer.
#[derive(Debug)]
pub struct Gate {
    to_the_store: Semaphore,
    back: Semaphore,
    /// How many appends have come so far.
    arrivals: watch::Sender<usize>,
    collapsed: AtomicBool,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            to_the_store: Semaphore::new(0),
            back: Semaphore::new(0),
            arrivals: watch::Sender::default(),
            collapsed: AtomicBool::new(false),
        })
    }

    /// Lets so many appends through and their answers back.
    pub fn admit(&self, count: usize) {
        self.to_the_store.add_permits(count);
        self.back.add_permits(count);
    }

    /// Lets one append through, but not its answer back.
    pub fn admit_one_way(&self) {
        self.to_the_store.add_permits(1);
    }

    /// From now on every append panics.
    pub fn collapse(&self) {
        self.collapsed.store(true, Ordering::SeqCst);
    }

    /// Waits until so many appends have come.
    pub async fn arrived(&self, count: usize) {
        self.arrivals.subscribe().wait_for(|arrived| *arrived >= count).await.unwrap();
    }

    async fn pass(gate: &Semaphore) {
        gate.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Hook for Gate {
    async fn before(&self, call: Call<'_>) -> Result<()> {
        if let Call::Append(_) = call {
            assert!(!self.collapsed.load(Ordering::SeqCst), "a mistake in the store");
            self.arrivals.send_modify(|count| *count += 1);
            Self::pass(&self.to_the_store).await;
        }
        Ok(())
    }

    async fn after(&self, call: Call<'_>) -> Result<()> {
        if let Call::Append(_) = call {
            Self::pass(&self.back).await;
        }
        Ok(())
    }
}

/// Lets every task run until it waits for something. Enough turns for what happens here: the
/// runtime has one thread and the store no other.
pub async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Polls `future` while everything else settles: nothing if it is still waiting then.
pub async fn waits<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..64 {
        let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(value) = polled {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}
