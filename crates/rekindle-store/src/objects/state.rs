//! A session as the log says it is: a snapshot, and the changes behind it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{BranchId, Error, Result, Section, Seq, SessionInfo, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::change::{Added, Change, Entry};
use super::envelope;
use super::layout::{LARGEST_NUMBER, hex, parse_hex};
use super::segment::Segment;

/// How many changes a snapshot remembers by nonce, so that a writer that was overtaken by it can
/// tell whether its change is in it.
const REMEMBERED: usize = 512;
/// Frames up to this size stay in memory until they are merged.
const SMALL_FRAME: u64 = 16 << 10;

/// Where frames lie.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Segment(Segment),
    /// One frame in the change of that number, at `start` of its object.
    Logged {
        number: u64,
        start: u64,
        entry: Entry,
        frame: Option<Frame>,
    },
}

impl Piece {
    pub(super) fn span(&self) -> (Seq, Seq) {
        match self {
            Self::Segment(segment) => (segment.first.max(segment.cut.next()), segment.last),
            Self::Logged { entry, .. } => (entry.first, entry.last),
        }
    }
}

/// Where the frames of one branch lie, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub(super) history: Vec<Piece>,
    pub(super) base: Vec<Piece>,
}

impl Pieces {
    pub(super) fn section(&self, section: Section) -> &[Piece] {
        match section {
            Section::History => &self.history,
            Section::Base => &self.base,
        }
    }

    /// Lets go of everything up to `base`, and of the base there was.
    fn trim(&mut self, base: Seq) {
        self.base.clear();
        self.history.retain(|piece| piece.span().1 > base);
        for piece in &mut self.history {
            if let Piece::Segment(segment) = piece
                && segment.first <= base
            {
                segment.cut = base;
            }
        }
    }
}

/// A session at a change.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The snapshot it rests on, and its nonce; 0 if the name was never used.
    pub(super) head: u64,
    pub(super) head_nonce: [u8; 16],
    /// The last change that is in the snapshot.
    pub(super) through: u64,
    /// The last change.
    pub(super) number: u64,
    /// Nothing if there is no session of that name, or none any more.
    pub(super) info: Option<SessionInfo>,
    /// Its entry in the catalogue; of the session that was removed, until it is cleared away.
    pub(super) catalog: Option<String>,
    pub(super) pieces: BTreeMap<BranchId, Pieces>,
    recent: VecDeque<[u8; 16]>,
}

/// A snapshot as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Snapshot {
    through: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<SessionInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catalog: Option<String>,
    #[serde(default)]
    branches: BTreeMap<BranchId, Segments>,
    #[serde(default)]
    recent: VecDeque<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Segments {
    history: Vec<Segment>,
    base: Vec<Segment>,
}

impl State {
    /// Reads a snapshot.
    pub(super) fn from_snapshot(head: u64, name: &str, bytes: &Bytes) -> Result<Self> {
        let (head_nonce, snapshot, _) = envelope::decode::<Snapshot>(name, bytes)?;
        if snapshot.through > LARGEST_NUMBER {
            return Err(Error::corrupt(format!("the object `{name}` names an impossible change")));
        }
        let whole = |segments: Vec<Segment>| segments.into_iter().map(Piece::Segment).collect();
        let pieces = snapshot.branches.into_iter().map(|(branch, segments)| {
            (branch, Pieces { history: whole(segments.history), base: whole(segments.base) })
        });
        Ok(Self {
            head,
            head_nonce,
            through: snapshot.through,
            number: snapshot.through,
            info: snapshot.info,
            catalog: snapshot.catalog,
            pieces: pieces.collect(),
            recent: snapshot.recent.iter().filter_map(|text| parse_hex(text)).collect(),
        })
    }

    /// The snapshot of this state. Every piece must be a segment.
    pub(super) fn to_snapshot(&self, nonce: &[u8; 16]) -> Result<Bytes> {
        let segments = |pieces: &[Piece]| -> Result<Vec<Segment>> {
            let segment = |piece: &Piece| match piece {
                Piece::Segment(segment) => Ok(segment.clone()),
                Piece::Logged { number, .. } => Err(Error::invalid(format!("change {number} was not merged"))),
            };
            pieces.iter().map(segment).collect()
        };
        let branches = self.pieces.iter().map(|(branch, pieces)| {
            let segments = Segments { history: segments(&pieces.history)?, base: segments(&pieces.base)? };
            Ok((branch.clone(), segments))
        });
        let snapshot = Snapshot {
            through: self.number,
            info: self.info.clone(),
            catalog: self.catalog.clone(),
            branches: branches.collect::<Result<_>>()?,
            recent: self.recent.iter().map(hex).collect(),
        };
        Ok(envelope::encode(nonce, &snapshot, 0)?.freeze())
    }

    /// Takes over the next change. `bytes` is its object or the beginning of it, `start` where
    /// its frames begin.
    pub(super) fn fold(&mut self, nonce: [u8; 16], change: Change, bytes: &Bytes, start: usize) {
        self.number += 1;
        self.recent.push_back(nonce);
        while self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
        if change.removed {
            self.info = None;
            self.pieces.clear();
            return;
        }
        if let Some(created) = change.created {
            self.pieces = created.branches.iter().map(|info| (info.branch.clone(), Pieces::default())).collect();
            self.info = Some(*created);
            self.catalog = change.catalog;
        }
        let Some(info) = &mut self.info else { return };
        if let Some(header) = change.header {
            info.header = *header;
        }
        if let Some(current) = change.current {
            info.current = current;
        }
        if let Some(changed) = change.branch {
            self.pieces.entry(changed.branch.clone()).or_default();
            match info.branches.iter_mut().find(|branch| branch.branch == changed.branch) {
                Some(branch) => *branch = changed,
                None => info.branches.push(changed),
            }
        }
        if let Some(dropped) = change.dropped {
            info.branches.retain(|branch| branch.branch != dropped);
            self.pieces.remove(&dropped);
        }
        if let Some(trimmed) = change.trimmed
            && let Some(base) = info.branches.iter().find(|branch| branch.branch == trimmed).and_then(|info| info.base)
        {
            self.pieces.entry(trimmed).or_default().trim(base.seq);
        }
        for added in change.frames {
            self.add(added, bytes, start);
        }
    }

    fn add(&mut self, added: Added, bytes: &Bytes, start: usize) {
        let Added { branch, base, entry } = added;
        let held = |offset: u64| usize::try_from(offset).ok()?.checked_add(start);
        let frame = (entry.len <= SMALL_FRAME)
            .then(|| {
                let (from, to) = (held(entry.offset)?, held(entry.end())?);
                // Copied: a slice would keep the whole object in memory.
                let frame = Frame::from_bytes(Bytes::copy_from_slice(bytes.get(from..to)?)).ok()?;
                (frame.hash == entry.hash).then_some(frame)
            })
            .flatten();
        let piece = Piece::Logged { number: self.number, start: start as u64, entry, frame };
        let pieces = self.pieces.entry(branch).or_default();
        match base {
            true => pieces.base.push(piece),
            false => pieces.history.push(piece),
        }
    }

    /// Whether the change with that nonce is among the last ones.
    pub(super) fn remembers(&self, nonce: &[u8; 16]) -> bool {
        self.recent.contains(nonce)
    }

    /// The session, or the error of `operation` that there is none.
    pub(super) fn session(&self, key: &SessionKey, operation: &'static str) -> Result<&SessionInfo> {
        match &self.info {
            Some(info) if info.header.key == *key => Ok(info),
            Some(info) => {
                let message = format!("the objects of this session hold the session {}", info.header.key);
                Err(Error::corrupt(message).during(operation).on(key))
            }
            None => Err(Error::not_found("there is no such session").during(operation).on(key)),
        }
    }

    pub(super) fn seen(&self, key: &SessionKey, operation: &'static str, now: Timestamp) -> Result<SessionInfo> {
        Ok(SessionInfo { observed_at: now, ..self.session(key, operation)?.clone() })
    }

    /// The segments it rests on.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Segment> {
        let all = self.pieces.values().flat_map(|pieces| pieces.history.iter().chain(&pieces.base));
        all.filter_map(|piece| match piece {
            Piece::Segment(segment) => Some(segment),
            Piece::Logged { .. } => None,
        })
    }
}
