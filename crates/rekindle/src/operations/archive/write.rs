//! Out of the store, into the archive.

use bytes::Bytes;
use rekindle_core::{Error, ErrorKind, Exported, Journal, Result, SessionInfo, SessionKey};
use serde::Serialize;

use super::entry::{self, ArchiveEntry, entry_name, folder_of, hash_of};
use super::{ArchivePlace, by_records, heads, protected, reason_against};
use crate::engine::Engine;
use crate::operations::Freed;

/// How hard the export is compressed.
const LEVEL: i32 = 6;
/// The largest archive: it is held in memory while it is written and read.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// How to archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Replaces an archive of the same session whose content is not a beginning of this one.
    pub replace: bool,
    /// Leaves the session in the store.
    pub keep: bool,
    /// Only says what would be done.
    pub dry_run: bool,
}

/// What came of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Archived {
    /// The session.
    pub session: SessionKey,
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The archive; none in a dry run, unless it is there already.
    pub archive: Option<ArchiveEntry>,
    /// Whether the archive was there already.
    pub there: bool,
    /// Whether the session left the store.
    pub removed: bool,
    /// Whether it had left the store before, in a try that stopped.
    pub before: bool,
    /// What that freed.
    pub freed: Freed,
}

/// Writes a session to an archive, reads the archive back, and only then removes the session from
/// the store. Refuses what runs, waits or is unfinished (`Protected`), and an archive of the same
/// session with another content (`AlreadyExists`). Safe to repeat after a failure: a session that is archived already and
/// has left the store counts as done.
pub async fn archive(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &ArchiveOptions,
) -> Result<Archived> {
    let context = |error: Error| error.during("archive").on(session);
    archive_session(engine, place, session, options).await.map_err(context)
}

/// Age from which on an object without an entry is nobody's work in progress.
const ABANDONED: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

async fn archive_session(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &ArchiveOptions,
) -> Result<Archived> {
    let stored = match engine.journal().store().open(session).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            return archived_before(engine, place, session, options).await?.ok_or(error);
        }
        other => other?,
    };
    let info = by_records(engine, stored).await?;
    refuse_protected(&info)?;
    let known = entry::read(place, &entry_name(session, &info.header.incarnation)).await?;
    let there = known.as_ref().is_some_and(|known| known.heads == heads(&info) && !known.removing);
    let before = Archived {
        session: session.clone(),
        dry_run: options.dry_run,
        archive: known.clone().filter(|_| there),
        there,
        removed: false,
        before: false,
        freed: Freed::default(),
    };
    if let Some(known) = known.as_ref().filter(|known| !there && !options.replace && !known.removing) {
        refuse_other(engine, session, known).await?;
    }
    if options.dry_run {
        return Ok(before);
    }
    let there = there && is_sound(place, known.as_ref()).await?;
    let entry = match known.clone().filter(|_| there) {
        Some(known) => known,
        None => write(engine, place, session, known.as_ref()).await?,
    };
    tidy(place, &entry, known.as_ref()).await?;
    // Before the session goes: until then its key is not mistaken for one that nobody needs.
    engine.journal().note_archive(&entry.owner(), &place.shown()).await?;
    let freed = match options.keep {
        true => Freed::default(),
        false => remove(engine, place, &entry).await?,
    };
    Ok(Archived { archive: Some(entry), there, removed: !options.keep, freed, ..before })
}

/// What came of a session that left the store in an earlier try: its archive, if it is sound, and what was left over
/// of it in the store is cleared.
async fn archived_before(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    options: &ArchiveOptions,
) -> Result<Option<Archived>> {
    let found = entry::below(place, &folder_of(session)).await?.archives.into_iter();
    let of_session = found.filter(|archive| archive.session == *session && !archive.removing);
    let Some(entry) = of_session.max_by_key(|archive| (archive.created_at, archive.archived_at)) else {
        return Ok(None);
    };
    check(place, &entry).await?;
    let mut freed = Freed::default();
    if !options.dry_run {
        freed.bytes = engine.journal().finish_removal(session).await?.bytes;
    }
    Ok(Some(Archived {
        session: session.clone(),
        dry_run: options.dry_run,
        archive: Some(entry),
        there: true,
        removed: true,
        before: true,
        freed,
    }))
}

/// Whether an archive can be read. One that cannot, of a session that is there, is written again.
async fn is_sound(place: &dyn ArchivePlace, known: Option<&ArchiveEntry>) -> Result<bool> {
    let Some(known) = known else { return Ok(false) };
    match check(place, known).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(false),
        other => other.map(|()| true),
    }
}

fn refuse_protected(info: &SessionInfo) -> Result<()> {
    match reason_against(info) {
        Some(reason) => Err(protected(&info.header.key, &reason)),
        None => Ok(()),
    }
}

/// An error unless the archive that is there is a beginning of the session: then nothing is lost.
async fn refuse_other(engine: &Engine, session: &SessionKey, known: &ArchiveEntry) -> Result<()> {
    let verified = engine.journal().verify(session, &known.heads).await?;
    match verified.is_sound() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::AlreadyExists, "it is archived already, with another content")
            .hint("restore that archive under another name first, or replace it")),
    }
}

/// Exports, puts the object, reads it back, and writes the entry, in the place of none but `known`:
/// whatever came since may hold more than was exported here.
async fn write(
    engine: &Engine,
    place: &dyn ArchivePlace,
    session: &SessionKey,
    known: Option<&ArchiveEntry>,
) -> Result<ArchiveEntry> {
    let object = exported(engine, session).await?;
    // What was exported is what counts, whatever happened to the session since.
    let held = read_object(&object)?;
    let now = engine.journal().clock().now();
    let entry = ArchiveEntry::new(&held.session, now, held.frames, &object);
    if !place.put_new(&entry.object_name(), object).await? {
        return Err(Error::corrupt(format!("another object is in the place of {}", entry.object_name())));
    }
    check(place, &entry).await?;
    let (name, bytes) = (entry.name(), entry.to_bytes()?);
    if place.put_new(&name, bytes.clone()).await? {
        return Ok(entry);
    }
    match entry::read(place, &name).await? {
        Some(there) if Some(&there) == known => place.put(&name, bytes).await.map(|()| entry),
        // Somebody else archived the same.
        Some(there) if there.heads == entry.heads && !there.removing => Ok(there),
        Some(_) => Err(somebody_else()),
        None => Err(Error::new(ErrorKind::StoreUnavailable, "the archive was removed meanwhile").hint("try again")),
    }
}

async fn exported(engine: &Engine, session: &SessionKey) -> Result<Bytes> {
    let failed = |error| Error::new(ErrorKind::PersistFailed, "the export cannot be compressed").because(error);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL).map_err(failed)?;
    let journal = engine.journal();
    let sealed = journal.codec().encrypts() || journal.store().open(session).await?.header.is_encrypted();
    match sealed {
        true => journal.export_stored(session, &mut encoder).await?,
        false => journal.export(session, &mut encoder).await?,
    };
    let bytes = encoder.finish().map_err(failed)?;
    match bytes.len() as u64 {
        size if size > MAX_BYTES => Err(Error::limit("bytes of an archive", size, MAX_BYTES)
            .hint("prune the session first, or copy it to another store")),
        _ => Ok(bytes.into()),
    }
}

/// Decompresses an archive and checks every line of it.
pub(super) fn read_object(object: &[u8]) -> Result<Exported> {
    Journal::read_export(&mut decoder(object)?)
}

pub(super) fn decoder(object: &[u8]) -> Result<std::io::BufReader<zstd::stream::read::Decoder<'static, &[u8]>>> {
    let decoder = zstd::stream::read::Decoder::with_buffer(object)
        .map_err(|error| Error::corrupt("the archive cannot be decompressed").because(error))?;
    Ok(std::io::BufReader::with_capacity(256 << 10, decoder))
}

/// Reads an archive back: the object must be there, with the hash its entry says.
async fn check(place: &dyn ArchivePlace, entry: &ArchiveEntry) -> Result<()> {
    fetch(place, entry).await.map(drop)
}

/// The object of an archive, checked.
pub(super) async fn fetch(place: &dyn ArchivePlace, entry: &ArchiveEntry) -> Result<Bytes> {
    let name = entry.object_name();
    let damaged = |why: &str| {
        let message = format!("the archive {name} at {} {why}", place.shown());
        Error::corrupt(message).hint("look for another copy of the object; its BLAKE3 hash is in the entry beside it")
    };
    let object = place.get(&name).await?.ok_or_else(|| damaged("is gone"))?;
    match hash_of(&object) == entry.hash {
        true => Ok(object),
        false => Err(damaged("is damaged: its hash is another")),
    }
}

/// Removes objects that no entry names: the one of the archive that was replaced, and what an attempt left that was
/// stopped long ago. A younger one may be that of somebody who is about to write its entry.
async fn tidy(place: &dyn ArchivePlace, entry: &ArchiveEntry, replaced: Option<&ArchiveEntry>) -> Result<()> {
    let stem = entry.name().trim_end_matches(".json").to_owned() + "-";
    let mine = entry.object_name();
    let old = place.older_than(&folder_of(&entry.session), ABANDONED).await?;
    let old = old.into_iter().map(|(name, _)| name).filter(|name| name.starts_with(&stem) && name.ends_with(".zst"));
    for name in old.chain(replaced.map(ArchiveEntry::object_name)).filter(|name| *name != mine) {
        place.delete(&name).await?;
    }
    Ok(())
}

fn somebody_else() -> Error {
    Error::new(ErrorKind::Stale, "somebody else archives it at the same time")
        .hint("it stays in the store; archive it again when they are done")
}

/// Removes the session, if the archive stands and the session is still what was archived.
async fn remove(engine: &Engine, place: &dyn ArchivePlace, entry: &ArchiveEntry) -> Result<Freed> {
    if entry::read(place, &entry.name()).await?.as_ref() != Some(entry) {
        return Err(somebody_else());
    }
    check(place, entry).await?;
    let session = &entry.session;
    let info = by_records(engine, engine.journal().store().open(session).await?).await?;
    refuse_protected(&info)?;
    if heads(&info) != entry.heads || info.header.incarnation != entry.incarnation {
        return Err(Error::new(ErrorKind::Stale, "something happened in the session while it was archived")
            .hint("it stays in the store; archive it again"));
    }
    // What arrives from here on is not in the archive, and then the session stays.
    engine.journal().put_away(session, entry.heads.clone()).await.map(Freed::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_archives() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let archive = runtime.block_on(async {
            let engine = Engine::memory().unwrap();
            let session = engine.create("a").await.unwrap();
            exported(&engine, session.key()).await.unwrap()
        });
        // The window of a decompressor is eight megabytes.
        rekindle_fuzz::fuzz!("archive").seeds([archive.to_vec()]).memory(16 << 20, 256).bytes(read_object);
    }
}
