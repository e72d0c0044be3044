//! The agent loop and flows under everything that happens to them: control, waits, limits, crashes.
#![allow(clippy::unwrap_used)]

mod budgets;
mod checkpoints;
mod child;
mod control;
mod events;
mod flow;
mod inbox;
mod kit;
mod limits;
mod middleware;
mod resume;
mod streams;
#[path = "../it/support.rs"]
mod support;
mod tools;
mod waits;
