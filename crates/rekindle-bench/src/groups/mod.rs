//! The groups of figures. A new group is a file with a `GROUP` in it and its line below.

pub mod engine;
mod journal;

use crate::Result;
use crate::bench::Bench;

/// All groups, in the order they are measured.
pub const GROUPS: &[Group] = &[journal::GROUP, engine::GROUP];

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
