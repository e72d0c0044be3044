//! Real servers for tests and benchmarks: each with a data directory and a free port of its own,
//! gone when the process that started it is, however it ends.
//!
//! `scripts/servers` installs what they need.

// Only tests use this, and a test that cannot have its server has failed.
#![allow(clippy::unwrap_used)]

mod foreign;
mod http;
mod postgres;
mod proxy;
mod redis;
mod s3;
mod supervised;

pub use foreign::ForeignS3;
pub use postgres::Postgres;
pub use proxy::{Proxy, ProxyFault};
pub use redis::Redis;
pub use s3::{S3, S3Fault, S3Request};
pub use supervised::{Signal, Supervised};
