//! Objects of archives that no entry names: of an attempt that stopped before its entry was written, or of an
//! archive that was replaced.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use rekindle_core::orphans::{Finished, Orphan, OrphanKind};
use rekindle_core::{Namespace, Result, file_name};

use super::entry::{ArchiveEntry, below};
use super::{ArchivePlace, FOLDER};

/// How the objects of archives end.
const OBJECT: &str = ".rekindle.jsonl.zst";

/// The objects of a namespace that no entry names and that are at least that old, by session.
pub(in crate::operations) async fn unnamed(
    place: &dyn ArchivePlace,
    namespace: &Namespace,
    older_than: Duration,
) -> Result<Vec<Orphan>> {
    let folder = format!("{FOLDER}/{}", file_name(namespace.as_str()));
    let mut by_folder = BTreeMap::<String, Orphan>::new();
    for (name, bytes) in orphans(place, &folder, older_than).await? {
        let at = name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let orphan = by_folder.entry(at).or_insert_with(|| Orphan {
            kind: OrphanKind::Archive,
            session: None,
            place: place.shown(),
            names: Vec::new(),
            bytes: 0,
            recorded: false,
            kept: None,
        });
        orphan.names.push(name);
        orphan.bytes += bytes;
    }
    Ok(by_folder.into_values().collect())
}

/// Clears objects that still are named by no entry.
pub(in crate::operations) async fn clear_unnamed(
    place: &dyn ArchivePlace,
    orphan: &Orphan,
    older_than: Duration,
) -> Result<Finished> {
    let mut finished = Finished::default();
    let Some((folder, _)) = orphan.names.first().and_then(|name| name.rsplit_once('/')) else {
        return Ok(finished);
    };
    for (name, bytes) in orphans(place, folder, older_than).await? {
        if orphan.names.contains(&name) {
            place.delete(&name).await?;
            finished.add(Finished { objects: 1, bytes, ..Finished::default() });
        }
    }
    Ok(finished)
}

async fn orphans(place: &dyn ArchivePlace, folder: &str, older_than: Duration) -> Result<Vec<(String, u64)>> {
    // Before the entries: an object gets its entry after it was written.
    let mut old = place.older_than(folder, older_than).await?;
    old.retain(|(name, _)| name.ends_with(OBJECT));
    if old.is_empty() {
        return Ok(old);
    }
    let entries = below(place, folder).await?;
    let named: HashSet<String> = entries.archives.iter().map(ArchiveEntry::object_name).collect();
    // An entry that cannot be read may name anything beside it.
    let unreadable: HashSet<&str> =
        entries.damaged.iter().filter_map(|(name, _)| Some(name.rsplit_once('/')?.0)).collect();
    old.retain(|(name, _)| {
        let at = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        !named.contains(name) && !unreadable.contains(at)
    });
    Ok(old)
}
