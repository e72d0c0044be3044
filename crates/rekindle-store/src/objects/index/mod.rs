//! The index of a namespace: what lists show of each session, so that a page takes a few requests however many
//! sessions there are.
//!
//! ```text
//! index/<namespace>/root             the lines that changed last, and the chunks
//! index/<namespace>/chunks/<nonce>   lines by creation; never changed, only replaced
//! marks/<namespace>/<time>-<nonce>-<session>   a process may have changed this session since its line was written
//! ```
//!
//! A line is exactly what its session is unless there is a mark for it: a process marks a session before its first
//! change, and takes its mark back only after a line that holds all its changes was written. Whoever lists reads
//! marked sessions themselves. The catalogue stays what says which sessions exist; an index that is missing or
//! damaged is made anew from it. `docs/design/0008-object-storage.md` argues why that is enough.

mod chunks;
mod marks;
mod pages;
mod root;

use rekindle_core::{Namespace, SessionInfo, Timestamp, file_name};
use serde::{Deserialize, Serialize};

pub(super) use marks::Marks;
pub(super) use root::Roots;

use super::layout::hex;
use crate::names::from_file_name;

/// A line with a longer description of its session is left empty: the session is read instead.
const LONGEST_LINE: usize = 16 << 10;

/// One creation of a session: a session that was removed and made again has another key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct LineKey {
    pub(super) created_at: Timestamp,
    /// The encoded id of the session.
    pub(super) name: String,
}

/// What the index says of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) key: LineKey,
    /// The last change of the session that it holds.
    pub(super) number: u64,
    /// The session; nothing if it was removed, or is too large to stand here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) info: Option<Box<SessionInfo>>,
    /// When it was noted that the session is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed_at: Option<Timestamp>,
}

impl Line {
    /// What a session is after its change `number`.
    pub(super) fn new(key: LineKey, number: u64, info: &SessionInfo) -> Self {
        let fits = serde_json::to_vec(info).is_ok_and(|json| json.len() <= LONGEST_LINE);
        Self { key, number, info: fits.then(|| Box::new(info.clone())), removed_at: None }
    }

    /// The session is gone since its change `number`.
    pub(super) fn removed(key: LineKey, number: u64, at: Timestamp) -> Self {
        Self { key, number, info: None, removed_at: Some(at) }
    }
}

pub(super) fn root_name(namespace: &Namespace) -> String {
    format!("index/{}/root", file_name(namespace.as_str()))
}

fn chunk_name(namespace: &Namespace, nonce: &[u8; 16]) -> String {
    format!("index/{}/chunks/{}", file_name(namespace.as_str()), hex(nonce))
}

/// The namespace whose index a chunk belongs to.
pub(super) fn namespace_of_chunk(name: &str) -> Option<Namespace> {
    let (namespace, _) = name.strip_prefix("index/")?.split_once("/chunks/")?;
    Namespace::new(from_file_name(namespace)?).ok()
}

fn marks_folder(namespace: &Namespace) -> String {
    format!("marks/{}", file_name(namespace.as_str()))
}

fn mark_name(namespace: &Namespace, key: &LineKey, nonce: &[u8; 16]) -> String {
    format!("{}/{:016x}-{}-{}", marks_folder(namespace), key.created_at.0, hex(nonce), key.name)
}
