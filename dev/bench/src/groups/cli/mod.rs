//! The binary: how fast it starts, lists and shows itself, how large it is, how long it takes to
//! build.

mod binary;
mod build;
mod sessions;
mod start;

use crate::Result;
use crate::bench::Bench;

use super::Group;

pub use binary::built;
pub use start::{hello_world, timed};

/// The group.
pub const GROUP: Group =
    Group { name: "cli", about: "the binary: start, listing, size, memory of the demo, cold build", run };

fn run(bench: &Bench) -> Result<()> {
    let rekindle = binary::built(bench)?;
    binary::measure_size(bench, &rekindle)?;
    start::measure(bench, &rekindle)?;
    bench.block_on(sessions::measure(bench, &rekindle))?;
    binary::measure_demo(bench, &rekindle)?;
    build::measure(bench)
}
