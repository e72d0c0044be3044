//! A session as the log says it is: a snapshot, and the changes behind it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rekindle_core::codec::Frame;
use rekindle_core::{BranchId, Error, Result, Section, Seq, SessionInfo, SessionKey};
use serde::{Deserialize, Serialize};

use super::carry;
use super::change::{Added, Change, Entry};
use super::envelope;
use super::layout::{Folder, LARGEST_NUMBER, hex, parse_hex};
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
    /// The last changes as they were written, for those to come.
    pub(super) group: carry::Recent,
    /// The last change after which frames that were there before no longer count, or another session began.
    pub(super) reshaped: u64,
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
    /// A name without a session, whose changes up to `number` count no more.
    pub(super) fn gone(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

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
            group: carry::Recent::default(),
            reshaped: 0,
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
        self.group.push(self.number, alone(&change, bytes, start));
        if change.removed || change.created.is_some() || change.dropped.is_some() || change.trimmed.is_some() {
            self.reshaped = self.number;
        }
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
            Some(info) => Err(another(info).during(operation).on(key)),
            None => Err(Error::not_found("there is no such session").during(operation).on(key)),
        }
    }

    /// Fails if the objects in a folder are those of a session that belongs into another one. Taken for a session
    /// that is gone, it would be left out of lists.
    pub(super) fn check_folder(&self, folder: &Folder) -> Result<()> {
        match self.info.as_ref().filter(|info| Folder::of(&info.header.key) != *folder) {
            Some(info) => Err(another(info)),
            None => Ok(()),
        }
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

fn another(info: &SessionInfo) -> Error {
    Error::corrupt(format!("the objects of this session hold the session {}", info.header.key))
}

/// The envelope and the frames of a change, without what its object carries along; nothing if they are not all
/// in `bytes`, or too large to be carried on.
fn alone(change: &Change, bytes: &Bytes, start: usize) -> Option<Bytes> {
    let end = change.end(start).filter(|end| *end <= carry::MOST_BYTES)?;
    // Copied: a slice would keep the whole object in memory.
    bytes.get(..end).map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::change::Draft;
    use rekindle_core::codec::{Codec, Place, Stamp};
    use rekindle_core::record::RegisterSet;
    use rekindle_core::{Hash, Head, Json, Marks, SessionHeader};

    fn info() -> SessionInfo {
        let key: SessionKey = rekindle_core::SessionId::new("a").unwrap().into();
        rekindle_core::NewSession::new(SessionHeader::new(key)).session_info(rekindle_core::Timestamp(5))
    }

    fn segment() -> Segment {
        let (first, last) = (Seq(1), Seq(9));
        Segment { name: "s".into(), first, last, marks: Marks::NONE, count: 3, bytes: 300, cut: Seq::ZERO }
    }

    fn snapshot() -> Bytes {
        let pieces = Pieces { history: vec![Piece::Segment(segment())], base: vec![Piece::Segment(segment())] };
        let state = State {
            number: 7,
            info: Some(info()),
            catalog: Some("entry".into()),
            pieces: [(BranchId::main(), pieces)].into(),
            recent: [[1; 16], [2; 16]].into(),
            ..State::default()
        };
        state.to_snapshot(&[3; 16]).unwrap()
    }

    /// A session that begins, a commit, a branch that is trimmed, and the end.
    fn changes() -> Vec<Vec<u8>> {
        let (key, main) = (info().header.key, BranchId::main());
        let record = RegisterSet::new("k".parse().unwrap(), Json::from("v")).into();
        let stamp = Stamp {
            after: Head { seq: Seq(0), hash: Hash::default() },
            at: rekindle_core::Timestamp(1),
            nonce: [1; 16],
        };
        let frame = Codec::new().encode(Place { session: &key, branch: &main }, stamp, &[record]).unwrap();
        let mut branch = info().branches[0].clone();
        branch.base = Some(Head { seq: Seq(4), hash: Hash::default() });
        let changes = [
            Change { created: Some(Box::new(info())), catalog: Some("entry".into()), ..Change::default() },
            Change { branch: Some(branch.clone()), trimmed: Some(main.clone()), ..Change::default() },
            Change { dropped: Some(main.clone()), current: Some(main.clone()), ..Change::default() },
            Change { removed: true, ..Change::default() },
        ];
        let drafts = changes
            .into_iter()
            .map(|change| Draft::new(change).with_frames(&main, false, std::slice::from_ref(&frame)));
        drafts.map(|draft| draft.to_bytes(&[4; 16]).unwrap().to_vec()).collect()
    }

    #[test]
    fn fuzzed_snapshots() {
        rekindle_fuzz::fuzz!("object-snapshot").seeds([snapshot().to_vec()]).repair(envelope::repaired).bytes(
            |bytes| {
                let state = State::from_snapshot(3, "heads/3", &bytes.to_vec().into()).ok()?;
                for segment in state.segments() {
                    let _ = segment.index();
                }
                for piece in state.pieces.values().flat_map(|pieces| &pieces.history) {
                    let _ = piece.span();
                }
                let _ = state.session(&info().header.key, "open");
                let again = State::from_snapshot(3, "heads/3", &state.to_snapshot(&[3; 16]).unwrap()).unwrap();
                assert_eq!((again.info, again.through, again.recent), (state.info, state.number, state.recent));
                Some(())
            },
        );
    }

    #[test]
    fn fuzzed_changes() {
        let words = ["\"removed\":true", "\"dropped\":\"main\"", "\"trimmed\":\"main\"", "\"offset\":", "\"len\":"];
        let fuzz = rekindle_fuzz::fuzz!("object-change").seeds(changes()).words(words).repair(envelope::repaired);
        fuzz.bytes(|bytes| {
            let bytes: Bytes = bytes.to_vec().into();
            let (nonce, change, start) = envelope::decode::<Change>("log/1", &bytes).ok()?;
            for mut state in [State::default(), State::from_snapshot(3, "heads/3", &snapshot()).unwrap()] {
                state.fold(nonce, change.clone(), &bytes, start);
                assert!(state.remembers(&nonce));
                for piece in state.pieces.values().flat_map(|pieces| &pieces.history) {
                    let _ = piece.span();
                }
            }
            Some(())
        });
    }
}
