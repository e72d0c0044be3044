//! Dropping futures at each of their awaits.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The most times a future under test may be woken before it finishes.
const MOST_POLLS: usize = 5_000;
/// The longest time a call may take that is not dropped.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `future` until it has finished or was polled `polls` times, then drops it. Returns its output if it
/// finished. Each poll follows a wake, so counting up from one drops it at each of its awaits.
pub async fn cut<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        left = left.saturating_sub(1);
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Calls `case` with 1, 2, 3 and so on polls until it says that its future finished.
///
/// # Panics
///
/// If the future does not finish however often it is polled.
pub async fn at_every_await(case: impl AsyncFn(usize) -> bool) {
    for polls in 1..=MOST_POLLS {
        if case(polls).await {
            return;
        }
    }
    panic!("the future did not finish within {MOST_POLLS} polls");
}

/// The output of a call that must end by itself.
///
/// # Panics
///
/// If it does not end within a minute.
pub async fn answer<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: no answer after an earlier call was dropped"),
    }
}
