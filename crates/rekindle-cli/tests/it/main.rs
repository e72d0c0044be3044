//! The binary as people use it: real processes, real stores, output compared with what was agreed.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod asked;
mod basics;
mod changes;
mod dependencies;
mod look;
mod moving;
mod past;
mod processes;
mod pty;
mod scenes;
mod setup;
mod support;
mod tell;
mod terminal;
mod tidying;
