//! Stores that keep Rekindle journals, and decorators over any of them.
//!
//! [`open`] takes one URL for all of them; [`BranchWriter`] commits to one branch with the
//! durability a run asks for:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use rekindle_core::codec::Codec;
//! use rekindle_core::record::{Durability, LogAppend};
//! use rekindle_core::{BranchId, Journal, Json, LogName, OwnerId, SessionHeader, SessionId, SessionKey, StoreExt, Target};
//! use rekindle_store::{BranchWriter, StoreOptions, SystemClock, WriterOptions, open, system_ids};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rekindle_core::Result<()> {
//! let store = open("memory:", StoreOptions::new())?;
//! let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids()?);
//! let session: SessionKey = SessionId::new("demo")?.into();
//! journal.create(SessionHeader::new(session.clone())).await?;
//!
//! let owner = OwnerId::generate(journal.ids(), journal.clock().now());
//! let lease = journal.store().acquire(&session, &BranchId::main(), &owner, Duration::from_secs(30)).await?;
//! let target = Target::new(session.clone(), BranchId::main(), lease.head).with_fence(lease.info.epoch);
//! let mut writer = BranchWriter::new(journal.clone(), target, WriterOptions::new(Durability::Async));
//!
//! let messages = LogName::new("messages")?;
//! for text in ["one", "two", "three"] {
//!     writer.commit(&[LogAppend::new(messages.clone(), vec![Json::from(text)]).into()]).await?;
//! }
//! // The barrier before a side effect: everything so far is on disk.
//! assert_eq!(writer.flush().await?, writer.durable());
//!
//! let restored = journal.load(&session, None).await?;
//! assert_eq!(restored.state.log(&messages).len(), 3);
//! # Ok(()) }
//! ```
//!
//! | URL | store | feature |
//! | --- | --- | --- |
//! | `memory:` | [`MemoryStore`] | always |
//! | `file:./dir` | `FileStore` | `files` |
//! | `sqlite:./rekindle.db` | `SqliteStore` | `sqlite` |
//! | `redis://host` | `RedisStore` | `redis` |
//! | `postgres://user@host/database` | `PostgresStore` | `postgres` |
//! | `s3://bucket/prefix`, `gs://…`, `az://…`, `objects:./dir` | `ObjectsStore` | `objects` |

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

#[doc(hidden)]
pub mod anchored;
mod faulty;
#[cfg(feature = "files")]
#[doc(hidden)]
pub mod files;
mod memory;
mod metered;
#[cfg(any(feature = "files", feature = "objects"))]
mod names;
#[cfg(feature = "objects")]
#[doc(hidden)]
pub mod objects;
mod open;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
pub mod private;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis", feature = "objects"))]
mod retry;
#[cfg(feature = "sqlite")]
mod sqlite;
mod system;
#[cfg(any(feature = "files", feature = "redis", feature = "objects"))]
mod unreadable;
mod url;
mod writer;

pub use anchored::{Anchored, MarksIn};
pub use faulty::{Fault, FaultPlan, FaultyStore};
#[cfg(feature = "files")]
pub use files::FileStore;
pub use memory::MemoryStore;
pub use metered::{MeteredStore, Observation, StoreObserver};
#[cfg(feature = "objects")]
pub use objects::{Bucket, LargeValues, ObjectsStore};
pub use open::{open, schemes};
pub use options::StoreOptions;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use system::{SystemClock, system_ids};
pub use url::shown_url;
pub use writer::{BranchWriter, Watermark, WriterOptions};
