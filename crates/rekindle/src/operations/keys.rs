//! The data keys of encrypted sessions and of their archives: wrapping them with another main key, and destroying
//! those that nobody needs.

use std::collections::HashSet;

use rekindle_core::{Error, Namespace, OrphanedKey, OrphanedKeys, Result};
use serde::Serialize;

use super::archive::{ArchivePlace, archives};
use crate::engine::Engine;

/// The outcome of wrapping the data keys of a namespace anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RewrappedKeys {
    /// Keys that were wrapped with the active main key.
    pub changed: u64,
    /// Keys that were wrapped with it already.
    pub current: u64,
    /// Keys of no session and of no archive that is known: they stay under the main key they had.
    pub unknown: u64,
}

/// The outcome of pruning the data keys of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrunedKeys {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// Keys that belong to no session and no archive.
    pub orphaned: u64,
    /// Number of them that were destroyed.
    pub destroyed: u64,
    /// Keys that archives need.
    pub archived: u64,
    /// The sessions that are there and cannot be read, each with the reason. Any key may belong to them, so none is
    /// destroyed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Wraps the data keys of a namespace with the main key that is active, those of archived sessions among them. No
/// record and no archive is rewritten. Archives note with the key whose it is; `places` are looked at for archives
/// of which that is not known.
pub async fn rewrap_keys(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
) -> Result<RewrappedKeys> {
    let context = |error: Error| error.during("rewrap keys");
    let mut owners = Vec::new();
    for place in places {
        // An entry that cannot be read leaves its key unknown, which is reported.
        let found = archives(*place, namespace).await.map_err(context)?;
        owners.extend(found.archives.iter().map(|entry| entry.owner()));
    }
    let done = engine.journal().rewrap(namespace, &owners).await.map_err(context)?;
    Ok(RewrappedKeys { changed: done.changed, current: done.current, unknown: done.unknown })
}

/// Destroys the data keys of a namespace that belong to no session and no archive: what a process left that died
/// while it created or removed a session, and keys of archives that are gone. The archive of a key counts as gone if all
/// places where it was written are among `places` and none has it any more. Safe while sessions are created.
pub async fn prune_keys(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
    dry_run: bool,
) -> Result<PrunedKeys> {
    prune(engine, namespace, places, dry_run).await.map_err(|error| error.during("prune keys"))
}

async fn prune(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
    dry_run: bool,
) -> Result<PrunedKeys> {
    let (orphans, archived) = orphans(engine, namespace, places).await?;
    let OrphanedKeys { keys, unreadable } = orphans;
    let mut pruned = PrunedKeys { dry_run, orphaned: keys.len() as u64, destroyed: 0, archived, unreadable };
    if !dry_run {
        pruned.destroyed = engine.journal().destroy_orphaned_keys(namespace, &keys).await?;
    }
    Ok(pruned)
}

/// The data keys of a namespace that belong to no session and no archive, and the number of those that archives need.
pub(super) async fn orphans(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
) -> Result<(OrphanedKeys, u64)> {
    let mut orphans = engine.journal().orphaned_keys(namespace).await?;
    let found = orphans.keys.len();
    // Behind the sessions: what was archived since is still among them.
    let known = Known::look(namespace, places).await?;
    orphans.keys.retain(|orphan| !known.is_needed(orphan));
    let archived = (found - orphans.keys.len()) as u64;
    Ok((orphans, archived))
}

/// The archives at some places.
struct Known {
    places: Vec<String>,
    /// The numbers of the keys they need.
    keys: HashSet<u64>,
}

impl Known {
    async fn look(namespace: &Namespace, places: &[&dyn ArchivePlace]) -> Result<Self> {
        let mut known = Self { places: Vec::new(), keys: HashSet::new() };
        for place in places {
            let found = archives(*place, namespace).await?;
            if let Some((name, why)) = found.damaged.first() {
                let message = format!("an archive at {} cannot be read, so its key is not known: {why}", place.shown());
                return Err(Error::corrupt(message).hint(format!("mend or remove {name}; no key was destroyed")));
            }
            known.places.push(place.shown());
            known.keys.extend(found.archives.iter().map(|entry| entry.owner().number()));
        }
        Ok(known)
    }

    fn is_needed(&self, orphan: &OrphanedKey) -> bool {
        let elsewhere = |places: &[String]| places.iter().any(|place| !self.places.contains(place));
        orphan.archived.as_ref().is_some_and(|(_, places)| elsewhere(places)) || self.keys.contains(&orphan.number())
    }
}
