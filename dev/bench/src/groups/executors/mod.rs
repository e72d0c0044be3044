//! Plans and graphs: how fast many small steps go, what they leave on the disk, and that a visit
//! costs what it changes, however long the run and however large the memory is.

mod graph;
mod plan;

use std::path::Path;

use crate::Result;
use crate::bench::Bench;
use crate::groups::Group;

/// This group.
pub const GROUP: Group = Group { name: "executors", about: "steps of plans and visits of graphs", run };

fn run(bench: &Bench) -> Result<()> {
    plan::measure(bench)?;
    graph::measure(bench)
}

/// What a child process of this program does, if the flag is one of a child.
pub fn as_child(flag: &str, directory: &Path) -> Option<Result<()>> {
    match flag {
        graph::FLAG => Some(graph::visits_child(directory)),
        _ => None,
    }
}
