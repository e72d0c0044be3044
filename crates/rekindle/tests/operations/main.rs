//! The operations, called as every front end calls them.

#![allow(clippy::unwrap_used)]

mod answer;
mod change;
mod control;
mod interloper;
mod look;
mod overtaken;
mod pending;
mod replay;
mod retention;
mod saved;
mod settle;
mod walk;
mod world;
