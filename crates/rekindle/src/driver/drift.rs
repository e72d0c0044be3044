//! Fingerprints: what a run depends on, part by part, so that a change can be named.

use std::collections::BTreeMap;

use rekindle_core::{Error, ErrorKind, Hash, Json, Result};
use serde::{Deserialize, Serialize};

/// The register that holds what the session was last run with.
pub(crate) const REGISTER: &str = "definition";

/// The register that holds what was started for its runs. Sessions of which nothing was recorded have none.
pub(crate) const STARTED: &str = "started";

/// What a run depends on: the parts of an agent, a plan or a graph, each with a hash and, where
/// it is short, its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    /// Depends on nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Depends on a short text, e.g. the name of the model.
    #[must_use]
    pub fn with(mut self, part: impl Into<String>, text: impl Into<String>) -> Self {
        self.0.insert(part.into(), text.into());
        self
    }

    /// Depends on something long, of which the hash is kept.
    #[must_use]
    pub fn with_hash_of(self, part: impl Into<String>, bytes: &[u8]) -> Self {
        let short = Hash::of(bytes).to_string();
        self.with(part, short)
    }

    /// Depends on all that `other` depends on, named with `prefix`.
    #[must_use]
    pub(crate) fn with_all(mut self, prefix: &str, other: &Self) -> Self {
        self.0.extend(other.0.iter().map(|(part, text)| (format!("{prefix}{part}"), text.clone())));
        self
    }

    /// Returns whether it depends on nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it says something about `part`.
    pub(crate) fn has(&self, part: &str) -> bool {
        self.0.contains_key(part)
    }

    /// One hash of all of it.
    pub fn hash(&self) -> Hash {
        Hash::of(serde_json::to_string(&self.0).unwrap_or_default().as_bytes())
    }

    /// What is different in `new`, one line for each part.
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (part, old) in &self.0 {
            match new.0.get(part) {
                None => changes.push(format!("{part} was removed")),
                Some(new) if new != old && old.len() <= 40 && new.len() <= 40 => {
                    changes.push(format!("{part} changed from {old} to {new}"));
                }
                Some(new) if new != old => changes.push(format!("{part} changed")),
                Some(_) => {}
            }
        }
        let added = new.0.keys().filter(|part| !self.0.contains_key(*part));
        changes.extend(added.map(|part| format!("{part} was added")));
        changes
    }

    pub(crate) fn to_json(&self) -> Result<Json> {
        Json::of(&self.0)
    }
}

/// The refusal to go on with something else than what the session was run with.
pub(crate) fn refused(changes: &[String]) -> Error {
    Error::new(ErrorKind::Drift, format!("the definition changed since the run began: {}", changes.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_the_part() {
        let old = Fingerprint::new().with("model", "a").with_hash_of("system", b"x").with("tool add", "1");
        let new = Fingerprint::new().with("model", "b").with_hash_of("system", b"y").with("tool mul", "1");
        assert_eq!(
            old.changes(&new),
            ["model changed from a to b", "system changed", "tool add was removed", "tool mul was added"]
        );
        assert!(old.changes(&old).is_empty());
        assert_ne!(old.hash(), new.hash());
    }
}
