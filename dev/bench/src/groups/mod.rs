//! The groups of figures. A new group is a file with a `GROUP` in it and its line below.

mod cli;
mod engine;
mod executors;
mod journal;
mod mcp;
mod objects;
mod shared_stores;

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::bench::Bench;

/// All groups, in the order they are measured.
pub const GROUPS: &[Group] =
    &[journal::GROUP, engine::GROUP, executors::GROUP, cli::GROUP, shared_stores::GROUP, objects::GROUP, mcp::GROUP];

/// Figures that are measured together.
#[derive(Debug)]
pub struct Group {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&Bench) -> Result<()>,
}

/// What a child process of this program does, if the flag is one of a child.
pub fn as_child(flag: &str, directory: &Path) -> Option<Result<()>> {
    engine::as_child(flag, directory)
        .or_else(|| executors::as_child(flag, directory))
        .or_else(|| shared_stores::as_child(flag, directory))
        .or_else(|| mcp::as_child(flag, directory))
}

/// Runs this program as a child, and gives the numbers it prints.
fn child(flag: &str, directory: &Path) -> Result<Vec<f64>> {
    let child = Command::new(std::env::current_exe()?).arg(flag).arg(directory).output()?;
    if !child.status.success() {
        return Err(format!("the child failed: {}", String::from_utf8_lossy(&child.stderr)).into());
    }
    let numbers = String::from_utf8(child.stdout)?;
    Ok(numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}
