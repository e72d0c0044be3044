//! Out of the archive, back into a store.

use std::time::Duration;

use rekindle_core::{Error, ErrorKind, ImportOptions, Result, SessionInfo, SessionKey, StoreExt as _};
use serde::Serialize;

use super::entry::{self, ArchiveEntry, folder_of};
use super::write::{decoder, fetch, read_object};
use super::{ArchivePlace, heads};
use crate::engine::Engine;

/// The most bytes an archive may decompress to, see [`ImportOptions::max_decompressed`].
const MAX_DECOMPRESSED: u64 = 4 << 30;

/// Lease on a session while its archive is removed: longer than the few requests of that take.
const LEASE: Duration = Duration::from_secs(120);

/// How to restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Another name for the session.
    pub rename: Option<SessionKey>,
    /// Removes the archive afterwards.
    pub remove: bool,
    /// Only checks the archive and says what would be done.
    pub dry_run: bool,
    /// Also takes an archive that is not signed or encrypted with a key that is here, and records that.
    pub accept_unverified: bool,
    /// Who accepts it.
    pub author: Option<String>,
    /// Why it is accepted.
    pub reason: String,
}

/// What was restored, or would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Restored {
    /// The session, under its name in the store.
    pub session: SessionKey,
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The archive it came from.
    pub archive: ArchiveEntry,
    /// Whether the session was there already, the same to the last record.
    pub there: bool,
    /// Whether the chain hashes are those of the archive. They are not if the keys differ.
    pub same_hashes: bool,
    /// Whether the archive was removed.
    pub removed: bool,
}

/// Brings a session back from its archive, the latest one if there are several of that name. A
/// session of that name with another history is `AlreadyExists`; no archive is `NotFound`; one
/// whose bytes are not what its entry says is `Corrupt`. Safe to repeat after a failure.
pub async fn restore(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &RestoreOptions,
) -> Result<Restored> {
    let context = |error: Error| error.during("restore").on(session);
    restore_session(engine, place, session, options).await.map_err(context)
}

async fn restore_session(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &RestoreOptions,
) -> Result<Restored> {
    let archive = find(place, session).await?;
    if archive.removing {
        return finish_removal(engine, place, session, options, archive).await;
    }
    let object = fetch(place, &archive).await?;
    let held = read_object(&object)?.session;
    if held.header.key != archive.session || held.header.incarnation != archive.incarnation {
        return Err(Error::corrupt(format!("the archive holds the session {}", held.header.key)));
    }
    let key = options.rename.clone().unwrap_or_else(|| session.clone());
    let there = standing(engine, &key, &held).await?;
    let mut restored =
        Restored { session: key.clone(), dry_run: options.dry_run, archive, there, same_hashes: true, removed: false };
    if options.dry_run {
        return Ok(restored);
    }
    if !there {
        let import = ImportOptions {
            max_decompressed: Some(MAX_DECOMPRESSED),
            rename: Some(key.clone()),
            namespace: None,
            accept_unverified: options.accept_unverified,
            author: options.author.clone(),
            reason: options.reason.clone(),
        };
        let moved = engine.journal().import(&mut decoder(&object)?, &import).await?;
        restored.same_hashes = moved.same_hashes;
        check(engine, &key, &held, moved.same_hashes).await?;
    }
    if options.remove {
        remove(engine, place, &key, &restored.archive).await?;
        restored.removed = true;
    }
    Ok(restored)
}

/// Removes the archive of a session that is in the store as `key`. Under its lease: nobody can archive the session
/// again, and take it out of the store, while its archive goes.
async fn remove(engine: &Engine, place: &dyn ArchivePlace, key: &SessionKey, archive: &ArchiveEntry) -> Result<()> {
    let store = engine.journal().store();
    let branch = store.open(key).await?.current;
    let lease = store.acquire(key, &branch, &engine.new_owner()?, LEASE).await.map_err(|error| {
        error.hint("the session is back, and its archive is still there: remove that when nobody runs the session")
    })?;
    let removed = remove_leased(engine, place, key, archive).await;
    // If it cannot be given back, it expires.
    let _ = store.release(&lease).await;
    removed
}

/// The entry is the record of the removal: marked first, deleted last.
async fn remove_leased(
    engine: &Engine,
    place: &dyn ArchivePlace,
    key: &SessionKey,
    archive: &ArchiveEntry,
) -> Result<()> {
    let held = engine.journal().store().open(key).await?;
    if held.header.key == archive.session && held.header.incarnation != archive.incarnation {
        return Err(in_the_way("another session of that id is in the store"));
    }
    let marked = ArchiveEntry { removing: true, ..archive.clone() };
    place.put(&archive.name(), marked.to_bytes()?).await?;
    place.delete(&archive.object_name()).await?;
    engine.journal().release_archive(&archive.owner(), &place.shown()).await?;
    place.delete(&archive.name()).await
}

/// Goes on with the removal of an archive that was restored before.
async fn finish_removal(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &RestoreOptions,
    archive: ArchiveEntry,
) -> Result<Restored> {
    let key = options.rename.clone().unwrap_or_else(|| session.clone());
    // Restored before it was marked: if it is not there, it was removed since.
    let there = engine.journal().store().open(&key).await.is_ok();
    let removed = options.remove && !options.dry_run;
    if !options.remove || !there {
        let message = format!("the archive of session `{}` at {} is being removed", session.id, place.shown());
        return Err(Error::not_found(message).hint("--remove finishes that, under the id it was restored to"));
    }
    if removed {
        remove(engine, place, &key, &archive).await?;
    }
    Ok(Restored { session: key, dry_run: options.dry_run, archive, there, same_hashes: true, removed })
}

/// The latest archive of a session.
async fn find(place: &dyn ArchivePlace, session: &SessionKey) -> Result<ArchiveEntry> {
    let found = entry::below(place, &folder_of(session)).await?;
    let of_session = found.archives.into_iter().filter(|archive| archive.session == *session);
    let latest = of_session.max_by_key(|archive| (!archive.removing, archive.created_at, archive.archived_at));
    match (latest, found.damaged.into_iter().next()) {
        (Some(latest), _) => Ok(latest),
        (None, Some((_, why))) => Err(Error::corrupt(why)),
        (None, None) => {
            Err(Error::not_found(format!("there is no archive of session `{}` at {}", session.id, place.shown())))
        }
    }
}

/// Whether the session is in the store already; an error if another history is.
async fn standing(engine: &Engine, key: &SessionKey, held: &SessionInfo) -> Result<bool> {
    let there = match engine.journal().store().open(key).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let (here, wanted) = (heads(&there), heads(held));
    if there.header.incarnation != held.header.incarnation {
        return Err(in_the_way("another session of that id is in the store"));
    }
    if here == wanted && there.current == held.current {
        return Ok(true);
    }
    // What an attempt left that was stopped is a beginning; importing goes on with it.
    let behind = here.iter().all(|(branch, head)| wanted.get(branch).is_some_and(|wanted| head.seq <= wanted.seq));
    match behind && there.live_lease().is_none() {
        true => Ok(false),
        false => Err(in_the_way("the session is in the store, and has gone on since it was archived")),
    }
}

fn in_the_way(message: &'static str) -> Error {
    Error::new(ErrorKind::AlreadyExists, message).hint("restore it under another name, or remove what is there first")
}

/// Checks that everything has arrived.
async fn check(engine: &Engine, key: &SessionKey, held: &SessionInfo, same_hashes: bool) -> Result<()> {
    let there = heads(&engine.journal().store().open(key).await?);
    let arrived = heads(held).iter().all(|(branch, wanted)| {
        there.get(branch).is_some_and(|head| head.seq == wanted.seq && (!same_hashes || head.hash == wanted.hash))
    });
    match arrived {
        true => Ok(()),
        false => Err(Error::corrupt("the session did not arrive as it was").hint("remove it and restore it again")),
    }
}
