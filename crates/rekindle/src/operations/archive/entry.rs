//! The entry beside an archive: what a list shows, and what the object must be.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rekindle_core::{
    BranchId, Error, ErrorKind, Hash, Head, KeyOwner, Namespace, Result, SessionInfo, SessionKey, Status, Timestamp,
    file_name,
};
use serde::{Deserialize, Serialize};

use super::{ArchivePlace, FOLDER, heads};

/// The version of the entry.
const VERSION: u32 = 1;
/// The largest entry that is read.
const MAX_ENTRY: usize = 4 << 20;
/// How many names are asked for at once, and how many entries are read at once.
const PAGE: usize = 1_000;
const PARALLEL: usize = 8;

/// An archive, as its entry describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchiveEntry {
    /// The version of this form.
    pub rekindle_archive: u32,
    /// The session.
    pub session: SessionKey,
    /// Tells it from another session of the same name.
    pub incarnation: String,
    /// The title, unless it is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The agent it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What it was doing.
    pub status: Status,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Timestamp,
    /// Where each branch ends.
    pub heads: BTreeMap<BranchId, Head>,
    /// Frames in it.
    pub frames: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// The name of the object, beside this entry.
    pub object: String,
    /// BLAKE3 of the object.
    pub hash: Hash,
    /// Set before the archive is removed: its object may be gone already, and repeating the removal finishes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removing: bool,
}

impl ArchiveEntry {
    /// The entry of an object.
    pub(super) fn new(info: &SessionInfo, archived_at: Timestamp, frames: u64, object: &[u8]) -> Self {
        let (header, hash) = (&info.header, hash_of(object));
        let start: String = hash.to_string().chars().take(16).collect();
        Self {
            rekindle_archive: VERSION,
            session: header.key.clone(),
            incarnation: header.incarnation.clone(),
            title: header.title.clone(),
            agent: header.agent.clone(),
            status: info.status(),
            created_at: info.created_at,
            updated_at: info.updated_at(),
            archived_at,
            heads: heads(info),
            frames,
            bytes: object.len() as u64,
            object: format!("{}-{start}.rekindle.jsonl.zst", file_name(&header.incarnation)),
            hash,
            removing: false,
        }
    }

    /// The session whose data key the archive needs, if it is encrypted.
    pub(crate) fn owner(&self) -> KeyOwner {
        KeyOwner { session: self.session.clone(), incarnation: self.incarnation.clone() }
    }

    /// The name of this entry.
    pub(super) fn name(&self) -> String {
        entry_name(&self.session, &self.incarnation)
    }

    /// The name of its object.
    pub(super) fn object_name(&self) -> String {
        format!("{}/{}", folder_of(&self.session), self.object)
    }

    pub(super) fn to_bytes(&self) -> Result<Bytes> {
        let bytes = serde_json::to_vec_pretty(self);
        bytes.map(Bytes::from).map_err(|error| Error::invalid("the entry cannot be written").because(error))
    }

    /// Whatever stands there, an entry leads to nothing but an object beside it.
    fn parse(name: &str, bytes: &[u8]) -> Result<Self> {
        let damaged = |why: String| Error::corrupt(format!("the entry {name} of the archive {why}"));
        if bytes.len() > MAX_ENTRY {
            return Err(damaged("is too large".to_owned()));
        }
        let entry: Self = serde_json::from_slice(bytes).map_err(|error| damaged(format!("cannot be read: {error}")))?;
        if entry.rekindle_archive > VERSION {
            let (found, supported) = (entry.rekindle_archive, VERSION);
            let kind = ErrorKind::VersionTooNew { what: "archive".into(), found, supported };
            return Err(Error::new(kind, format!("archive version {found}; this build reads up to {supported}")));
        }
        match entry.name() == name && !entry.object.contains('/') {
            true => Ok(entry),
            false => Err(damaged(format!("is that of session {}", entry.session))),
        }
    }
}

pub(super) fn hash_of(bytes: &[u8]) -> Hash {
    Hash(*blake3::hash(bytes).as_bytes())
}

/// The folder of a session's archives.
pub(super) fn folder_of(session: &SessionKey) -> String {
    format!("{FOLDER}/{}/{}", file_name(session.namespace.as_str()), file_name(session.id.as_str()))
}

pub(super) fn entry_name(session: &SessionKey, incarnation: &str) -> String {
    format!("{}/{}.json", folder_of(session), file_name(incarnation))
}

/// Reads an entry, if it is there.
pub(super) async fn read(place: &dyn ArchivePlace, name: &str) -> Result<Option<ArchiveEntry>> {
    place.get(name).await?.map(|bytes| ArchiveEntry::parse(name, &bytes)).transpose()
}

/// What is archived.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Archives {
    /// The archives, by the name of the session.
    pub archives: Vec<ArchiveEntry>,
    /// Entries that cannot be read, and why.
    pub damaged: Vec<(String, String)>,
}

/// What of a namespace is archived at a place.
pub async fn archives(place: &dyn ArchivePlace, namespace: &Namespace) -> Result<Archives> {
    let folder = format!("{FOLDER}/{}", file_name(namespace.as_str()));
    let mut found = below(place, &folder).await.map_err(|error| error.during("list archives"))?;
    found.archives.retain(|archive| !archive.removing);
    Ok(found)
}

/// The entries below a folder.
pub(super) async fn below(place: &dyn ArchivePlace, folder: &str) -> Result<Archives> {
    let (mut all, mut after) = (Archives::default(), None::<String>);
    loop {
        let names = place.list(folder, after.as_deref(), PAGE).await?;
        let Some((last, _)) = names.last().cloned() else { break };
        let full = names.len() == PAGE;
        let entries = names.into_iter().map(|(name, _)| name).filter(|name| name.ends_with(".json"));
        let read: Vec<_> = stream::iter(entries.map(|name| async move {
            let entry = read(place, &name).await;
            Ok::<_, Error>((name, entry))
        }))
        .buffered(PARALLEL)
        .try_collect()
        .await?;
        for (name, entry) in read {
            match entry {
                Ok(entry) => all.archives.extend(entry),
                Err(error) if is_about_bytes(&error) => all.damaged.push((name, error.message().to_owned())),
                Err(error) => return Err(error),
            }
        }
        if !full {
            break;
        }
        after = Some(last);
    }
    Ok(all)
}

fn is_about_bytes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_entries() {
        let session: SessionKey = rekindle_core::SessionId::new("a").unwrap().into();
        let header =
            rekindle_core::SessionHeader { incarnation: "first".into(), ..rekindle_core::SessionHeader::new(session) };
        let info = rekindle_core::NewSession::new(header).session_info(Timestamp(5));
        let entry = ArchiveEntry::new(&info, Timestamp(9), 3, b"object");
        let name = entry.name();
        rekindle_fuzz::fuzz!("archive-entry").seeds([entry.to_bytes().unwrap().to_vec()]).bytes(|bytes| {
            let read = ArchiveEntry::parse(&name, bytes).ok()?;
            assert!(read.object_name().starts_with(&folder_of(&info.header.key)) && !read.object.contains('/'));
            assert_eq!(ArchiveEntry::parse(&name, &read.to_bytes().unwrap()).unwrap(), read);
            Some(())
        });
    }
}
