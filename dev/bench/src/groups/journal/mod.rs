//! The journal over each store: what a commit costs, what it leaves on the disk, how many
//! sessions it serves at once, how fast a session comes back, and what a fork costs.

mod commit;
mod concurrency;
mod fork;
mod restore;
mod size;

use crate::Result;
use crate::bench::Bench;
use crate::groups::Group;

/// This group.
pub const GROUP: Group = Group { name: "journal", about: "commit, store, restore and fork sessions", run };

/// The steps of a long session.
const LONG: usize = 10_000;

fn run(bench: &Bench) -> Result<()> {
    bench.block_on(async {
        commit::measure(bench).await?;
        size::measure(bench).await?;
        concurrency::measure(bench).await?;
        restore::measure(bench).await?;
        fork::measure(bench).await
    })
}
