//! The engine and the agent loop: what an iteration costs beside the model and the tool, how many
//! commits it needs, what a long session holds in memory, and that results are stored once.

mod durable;
mod memory;
mod overhead;
mod subject;

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::bench::Bench;
use crate::groups::Group;

/// This group.
pub const GROUP: Group = Group { name: "engine", about: "iterations of a durable agent", run };

fn run(bench: &Bench) -> Result<()> {
    overhead::measure(bench)?;
    bench.block_on(async {
        durable::measure(bench).await?;
        memory::measure(bench).await
    })
}

/// What a child process of this program does, if the flag is one of a child.
pub fn as_child(flag: &str, directory: &Path) -> Option<Result<()>> {
    match flag {
        overhead::FLAG => Some(overhead::overhead_child(directory)),
        memory::FLAG => Some(memory::resident_child(directory)),
        _ => None,
    }
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
