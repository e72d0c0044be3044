//! Object storage: a bucket, a store whose sessions are objects in it, and large values of other
//! stores. `docs/design/0008-object-storage.md` argues why the store is safe at every crash.

mod address;
mod backend;
mod bucket;
mod cache;
mod carry;
mod change;
mod clock;
mod commit;
mod compact;
mod conditions;
mod dates;
mod envelope;
mod failure;
mod index;
mod large_values;
mod layout;
mod list;
mod load;
mod local;
mod operations;
mod orphans;
mod owner;
mod read;
mod remote;
mod retried;
mod segment;
mod state;
mod store;
mod stranded;
mod unreadable;
mod values;

pub(crate) use address::SCHEMES;
pub use backend::{Listed, Objects, Put, Stat, Tag, Write};
pub use bucket::Bucket;
pub use large_values::LargeValues;
pub(crate) use large_values::{LARGE_VALUES, open_with_large_values};
pub use store::ObjectsStore;
