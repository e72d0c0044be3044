//! The engine in real processes: killed, frozen, stopped and racing each other, over a database
//! on disk and with the clock of this machine.
#![allow(clippy::unwrap_used)]

mod child;
mod killed;
mod owners;
mod stop;
#[allow(dead_code)]
#[path = "../it/support.rs"]
mod support;
