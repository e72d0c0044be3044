//! What the systems before this one tested, under the names they used, as promises of this engine.
#![allow(clippy::unwrap_used)]

mod cleanup;
mod common;
mod full_history;
mod integration;
mod latest_only;
mod pending_writes;
mod provider_history;
mod reduction;
mod serialization;
#[path = "../it/support.rs"]
mod support;
mod thread;
