//! The direction of dependencies between the crates and modules of Rekindle, checked by reading manifests and
//! paths in sources. The rules are in [`rules`]; `cargo test -p rekindle-layers` checks the workspace.
//!
//! Nothing is built and nothing is resolved: a path counts as it is written, after `crate`, `self` and `super` and the
//! names that the root of a crate re-exports. Comments, strings and the folders `tests`, `examples` and `benches` do not count.

mod check;
mod lex;
mod manifest;
pub mod rules;
mod source;
mod workspace;

pub use check::check;
pub use manifest::{Dependency, Section};
pub use workspace::{Crate, File, load};
