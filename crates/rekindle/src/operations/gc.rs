//! Garbage: what dead processes left over, found by listing; and removals that were begun, brought to their end.

use std::time::Duration;

use rekindle_core::orphans::{Finished, Orphan, OrphanKind};
use rekindle_core::{Error, Namespace, Result};
use serde::Serialize;

use super::archive::{self, ArchivePlace};
use super::keys::orphans as orphaned_keys;
use crate::engine::Engine;

/// The age from which on nothing can belong to an operation that is still under way.
pub const OLD_ENOUGH: Duration = Duration::from_secs(24 * 60 * 60);

/// How garbage is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcOptions {
    /// What is not on record and younger than this stays: an operation that is under way may need it.
    pub older_than: Duration,
    /// Only says what would go.
    pub dry_run: bool,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self { older_than: OLD_ENOUGH, dry_run: true }
    }
}

/// Garbage that was collected, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Garbage {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// What was found.
    pub found: Vec<Orphan>,
    /// What was cleared of it; nothing in a dry run.
    pub cleared: Finished,
    /// The sessions that are there and cannot be read, each with the reason, if data keys stay because of them: any key
    /// may belong to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Finds what dead processes left over in a namespace: objects of removed sessions, catalogue entries without session,
/// large values that belong to nothing, objects that told the time, objects of archives without entry, and data keys of no
/// session and no archive. Clears it unless it is a dry run. Safe beside everything else that happens.
pub async fn gc(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
    options: &GcOptions,
) -> Result<Garbage> {
    collect(engine, namespace, places, options).await.map_err(|error| error.during("collect garbage"))
}

async fn collect(
    engine: &Engine,
    namespace: &Namespace,
    places: &[&dyn ArchivePlace],
    options: &GcOptions,
) -> Result<Garbage> {
    let (journal, older_than) = (engine.journal(), options.older_than);
    let mut garbage =
        Garbage { dry_run: options.dry_run, found: Vec::new(), cleared: Finished::default(), unreadable: Vec::new() };
    if let Some(orphans) = journal.store().orphans() {
        for found in orphans.find(namespace, older_than).await? {
            if !options.dry_run && found.kept.is_none() {
                garbage.cleared.add(orphans.clear(&found, older_than).await?);
            }
            garbage.found.push(found);
        }
    }
    for session in journal.unfinished_erasures(namespace).await? {
        garbage.found.push(key_of(engine, Some(session.clone()), true));
        if !options.dry_run {
            garbage.cleared.add(journal.finish_removal(&session).await?);
        }
    }
    for place in places {
        for found in archive::unnamed(*place, namespace, older_than).await? {
            if !options.dry_run {
                garbage.cleared.add(archive::clear_unnamed(*place, &found, older_than).await?);
            }
            garbage.found.push(found);
        }
    }
    let (orphans, _) = orphaned_keys(engine, namespace, places).await?;
    garbage.found.extend(orphans.keys.iter().map(|_| key_of(engine, None, false)));
    if !options.dry_run {
        garbage.cleared.objects += journal.destroy_orphaned_keys(namespace, &orphans.keys).await?;
    }
    garbage.unreadable = orphans.unreadable;
    Ok(garbage)
}

fn key_of(engine: &Engine, session: Option<rekindle_core::SessionKey>, recorded: bool) -> Orphan {
    let place = engine.journal().store().capabilities().name.to_owned();
    Orphan { kind: OrphanKind::DataKey, session, place, names: Vec::new(), bytes: 0, recorded, kept: None }
}

/// Removals that were begun and are finished now, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// What was left over by removals that are on record.
    pub found: Vec<Orphan>,
    /// What was cleared of it; nothing in a dry run.
    pub cleared: Finished,
}

/// Finishes every removal of a namespace that is on record, whatever its age: of sessions in object storage, of large
/// values, of data keys.
pub async fn repair(engine: &Engine, namespace: &Namespace, dry_run: bool) -> Result<Repaired> {
    let context = |error: Error| error.during("repair");
    let journal = engine.journal();
    let mut repaired = Repaired { dry_run, found: Vec::new(), cleared: Finished::default() };
    if let Some(orphans) = journal.store().orphans() {
        let found = orphans.find(namespace, Duration::MAX).await.map_err(context)?;
        for found in found.into_iter().filter(|found| found.recorded) {
            if !dry_run && found.kept.is_none() {
                repaired.cleared.add(orphans.clear(&found, Duration::MAX).await.map_err(context)?);
            }
            repaired.found.push(found);
        }
    }
    for session in journal.unfinished_erasures(namespace).await.map_err(context)? {
        repaired.found.push(key_of(engine, Some(session.clone()), true));
        if !dry_run {
            repaired.cleared.add(journal.finish_removal(&session).await.map_err(context)?);
        }
    }
    Ok(repaired)
}
