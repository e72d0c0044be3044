//! The engine and the agent loop: what an iteration costs beside the model and the tool, how many
//! commits it needs, what a long session holds in memory, and that results are stored once.

mod durable;
mod memory;
mod overhead;
pub(super) mod subject;

use std::path::Path;

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
