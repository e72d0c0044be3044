//! Behaviour of the models in this crate.
#![allow(clippy::unwrap_used)]

#[path = "../support/aimock.rs"]
mod aimock;
mod asking;
mod faults;
mod playing;
mod requests;
mod scripted;
mod server;
