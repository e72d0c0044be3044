//! The commands, one file each. A command reads its arguments, calls an operation and says what
//! came of it.

pub mod answer;
pub mod archive;
pub mod cancel;
mod changing;
pub mod checkpoint;
pub mod completions;
pub mod config;
pub mod copy;
pub mod demo;
pub mod dequeue;
pub mod diff;
pub mod doctor;
mod each;
pub mod edit;
pub mod enqueue;
pub mod explain;
pub mod export;
pub mod fork;
pub mod gc;
pub mod graph;
pub mod help;
pub mod import;
pub mod init;
pub mod keys;
pub mod log;
pub mod man;
pub mod mcp;
pub mod pause;
pub mod prune;
pub mod queues;
pub mod replay;
pub mod resume;
pub mod run;
pub mod schema;
pub mod send;
pub mod sessions;
pub mod settle;
pub mod signal;
pub mod trust;
pub mod verify;
pub mod version;
pub mod waits;
pub mod worker;
pub mod workers;

/// What was done, and the command line to go on with.
#[derive(Debug, serde::Serialize)]
struct WithNext<'a, T> {
    #[serde(flatten)]
    done: &'a T,
    next: String,
}
