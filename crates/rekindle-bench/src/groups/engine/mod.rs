//! The engine and the agent loop: what an iteration costs beside the model and the tool, how many
//! commits it needs, what a long session holds in memory, and that results are stored once.

mod durable;
mod memory;
mod overhead;
mod subject;

pub use memory::{FLAG as RESIDENT_CHILD, resident_child};

use crate::Result;
use crate::bench::Bench;
use crate::groups::Group;

/// This group.
pub const GROUP: Group = Group { name: "engine", about: "iterations of a durable agent", run };

fn run(bench: &Bench) -> Result<()> {
    bench.block_on(async {
        overhead::measure(bench).await?;
        durable::measure(bench).await?;
        memory::measure(bench).await
    })
}
