//! Orphans: what stays behind when a process dies while it removes, creates or appends, and how it is
//! found and cleared.
//!
//! A removal of several steps is **recorded** before its first step that cannot be taken back. So it can be repeated, or
//! finished by another process ([`Orphans::finish`]). What nothing records (an object that was written for a
//! session that never came to be) is found by listing, and goes only when it is older than any operation takes
//! ([`Orphans::find`]).

mod note;
mod pending;

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

pub use note::{NotedValues, ValuesNote};
pub use pending::{PendingErasure, PendingErasures};

use crate::error::Result;
use crate::id::{Namespace, SessionKey};

/// The kind of an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OrphanKind {
    /// Objects of a session that was removed.
    RemovedSession,
    /// An entry of the catalogue whose session was never created.
    CatalogEntry,
    /// Large values that belong to no session, or that no record of theirs refers to.
    LargeValues,
    /// Objects that were written to learn the time of a service, or to try it out.
    Temporary,
    /// The object of an archive that has no entry.
    Archive,
    /// A data key that belongs to no session and no archive.
    DataKey,
}

/// Something that was left over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Orphan {
    /// Its kind.
    pub kind: OrphanKind,
    /// The session it belonged to, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// The bucket or store it is in, without secrets.
    pub place: String,
    /// The names of its objects there. None if the place cannot be looked at with this configuration.
    pub names: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// True if its removal is on record: it can be finished at any time.
    pub recorded: bool,
    /// The reason why it stays: something that cannot be read may need it. None if it can be cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// What finishing or clearing did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Finished {
    /// Objects and keys that were removed.
    pub objects: u64,
    /// Their bytes, as far as they are known.
    pub bytes: u64,
    /// Places with large values that stay, because this store was opened with another bucket for them. Their removal
    /// stays on record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
    /// Places with large values that stay because other stores may use them. Their removal stays on record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

impl Finished {
    /// Returns whether nothing was left over.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another step did.
    pub fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.elsewhere.extend(other.elsewhere);
        self.kept.extend(other.kept);
    }
}

/// Finds and clears what was left over in a store.
///
/// # Contract
///
/// * Every method is safe to repeat, and safe beside everything else that happens in the store.
/// * Nothing of a session that is there goes, however it came to be there again.
/// * Nothing goes that a record may need which cannot be read; what stays for that is found as [`Orphan::kept`].
/// * What is not on record goes only if it is older than `older_than` by the clock of its own place.
#[async_trait]
pub trait Orphans: Send + Sync {
    /// Returns whether the removal of a session is on record and not finished. Changes nothing.
    async fn is_unfinished(&self, session: &SessionKey) -> Result<bool>;

    /// Finishes the removal of a session that is on record. Does nothing if none is, or if the session is there.
    async fn finish(&self, session: &SessionKey) -> Result<Finished>;

    /// Finds what was left over in a namespace, by listing. Costs about as much as listing all sessions.
    async fn find(&self, namespace: &Namespace, older_than: Duration) -> Result<Vec<Orphan>>;

    /// Clears what was found, if it still is an orphan.
    async fn clear(&self, orphan: &Orphan, older_than: Duration) -> Result<Finished>;

    /// The place large values of this store go to, as it was opened.
    fn large_values(&self) -> Option<String> {
        None
    }
}
