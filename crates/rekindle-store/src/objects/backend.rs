//! What is needed of an object service, and nothing else: every request goes through here, so
//! that tests can put one underneath that stops at any moment.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::{Result, Retries, Timestamp};

/// What a write may find in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Whatever is there is replaced.
    Replace,
    /// Nothing may be there.
    New,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there, whole and durable.
    Done,
    /// Something was there already, or something else than expected; nothing was written.
    Exists,
}

/// Identifies one version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Its entity tag.
    pub entity: Option<String>,
    /// Its version, where the service goes by versions.
    pub version: Option<String>,
}

impl Tag {
    /// Returns true if both name the same version for sure. Some services quote a tag in reads and
    /// not in listings.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let plain = |tag: &Self| tag.entity.as_ref().map(|entity| entity.trim_matches('"').to_owned());
        self.entity.is_some() && plain(self) == plain(other)
    }
}

/// What is known of an object without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the service's clock.
    pub modified: Timestamp,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of the object.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the service's clock.
    pub modified: Timestamp,
    /// The tag that a read of the same version gives, if the service lists it.
    pub tag: Option<Tag>,
}

/// An object service. Every write is atomic; what a call acknowledged, every later call sees.
#[async_trait]
pub trait Objects: fmt::Debug + Send + Sync + 'static {
    /// The service, if its conditional writes have to be tried out before they are relied on; nothing where they hold
    /// by construction.
    fn untried(&self) -> Option<String> {
        None
    }

    /// Writes an object. [`Put::Exists`] may be the answer to one's own write whose first
    /// acknowledgement was lost.
    async fn put(&self, name: &str, bytes: Bytes, write: Write) -> Result<Put>;

    /// Writes over exactly the version of an object that has this tag. [`Put::Exists`] may be the
    /// answer to one's own write whose first acknowledgement was lost.
    async fn put_over(&self, name: &str, bytes: Bytes, tag: &Tag) -> Result<Put>;

    /// Reads an object whole, with its tag; nothing if there is no object.
    async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>>;

    /// Reads an object, or as much of `range` as it has; nothing if there is no object.
    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>>;

    /// What is known of an object.
    async fn stat(&self, name: &str) -> Result<Option<Stat>>;

    /// Removes an object. What is not there is removed already.
    async fn delete(&self, name: &str) -> Result<()>;

    /// Removes objects, in any order, with as few requests as the service allows. What is not there
    /// is removed already; after an error, some of them may be.
    async fn delete_all(&self, names: &[String]) -> Result<()>;

    /// The objects below `prefix` whose names come behind `after`, by name.
    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>>;

    /// The requests that were made again so far.
    fn retries(&self) -> Retries {
        Retries::default()
    }
}
