//! The Model Context Protocol: how soon the first answer comes, how many calls a second there are over HTTP,
//! and that many calls leave nothing behind.

mod client;
mod http;
mod memory;
mod start;

use std::path::Path;

use super::Group;
use crate::Result;
use crate::bench::Bench;

/// The group.
pub const GROUP: Group = Group { name: "mcp", about: "the MCP server: first answer, calls over HTTP, memory", run };

fn run(bench: &Bench) -> Result<()> {
    bench.block_on(http::measure(bench))?;
    memory::measure(bench)?;
    start::measure(bench)
}

/// What a child process of this program does, if the flag is one of a child.
pub fn as_child(flag: &str, directory: &Path) -> Option<Result<()>> {
    (flag == memory::FLAG).then(|| memory::serve_and_call(directory))
}
