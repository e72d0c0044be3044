//! The file store on a disk that fails, and on one that somebody tampered with.

mod crash;
mod script;
mod simulated_disk;
