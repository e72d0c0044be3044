//! Behaviour of all stores and decorators: the conformance suite and what goes beyond it.
#![cfg(all(feature = "files", feature = "sqlite"))]
#![allow(clippy::unwrap_used)]

mod anchored;
mod bombs;
mod conformance;
mod costs;
mod damage;
mod durability;
mod faults;
mod fixtures;
mod full_disk;
mod gate;
mod keys;
mod killed;
mod marks;
mod model;
mod skewed;
mod urls;
mod values;
