//! What once went wrong, or nearly, and must not again: small stories, each about one promise of
//! the engine that is easily broken.
#![allow(clippy::unwrap_used)]

mod approvals;
mod budgets;
mod children;
mod commands;
mod doubt;
mod durability;
mod events;
mod flows;
mod forks;
mod inbox;
mod kit;
mod limits;
mod middleware;
mod outage;
mod persistence;
mod resume;
#[path = "../agent/kit.rs"]
mod rig;
mod secrets;
mod stops;
mod summaries;
#[path = "../it/support.rs"]
mod support;
