//! Copies and archives: stopped at every call to a store, repeated, and compared with the original.

#![allow(clippy::unwrap_used)]

mod archive;
mod archived_keys;
mod copy;
mod kit;
mod shelf;
