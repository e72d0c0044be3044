//! The engine and the agent loop, from outside.
#![allow(clippy::unwrap_used)]

mod basics;
mod crash;
mod dropped;
mod hung;
mod support;
