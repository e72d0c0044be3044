//! Workers, from outside: over every store that keeps a queue.
#![allow(clippy::unwrap_used)]

mod enqueue;
mod failures;
mod kit;
mod own_runs;
mod runs;
#[path = "../it/support.rs"]
mod support;
mod wakes;
