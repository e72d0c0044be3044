//! Tortures workers: real processes over one real store, killed with SIGKILL and frozen with SIGSTOP at
//! random while their server is killed and started again, and while commands resume, answer and cancel
//! the same sessions, each with a wall clock of its own. Then the books are audited: every session
//! ended, every effect happened as often as its policy says, no two owners ever wrote to one branch, and
//! nothing that was acknowledged is missing or contradicted.
//!
//! ```text
//! cargo build --release -p rekindle-cli
//! cargo run --release -p rekindle-torture -- [postgres|redis|sqlite] [--sessions N] [--workers N] [--seconds N] [--seed N]
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod cashier;
mod chaos;
mod hands;
mod ledger;
mod options;
mod random;
mod stage;
mod subject;
mod supervisor;

use std::process::ExitCode;

/// Whatever went wrong: nobody handles it, it is only told.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| match arguments.first().map(String::as_str) {
        Some("--as-worker") => runtime.block_on(subject::serve(&arguments[1..])),
        _ => options::parse(&arguments).and_then(|options| runtime.block_on(supervisor::torture(&options))),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
