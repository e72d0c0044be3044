//! What core promises to the outside: stored bytes, error codes, documents made from the code.
#![allow(clippy::unwrap_used)]

mod dependencies;
mod documents;
mod golden;
