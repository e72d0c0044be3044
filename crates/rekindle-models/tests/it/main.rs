//! Behaviour of the models in this crate.
#![allow(clippy::unwrap_used)]

mod scripted;
