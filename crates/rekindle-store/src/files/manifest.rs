//! `session.json` and its copy: the header and the branches of a session as one checked line, in two files.
//!
//! The copy is the revision, a newline, and the same line compressed. It is written over its predecessor after the
//! original is durable, and not synced, so it is never ahead of the original. It is read only if the original cannot
//! be. It may then be older, by a crash or a full disk: what was appended since stands in the segments, and a branch
//! begun since shows by its directory. A crash may tear it, which costs nothing while the original is whole.

use std::io::Read as _;
use std::path::Path;

use rekindle_core::codec::{object_from_line, object_to_line};
use rekindle_core::{BranchId, Error, ErrorKind, Moment, NewSession, Result, SessionHeader, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::branch::StoredBranch;
use super::disk::OpenMode;
use super::layout::{LARGEST_OBJECT, Layout, branch_directory, segment_first};

/// The version of `session.json` this build writes, and the newest it reads.
pub(super) const VERSION: u32 = 1;

/// The original and its copy, in the directory of the session.
pub(super) const ORIGINAL: &str = "session.json";
pub(super) const COPY: &str = "session.copy";

/// The length of a revision, and how near to the start of the file it ends.
const REVISION: usize = 32;
const REVISION_WITHIN: usize = 100;
const COMPRESSION: i32 = 1;

/// What `session.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Unlike that of any other writing. First in the file: it tells versions of it apart.
    pub revision: String,
    pub version: u32,
    pub header: SessionHeader,
    pub created_at: Timestamp,
    pub current: BranchId,
    pub branches: Vec<StoredBranch>,
    /// Directories of branches whose beginning was lost with an earlier `session.json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// A manifest as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub manifest: Manifest,
    /// Why the original could not be used, if the copy was.
    pub damage: Option<String>,
}

/// Why a file gave no manifest.
enum Unusable {
    Missing,
    Damaged(String),
    Failed(Error),
}

impl Manifest {
    /// What `session.json` says first.
    pub(super) fn first(new: &NewSession, revision: String, now: Moment) -> Self {
        let info = new.session_info(now.wall);
        let parts = new.base.as_ref().map_or(0, |base| base.frames.len() as u64);
        let branches = info.branches.into_iter().map(|info| {
            let parts = if info.base.is_some() { parts } else { 0 };
            StoredBranch { start: info.head, parts, info }
        });
        Self {
            revision,
            version: VERSION,
            created_at: info.created_at,
            current: info.current,
            branches: branches.collect(),
            header: info.header,
            lost: Vec::new(),
        }
    }

    /// Reads the manifest of a session; nothing if there is no session.
    pub(super) fn read(layout: &Layout, directory: &Path, key: &SessionKey) -> Result<Option<Found>> {
        let original = layout.read_small(&directory.join(ORIGINAL))?;
        let why = match decoded(original.as_deref(), key) {
            Ok(manifest) => return Ok(Some(Found { manifest, damage: None })),
            Err(Unusable::Failed(error)) => return Err(error),
            Err(Unusable::Missing) => None,
            Err(Unusable::Damaged(why)) => Some(why),
        };
        let copy = layout.read_small(&directory.join(COPY))?;
        let copy = match copy.as_deref().map(expanded).map_or(Err(Unusable::Missing), |line| decoded(Some(&line?), key))
        {
            Ok(manifest) => {
                let why = why.unwrap_or_else(|| "is missing".into());
                let copy = match has_revision(layout, &directory.join(ORIGINAL), &manifest.revision) {
                    true => COPY.to_owned(),
                    false => format!("{COPY}, which may be older"),
                };
                let damage = format!("{ORIGINAL} {why}; the session was read from {copy}");
                return Ok(Some(Found { manifest, damage: Some(damage) }));
            }
            Err(Unusable::Failed(error)) => return Err(error),
            Err(Unusable::Missing) => "is missing".to_owned(),
            Err(Unusable::Damaged(why)) => why,
        };
        if why.is_none() && !has_history(layout, directory)? {
            return Ok(None);
        }
        let why = why.unwrap_or_else(|| "is missing, but the session's records are there".into());
        let hint = format!(
            "put {ORIGINAL} in {} back from a backup, or remove the session; nothing else was touched",
            directory.display()
        );
        Err(Error::corrupt(format!("{ORIGINAL} {why}, and its copy {copy}")).on(key).hint(hint))
    }

    /// Writes the manifest, durably, then its copy. The copy is durable too if `both`.
    pub(super) fn write(&self, layout: &Layout, directory: &Path, both: bool) -> Result<()> {
        let line =
            object_to_line(self).map_err(|error| Error::invalid("the session cannot be described").because(error))?;
        layout.replace(&directory.join(ORIGINAL), &line)?;
        let copy = directory.join(COPY);
        let compressed = compressed(&self.revision, &line);
        if both {
            return layout.replace(&copy, &compressed);
        }
        // Without it one damaged file may cost the session, but nothing that was acknowledged.
        let _ = layout.overwrite(&copy, &compressed);
        Ok(())
    }
}

/// Writes the copy anew if it is not that of `revision`, whose original is intact.
pub(super) fn renew_copy(layout: &Layout, directory: &Path, revision: &str) {
    let copy = directory.join(COPY);
    if has_revision(layout, &copy, revision) {
        return;
    }
    if let Ok(Some(line)) = layout.read_small(&directory.join(ORIGINAL)) {
        let _ = layout.overwrite(&copy, &compressed(revision, &line));
    }
}

/// Returns whether the file at `path` is that of `revision`, by its start.
pub(super) fn has_revision(layout: &Layout, path: &Path, revision: &str) -> bool {
    let Ok(file) = layout.disk.open(path, OpenMode::Read) else { return false };
    let Ok(start) = file.read_start(REVISION_WITHIN) else { return false };
    revision.len() == REVISION && start.windows(revision.len()).any(|window| window == revision.as_bytes())
}

/// The key that a manifest in `directory` names, whichever of the two can be read.
pub(super) fn key_in(layout: &Layout, directory: &Path) -> Option<SessionKey> {
    let read = |name: &str| layout.read_small(&directory.join(name)).ok().flatten();
    let key = |line: &[u8]| object_from_line::<Manifest>(line).ok().map(|manifest| manifest.header.key);
    let original = read(ORIGINAL).and_then(|line| key(&line));
    original.or_else(|| key(&expanded(&read(COPY)?).ok()?))
}

/// Returns whether `directory` is that of a session: it has a manifest, if only a damaged one, or records.
pub(super) fn is_session(layout: &Layout, directory: &Path) -> Result<bool> {
    let has = |name: &str| match layout.disk.size(&directory.join(name)) {
        Err(error) => !super::layout::absent(&error),
        Ok(_) => true,
    };
    Ok(has(ORIGINAL) || has(COPY) || has_history(layout, directory)?)
}

/// Returns whether there are records of any branch.
fn has_history(layout: &Layout, directory: &Path) -> Result<bool> {
    Ok(!with_history(layout, directory)?.is_empty())
}

/// The directories of branches that have records.
fn with_history(layout: &Layout, directory: &Path) -> Result<Vec<String>> {
    let branches = directory.join("branches");
    let mut found = Vec::new();
    for name in layout.names(&branches)? {
        if layout.names(&branches.join(&name))?.iter().any(|name| segment_first(name).is_some()) {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// The directories of branches that have records and that none of `branches` is.
pub(super) fn unknown(layout: &Layout, directory: &Path, branches: &[StoredBranch]) -> Result<Vec<String>> {
    let known: Vec<_> = branches.iter().map(|branch| branch_directory(directory, &branch.info.branch)).collect();
    let mut found = with_history(layout, directory)?;
    found.retain(|name| !known.iter().any(|known| known.ends_with(name)));
    Ok(found)
}

/// The copy of a line.
fn compressed(revision: &str, line: &[u8]) -> Vec<u8> {
    let mut copy = format!("{revision}\n").into_bytes();
    // Without memory to compress it there is no copy.
    copy.extend(zstd::bulk::compress(line, COMPRESSION).unwrap_or_default());
    copy
}

/// The line that was copied.
fn expanded(copy: &[u8]) -> Result<Vec<u8>, Unusable> {
    let damaged = || Unusable::Damaged("is damaged".into());
    let (revision, compressed) = copy.split_at_checked(REVISION + 1).ok_or_else(damaged)?;
    let mut line = Vec::new();
    let expander = zstd::stream::read::Decoder::with_buffer(compressed).map_err(|_| damaged())?.single_frame();
    expander.take(LARGEST_OBJECT as u64 + 1).read_to_end(&mut line).map_err(|_| damaged())?;
    let is_its =
        line.get(..REVISION_WITHIN).is_some_and(|start| start.windows(REVISION).any(|id| id == &revision[..REVISION]));
    if !is_its || line.len() > LARGEST_OBJECT {
        return Err(damaged());
    }
    Ok(line)
}

fn decoded(line: Option<&[u8]>, key: &SessionKey) -> Result<Manifest, Unusable> {
    let line = line.ok_or(Unusable::Missing)?;
    if let Some(error) = newer(line) {
        return Err(Unusable::Failed(error.on(key)));
    }
    let manifest: Manifest =
        object_from_line(line).map_err(|error| Unusable::Damaged(format!("is damaged: {error}")))?;
    match manifest.header.key == *key {
        true => Ok(manifest),
        false => Err(Unusable::Damaged(format!("is that of session {}", manifest.header.key))),
    }
}

/// The error of a file that a newer version wrote.
fn newer(bytes: &[u8]) -> Option<Error> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let found = object_from_line::<Versioned>(bytes).ok()?.version;
    let kind = ErrorKind::VersionTooNew { what: ORIGINAL.into(), found, supported: VERSION };
    let message = format!("{ORIGINAL} has version {found}; this build reads up to {VERSION}");
    (found > VERSION).then(|| Error::new(kind, message))
}
