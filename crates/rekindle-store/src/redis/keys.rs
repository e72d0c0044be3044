//! Names of keys. Ids are hashed into them: no id can reach into another session's keys or choose
//! a slot. All keys of a session share a slot, as do all of a namespace's queue.

use rekindle_core::values::ValueKind;
use rekindle_core::{BranchId, Hash, Namespace, SessionKey, Timestamp};

/// The keys of one store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    database: i64,
}

/// The keys of one session.
#[derive(Clone, Debug)]
pub(super) struct SessionKeys(String);

impl Keys {
    pub(super) fn new(prefix: &str, database: i64) -> Self {
        Self { prefix: prefix.to_owned(), database }
    }

    /// What the store is: its layout and its identity.
    pub(super) fn store(&self) -> String {
        format!("{}:store", self.prefix)
    }

    /// The channel of notices. All databases of a server share its channels.
    pub(super) fn channel(&self) -> String {
        format!("{}:notices:{}", self.prefix, self.database)
    }

    /// Written for the sake of writing.
    pub(super) fn written(&self) -> String {
        format!("{}:written", self.prefix)
    }

    /// The sessions of a namespace in the order they were created.
    pub(super) fn list(&self, namespace: &Namespace) -> String {
        format!("{}:{{{}}}:list", self.prefix, short_hash(namespace.as_str()))
    }

    /// What `queue.lua` expects, in its order.
    pub(super) fn queue(&self, namespace: &Namespace) -> [String; 7] {
        let tag = format!("{}:{{{}}}", self.prefix, short_hash(namespace.as_str()));
        ["jobs", "ids", "due", "ready", "claimed", "pending", "workers"].map(|name| format!("{tag}:{name}"))
    }

    /// Values of a kind in a namespace, and their keys in order.
    pub(super) fn values(&self, namespace: &Namespace, kind: ValueKind) -> [String; 2] {
        let tag = format!("{}:{{{}}}", self.prefix, short_hash(namespace.as_str()));
        ["values", "value-keys"].map(|name| format!("{tag}:{name}:{kind}"))
    }

    /// A pattern of the keys of all sessions.
    pub(super) fn any_session(&self) -> String {
        // A prefix contains no character that means something in a pattern.
        format!("{}:{{*}}:session", self.prefix)
    }

    /// The keys of a session.
    pub(super) fn session(&self, session: &SessionKey) -> SessionKeys {
        // No id contains a zero byte.
        let name = format!("{}\0{}", session.namespace, session.id);
        SessionKeys(format!("{}:{{{}}}", self.prefix, short_hash(&name)))
    }
}

impl SessionKeys {
    /// Everything but frames.
    pub(super) fn info(&self) -> String {
        format!("{}:session", self.0)
    }

    /// Frames of a branch, the parts of its base, and the index of its marks.
    pub(super) fn branch(&self, branch: &BranchId) -> [String; 3] {
        let hash = short_hash(branch.as_str());
        ["frames", "base", "marks"].map(|name| format!("{}:{name}:{hash}", self.0))
    }
}

/// The entry of a session in the list of its namespace.
pub(super) fn list_entry(created_at: Timestamp, id: &str) -> String {
    format!("{:020}{id}", created_at.0)
}

/// Enough of a hash that nobody finds two names for it.
fn short_hash(text: &str) -> String {
    let mut hash = Hash::of(text.as_bytes()).to_string();
    hash.truncate(32);
    hash
}
