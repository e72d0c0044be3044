//! Stores that keep Rekindle journals, and decorators over any of them.
//!
//! | URL | store | feature |
//! | --- | --- | --- |
//! | `memory:` | [`MemoryStore`] | always |
//! | `file:./dir` | `FileStore` | `files` |
//! | `sqlite:./rekindle.db` | `SqliteStore` | `sqlite` |

#[cfg(feature = "files")]
mod files;
mod memory;
mod options;
#[cfg(feature = "sqlite")]
mod sqlite;
mod system;

#[cfg(feature = "files")]
// pub use files::FileStore;
pub use memory::MemoryStore;
pub use options::StoreOptions;
#[cfg(feature = "sqlite")]
// pub use sqlite::SqliteStore;
pub use system::{SystemClock, system_ids};
