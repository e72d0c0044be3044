//! Real servers for tests and benchmarks: each with a data directory and a free port of its own,
//! gone when the process that started it is, however it ends.
//!
//! `scripts/servers` installs what they need.

// Only tests use this, and a test that cannot have its server has failed.
#![allow(clippy::unwrap_used)]

mod postgres;
mod redis;
mod supervised;

pub use postgres::Postgres;
pub use redis::Redis;
pub use supervised::{Signal, Supervised};
