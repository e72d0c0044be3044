//! The file store on a disk that fails, and on one that somebody tampered with.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod behaviour;
mod crash;
mod damage;
mod damaged_index;
mod point_reads;
mod replaced;
mod script;
mod simulated_disk;
