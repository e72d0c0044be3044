//! Plans and graphs where it is easy to go wrong: what must hold is in the name of each test.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../plan/common.rs"]
mod common;
#[path = "../agent/kit.rs"]
mod kit;
#[path = "../it/support.rs"]
mod support;

mod budgets;
mod crash;
mod graphs;
mod hostile;
mod more;
mod operations;
mod results;
mod secrets;
mod turns;
mod waits;
