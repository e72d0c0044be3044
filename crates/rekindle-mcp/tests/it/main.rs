//! The server, spoken to line by line over real SQLite stores.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod killed;
mod kit;
mod protocol;
mod resources;
mod schemas;
mod tasks;
mod tasks_kit;
mod tools;
