//! A change of a session: one object of its log. It says what the session is afterwards, not what
//! was asked for, so reading it needs no clock and no rules.

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{BranchId, BranchInfo, Hash, Marks, Result, Seq, SessionHeader, SessionInfo};
use serde::{Deserialize, Serialize};

use super::envelope;

/// Where a frame lies in an object, and what is known of it without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) first: Seq,
    pub(super) last: Seq,
    #[serde(default)]
    pub(super) marks: Marks,
    pub(super) hash: Hash,
    /// From the start of the object's frames.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Entry {
    pub(super) fn of(frame: &Frame, offset: u64) -> Self {
        let len = frame.stored_len() as u64;
        Self { first: frame.first, last: frame.last, marks: frame.marks, hash: frame.hash, offset, len }
    }

    /// Returns whether the entry agrees with the frame itself.
    pub(super) fn fits(&self, frame: &Frame) -> bool {
        (self.first, self.last, self.marks, self.hash) == (frame.first, frame.last, frame.marks, frame.hash)
    }

    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// A frame that a change adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Added {
    pub(super) branch: BranchId,
    #[serde(default)]
    pub(super) base: bool,
    #[serde(flatten)]
    pub(super) entry: Entry,
}

/// What a change makes of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// The session begins, as this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Box<SessionInfo>>,
    /// Its entry in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) catalog: Option<String>,
    /// The session ends.
    pub(super) removed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header: Option<Box<SessionHeader>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<BranchId>,
    /// A branch as it is from now on; perhaps a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<BranchInfo>,
    /// A branch that ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<BranchId>,
    /// A branch whose history up to its base goes, and whose base is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trimmed: Option<BranchId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frames: Vec<Added>,
}

impl Change {
    /// Where its frames end in its object, if they begin at `start`.
    pub(super) fn end(&self, start: usize) -> Option<usize> {
        let frames = self.frames.iter().map(|added| added.entry.end()).max().unwrap_or(0);
        start.checked_add(usize::try_from(frames).ok()?)
    }
}

/// A change to write, with its frames.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) change: Change,
    pub(super) frames: Vec<Frame>,
    bytes: u64,
}

impl Draft {
    pub(super) fn new(change: Change) -> Self {
        Self { change, frames: Vec::new(), bytes: 0 }
    }

    #[must_use]
    pub(super) fn with_frames(mut self, branch: &BranchId, base: bool, frames: &[Frame]) -> Self {
        for frame in frames {
            let entry = Entry::of(frame, self.bytes);
            self.bytes = entry.end();
            self.change.frames.push(Added { branch: branch.clone(), base, entry });
            self.frames.push(frame.clone());
        }
        self
    }

    pub(super) fn to_bytes(&self, nonce: &[u8; 16]) -> Result<Bytes> {
        let mut out = envelope::encode(nonce, &self.change, self.bytes as usize)?;
        for frame in &self.frames {
            out.extend_from_slice(&frame.to_bytes());
        }
        Ok(out.freeze())
    }
}
