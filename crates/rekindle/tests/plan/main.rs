//! The plan executor, from outside.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod child;
mod common;
mod control;
mod crash;
mod doubt;
mod drift;
mod failure;
#[path = "../agent/kit.rs"]
mod kit;
mod large;
mod order;
mod pruning;
mod resume;
mod schema;
mod sources;
#[path = "../it/support.rs"]
mod support;
mod waits;
