//! Stores that keep Rekindle journals, and decorators over any of them.
//!
//! | URL | store | feature |
//! | --- | --- | --- |
//! | `memory:` | [`MemoryStore`] | always |
//! | `file:./dir` | `FileStore` | `files` |
//! | `sqlite:./rekindle.db` | `SqliteStore` | `sqlite` |

mod faulty;
#[cfg(feature = "files")]
#[doc(hidden)]
pub mod files;
mod memory;
mod metered;
mod open;
mod options;
#[cfg(feature = "sqlite")]
mod sqlite;
mod system;
mod writer;

pub use faulty::{Fault, FaultPlan, FaultyStore};
#[cfg(feature = "files")]
pub use files::FileStore;
pub use memory::MemoryStore;
pub use metered::{MeteredStore, Observation, StoreObserver};
pub use open::open;
pub use options::StoreOptions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use system::{SystemClock, system_ids};
pub use writer::{BranchWriter, WriterOptions};

/// The example of the README is compiled with the documentation tests.
#[cfg_attr(doctest, doc = include_str!("../../../README.md"))]
#[cfg(all(doctest, feature = "sqlite", feature = "files"))]
struct Readme;
