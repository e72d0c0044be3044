//! The engine in real processes: killed, frozen, stopped and racing each other, over a database
//! on disk and with the clock of this machine.
#![allow(clippy::unwrap_used)]

mod child;
mod killed;
mod owners;
mod stop;
#[path = "../it/support.rs"]
mod support;
