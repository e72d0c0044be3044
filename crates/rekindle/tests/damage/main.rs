//! Damage as a run and the operations see it: what is lost is named, stops what it must, and puts in doubt what may
//! have happened.
#![allow(clippy::unwrap_used)]

#[path = "../plan/common.rs"]
#[allow(dead_code)]
mod common;
mod inbox;
#[path = "../agent/kit.rs"]
mod kit;
mod lost;
mod status;
#[path = "../it/support.rs"]
mod support;
mod victim;
