//! Futures that run beside their executor in one task. They share a driver, and a driver is locked
//! by one at a time in the order of asking: whoever awaits it must not leave the others unpolled,
//! or everybody waits for one whose turn it is and who is not looked at. So an executor that has
//! futures under way awaits nothing but through [`Crew::attend`] and [`Crew::next`].

use std::collections::VecDeque;
use std::future::Future;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

/// Futures under way, and what came of those that have ended.
pub(crate) struct Crew<'a, T> {
    running: FuturesUnordered<BoxFuture<'a, T>>,
    ended: VecDeque<T>,
}

impl<T> Default for Crew<'_, T> {
    fn default() -> Self {
        Self { running: FuturesUnordered::new(), ended: VecDeque::new() }
    }
}

impl<'a, T> Crew<'a, T> {
    /// One more.
    pub(crate) fn push(&mut self, future: impl Future<Output = T> + Send + 'a) {
        self.running.push(Box::pin(future));
    }

    /// How many have not been taken note of.
    pub(crate) fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// What came of the next one that ends; nothing if there are none.
    pub(crate) async fn next(&mut self) -> Option<T> {
        match self.ended.pop_front() {
            Some(ended) => Some(ended),
            None => self.running.next().await,
        }
    }

    /// Does `work` while the others go on.
    pub(crate) async fn attend<O>(&mut self, work: impl Future<Output = O>) -> O {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(ended) = self.running.next(), if !self.running.is_empty() => self.ended.push_back(ended),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn whoever_holds_or_awaits_a_lock_is_polled_while_others_await_it() {
        let lock = Arc::new(Mutex::new(0));
        let mut crew = Crew::default();
        for _ in 0..100 {
            let lock = Arc::clone(&lock);
            crew.push(async move {
                for _ in 0..10 {
                    *lock.lock().await += 1;
                    tokio::task::yield_now().await;
                }
            });
        }
        let (mut ended, mut looks) = (0, 0);
        while crew.len() > 0 {
            looks += crew.attend(async { usize::from(*lock.lock().await <= 1_000) }).await;
            ended += usize::from(crew.next().await.is_some());
        }
        assert_eq!((ended, looks, *lock.lock().await), (100, 100, 1_000));
    }
}
