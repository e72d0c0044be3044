//! The graph executor under everything that happens to it: crashes, waits, fan-outs, bad input.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod checkpoints;
mod crash;
mod edges;
mod fan_out;
mod kit;
mod memory;
mod nodes;
mod resume;
mod schema;
mod sources;
#[path = "../it/support.rs"]
mod support;
