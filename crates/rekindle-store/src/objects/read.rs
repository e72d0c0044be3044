//! Pages of frames.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use rekindle_core::codec::Frame;
use rekindle_core::{
    BranchId, Damage, DamageKind, FramePage, Hash, Marks, PAGE_BYTES, ReadFrames, Result, Section, Seq, Slot,
};

use super::change::Entry;
use super::layout::Folder;
use super::segment::Segment;
use super::state::{Piece, Pieces, State};
use super::store::Inner;

/// Frames of one object this close together are read by one request.
const NEAR: u64 = 128 << 10;
/// No request reads more than this, unless one frame is larger.
const LARGEST_READ: u64 = 4 << 20;
const READS_AT_ONCE: usize = 8;
const MISFIT: &str = "the index does not fit the frame";

/// A frame of a page: at hand, somewhere, or lost.
enum Wanted {
    Here(Frame),
    Read(Slot),
    At { object: String, start: u64, entry: Entry },
    Lost(Damage),
}

/// What a read found out.
pub(super) enum Outcome {
    Page(FramePage),
    /// An object is not where the state says: perhaps the state is old by now.
    Moved,
}

impl Inner {
    /// The page that `read` asks for. An object that is missing is damage only if `certain`.
    pub(super) async fn page(
        &self,
        folder: &Folder,
        state: &State,
        read: &ReadFrames,
        certain: bool,
    ) -> Result<Outcome> {
        let Some((wanted, more)) = self.wanted(folder, state, read, certain).await? else {
            return Ok(Outcome::Moved);
        };
        let mut slots = Vec::new();
        for some in grouped(wanted).chunks(READS_AT_ONCE) {
            let reads: Vec<_> = some.iter().map(|group| self.fetch(read, group, certain)).collect();
            for found in try_join_all(reads).await? {
                let Some(found) = found else { return Ok(Outcome::Moved) };
                slots.extend(found);
            }
        }
        Ok(Outcome::Page(FramePage { slots, more }))
    }

    /// The frames of a page, in the order asked for, and whether there are more; nothing if a
    /// segment is not there.
    async fn wanted(
        &self,
        folder: &Folder,
        state: &State,
        read: &ReadFrames,
        certain: bool,
    ) -> Result<Option<(Vec<Wanted>, bool)>> {
        let pieces = state.pieces.get(&read.branch).map_or(&[][..], |pieces: &Pieces| pieces.section(read.section));
        let start = pieces.partition_point(|piece| piece.span().1 < read.from);
        let end = pieces.partition_point(|piece| piece.span().0 <= read.through).max(start);
        let mut ordered: Vec<&Piece> = pieces[start..end].iter().collect();
        if read.newest_first {
            ordered.reverse();
        }
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        for piece in ordered {
            let Some(found) = self.frames_in(folder, piece, read, certain).await? else { return Ok(None) };
            for (len, frame) in found {
                if wanted.len() == read.limit || bytes >= PAGE_BYTES as u64 {
                    return Ok(Some((wanted, true)));
                }
                bytes = len.saturating_add(bytes);
                wanted.push(frame);
            }
        }
        Ok(Some((wanted, false)))
    }

    /// The frames of a piece that are asked for, with their sizes.
    async fn frames_in(
        &self,
        folder: &Folder,
        piece: &Piece,
        read: &ReadFrames,
        certain: bool,
    ) -> Result<Option<Vec<(u64, Wanted)>>> {
        match piece {
            Piece::Logged { number, start, entry, frame } => {
                let wanted = match frame {
                    Some(frame) if !entry.fits(frame) => Wanted::Lost(damage(read, entry, DamageKind::Index, MISFIT)),
                    Some(frame) => Wanted::Here(frame.clone()),
                    None => Wanted::At { object: folder.log(*number), start: *start, entry: *entry },
                };
                let asked = read.wants(entry.first, entry.last, entry.marks);
                Ok(Some(asked.then_some((entry.len, wanted)).into_iter().collect()))
            }
            Piece::Segment(segment) => {
                if read.marks != Marks::NONE && !read.marks.intersects(segment.marks) {
                    return Ok(Some(Vec::new()));
                }
                if self.is_read_whole(folder, segment, read).await {
                    return self.whole_segment(folder, segment, read, certain).await;
                }
                match self.index_of(folder, segment).await {
                    Ok(Some(entries)) => Ok(Some(selected(folder, segment, &entries, read))),
                    Ok(None) if !certain => Ok(None),
                    Ok(None) => Ok(Some(vec![lost(read, segment, DamageKind::Missing, "the segment is missing")])),
                    Err(error) if *error.kind() == rekindle_core::ErrorKind::Corrupt => {
                        Ok(Some(vec![lost(read, segment, DamageKind::Checksum, error.message())]))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Returns true if a page takes all of a segment that is at hand, or of which nothing is known: then one request
    /// is better than two.
    async fn is_read_whole(&self, folder: &Folder, segment: &Segment, read: &ReadFrames) -> bool {
        let all = read.from <= segment.first
            && segment.last <= read.through
            && read.marks == Marks::NONE
            && segment.cut < segment.first
            && segment.count <= read.limit as u64
            && segment.bytes <= LARGEST_READ;
        let name = folder.segment(&segment.name);
        let index = self.indexes.get_or_make(&name, Arc::default);
        all && (self.segments.get(&name).is_some() || index.lock().await.is_none())
    }

    /// All frames of a segment, by one request.
    async fn whole_segment(
        &self,
        folder: &Folder,
        segment: &Segment,
        read: &ReadFrames,
        certain: bool,
    ) -> Result<Option<Vec<(u64, Wanted)>>> {
        let name = folder.segment(&segment.name);
        let read_now = match self.segments.get(&name) {
            Some(bytes) => Some(bytes),
            None => self.bucket.get(&name).await?,
        };
        let Some(bytes) = read_now else {
            let gone = || vec![lost(read, segment, DamageKind::Missing, "the segment is missing")];
            return Ok(certain.then(gone));
        };
        let index = segment.index();
        let (start, end) = (index.start as usize, (index.end as usize).min(bytes.len()));
        let entries = match segment.read_index(&bytes.slice(start.min(end)..end)) {
            Ok(entries) => Arc::new(entries),
            Err(error) => return Ok(Some(vec![lost(read, segment, DamageKind::Checksum, error.message())])),
        };
        *self.indexes.get_or_make(&name, Arc::default).lock().await = Some(entries.clone());
        let frames = bytes.slice(..start.min(bytes.len()));
        let slots: Vec<Slot> = entries.iter().map(|entry| slot_of(read, entry, Some(&frames), 0)).collect();
        // Damage is looked at again each time: somebody may have put the object right.
        if slots.iter().all(|slot| matches!(slot, Slot::Whole(_))) {
            self.segments.put(&name, bytes);
        }
        let mut found: Vec<_> =
            entries.iter().zip(slots).map(|(entry, slot)| (entry.len, Wanted::Read(slot))).collect();
        if read.newest_first {
            found.reverse();
        }
        Ok(Some(found))
    }

    /// The index of a segment; nothing if it is not there.
    pub(super) async fn index_of(&self, folder: &Folder, segment: &Segment) -> Result<Option<Arc<Vec<Entry>>>> {
        let name = folder.segment(&segment.name);
        let slot = self.indexes.get_or_make(&name, Arc::default);
        let mut slot = slot.lock().await;
        if let Some(entries) = slot.as_ref() {
            return Ok(Some(entries.clone()));
        }
        let Some(bytes) = self.bucket.get_range(&name, segment.index()).await? else { return Ok(None) };
        let entries = Arc::new(segment.read_index(&bytes)?);
        *slot = Some(entries.clone());
        Ok(Some(entries))
    }

    /// The hash of the frame of a branch's history that ends at `seq`, if there is one.
    pub(super) async fn hash_at(
        &self,
        folder: &Folder,
        state: &State,
        branch: &BranchId,
        seq: Seq,
    ) -> Result<Option<Hash>> {
        let pieces = state.pieces.get(branch).map_or(&[][..], |pieces| pieces.section(Section::History));
        let at = pieces.partition_point(|piece| piece.span().1 < seq);
        let hash = |entry: &Entry| (entry.last == seq).then_some(entry.hash);
        match pieces.get(at) {
            None => Ok(None),
            Some(Piece::Logged { entry, .. }) => Ok(hash(entry)),
            Some(Piece::Segment(segment)) => {
                let entries = self.index_of(folder, segment).await?;
                Ok(entries.and_then(|entries| entries.iter().filter(|entry| entry.last > segment.cut).find_map(hash)))
            }
        }
    }

    /// Reads frames that lie next to each other; nothing if their object is not there.
    async fn fetch(&self, read: &ReadFrames, group: &Group, certain: bool) -> Result<Option<Vec<Slot>>> {
        let Run { object, start, entries } = match group {
            Group::One(slot) => return Ok(Some(vec![slot.clone()])),
            Group::Run(run) => run,
        };
        let from = entries.iter().map(|entry| entry.offset).min().unwrap_or(0);
        let to = entries.iter().map(Entry::end).max().unwrap_or(0);
        let bytes = match from < to {
            true => self.bucket.get_range(object, start.saturating_add(from)..start.saturating_add(to)).await?,
            false => Some(Bytes::new()),
        };
        if bytes.is_none() && !certain {
            return Ok(None);
        }
        Ok(Some(entries.iter().map(|entry| slot_of(read, entry, bytes.as_ref(), from)).collect()))
    }
}

/// A frame in `bytes`, which begin at `from` of the object's frames; nothing if there is no object.
fn slot_of(read: &ReadFrames, entry: &Entry, bytes: Option<&Bytes>, from: u64) -> Slot {
    let Some(bytes) = bytes else {
        return Slot::Damaged(damage(read, entry, DamageKind::Missing, "the object is missing"));
    };
    let at = usize::try_from(entry.offset.saturating_sub(from)).unwrap_or(usize::MAX);
    let Some(found) = bytes.get(at..at.saturating_add(entry.len as usize)) else {
        return Slot::Damaged(damage(read, entry, DamageKind::Missing, "the object is cut off"));
    };
    // Copied: a slice would keep its neighbours in memory.
    match Frame::from_bytes(Bytes::copy_from_slice(found)) {
        Ok(frame) if frame.hash == entry.hash => match entry.fits(&frame) {
            true => Slot::Whole(frame),
            false => Slot::Damaged(damage(read, entry, DamageKind::Index, MISFIT)),
        },
        Ok(_) => Slot::Damaged(damage(read, entry, DamageKind::Chain, "another frame stands there")),
        Err(error) => Slot::Damaged(Damage::of_frame(error, read.branch.clone(), entry.first, entry.last)),
    }
}

fn damage(read: &ReadFrames, entry: &Entry, kind: DamageKind, detail: &str) -> Damage {
    Damage::new(kind, read.branch.clone(), entry.first, entry.last, detail)
}

fn lost(read: &ReadFrames, segment: &Segment, kind: DamageKind, detail: &str) -> (u64, Wanted) {
    let first = segment.first.max(segment.cut.next());
    let detail = format!("{detail} ({})", segment.name);
    (0, Wanted::Lost(Damage::new(kind, read.branch.clone(), first, segment.last, detail)))
}

fn selected(folder: &Folder, segment: &Segment, entries: &[Entry], read: &ReadFrames) -> Vec<(u64, Wanted)> {
    let asked = entries.iter().filter(|entry| entry.last > segment.cut);
    let asked = asked.filter(|entry| read.wants(entry.first, entry.last, entry.marks));
    let object = folder.segment(&segment.name);
    let mut found: Vec<_> =
        asked.map(|entry| (entry.len, Wanted::At { object: object.clone(), start: 0, entry: *entry })).collect();
    if read.newest_first {
        found.reverse();
    }
    found
}

/// What one step of a page reads.
enum Group {
    One(Slot),
    Run(Run),
}

/// Frames of one object that one request reads.
struct Run {
    object: String,
    start: u64,
    entries: Vec<Entry>,
}

impl Run {
    /// Whether `entry` of the same object is near enough to be read along.
    fn takes(&self, object: &str, entry: &Entry) -> bool {
        let from = self.entries.iter().map(|entry| entry.offset).min().unwrap_or(0);
        let to = self.entries.iter().map(Entry::end).max().unwrap_or(0);
        let gap = entry.offset.saturating_sub(to).max(from.saturating_sub(entry.end()));
        self.object == object && gap <= NEAR && entry.end().max(to) - entry.offset.min(from) <= LARGEST_READ
    }
}

/// Frames that one request can read, together; the order stays.
fn grouped(wanted: Vec<Wanted>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for frame in wanted {
        match frame {
            Wanted::Read(slot) => groups.push(Group::One(slot)),
            Wanted::Here(frame) => groups.push(Group::One(Slot::Whole(frame))),
            Wanted::Lost(damage) => groups.push(Group::One(Slot::Damaged(damage))),
            Wanted::At { object, start, entry } => match groups.last_mut() {
                Some(Group::Run(run)) if run.takes(&object, &entry) => run.entries.push(entry),
                _ => groups.push(Group::Run(Run { object, start, entries: vec![entry] })),
            },
        }
    }
    groups
}
