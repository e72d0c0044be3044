//! Behaviour of definitions: what is read, what is refused and where, and what runs.
#![allow(clippy::unwrap_used)]

mod bad_files;
mod bad_forms;
mod bad_models;
mod documents;
mod formats;
mod hostile;
mod kit;
mod mcp;
mod mutations;
mod runs;
mod schemas;
mod semantics;
