//! Object storage: the store, the bucket and large values, over a directory, over an S3 that fails
//! on purpose, and over objects that stop at every request.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod buckets;
mod cancelled;
mod clock;
mod conditions;
mod conformance;
mod costs;
mod crash;
mod damage;
mod fixtures;
mod foreign;
#[cfg(feature = "sqlite")]
mod kept;
mod large_values;
mod lists;
mod races;
mod removal;
mod retries;
#[path = "../files/script.rs"]
mod script;
mod simulated;
