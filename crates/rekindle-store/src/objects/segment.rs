//! Segments: frames of one branch, merged into one object, with an index behind them.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rekindle_core::{Error, Hash, Marks, Result, Seq};
use serde::{Deserialize, Serialize};

use super::change::Entry;

/// How large a segment grows before the next one begins. One frame may be larger.
pub(super) const SEGMENT_BYTES: u64 = 4 << 20;
/// The bytes of one line of the index.
const LINE: usize = 65;
/// The hash behind the index.
const SUM: usize = 32;

/// A segment as a snapshot knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) first: Seq,
    pub(super) last: Seq,
    #[serde(default)]
    pub(super) marks: Marks,
    /// How many frames.
    pub(super) count: u64,
    /// The bytes of its frames; the index begins there.
    pub(super) bytes: u64,
    /// Frames that end here or earlier do not count any more.
    #[serde(default)]
    pub(super) cut: Seq,
}

impl Segment {
    /// Where its index lies.
    pub(super) fn index(&self) -> std::ops::Range<u64> {
        let len = self.count.saturating_mul(LINE as u64).saturating_add(SUM as u64);
        self.bytes..self.bytes.saturating_add(len)
    }

    pub(super) fn read_index(&self, bytes: &Bytes) -> Result<Vec<Entry>> {
        let damaged = || Error::corrupt(format!("the index of the segment `{}` is damaged", self.name));
        let lines = bytes.len().checked_sub(SUM).ok_or_else(damaged)?;
        if Hash::of(&bytes[..lines]).0 != bytes[lines..] || lines as u64 != self.count.saturating_mul(LINE as u64) {
            return Err(damaged());
        }
        let mut lines = bytes.slice(..lines);
        let mut entries = Vec::with_capacity(lines.len() / LINE);
        while lines.has_remaining() {
            let (first, last) = (Seq(lines.get_u64_le()), Seq(lines.get_u64_le()));
            let (offset, len) = (lines.get_u64_le(), lines.get_u64_le());
            let marks = Marks(lines.get_u8());
            let mut hash = Hash::default();
            lines.copy_to_slice(&mut hash.0);
            entries.push(Entry { first, last, marks, hash, offset, len });
        }
        Ok(entries)
    }
}

/// A segment in the making.
#[derive(Debug, Default)]
pub(super) struct Builder {
    frames: BytesMut,
    entries: Vec<Entry>,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() as u64 >= SEGMENT_BYTES
    }

    pub(super) fn push(&mut self, entry: &Entry, frame: &[u8]) {
        self.entries.push(Entry { offset: self.frames.len() as u64, len: frame.len() as u64, ..*entry });
        self.frames.put_slice(frame);
    }

    /// What a snapshot says of it, and its bytes.
    pub(super) fn finish(self, name: String) -> (Segment, Bytes) {
        let Self { mut frames, entries } = self;
        let segment = Segment {
            name,
            first: entries.first().map_or(Seq::ZERO, |entry| entry.first),
            last: entries.last().map_or(Seq::ZERO, |entry| entry.last),
            marks: entries.iter().fold(Marks::NONE, |marks, entry| marks | entry.marks),
            count: entries.len() as u64,
            bytes: frames.len() as u64,
            cut: Seq::ZERO,
        };
        let mut index = BytesMut::with_capacity(entries.len() * LINE);
        for entry in entries {
            index.put_u64_le(entry.first.0);
            index.put_u64_le(entry.last.0);
            index.put_u64_le(entry.offset);
            index.put_u64_le(entry.len);
            index.put_u8(entry.marks.0);
            index.put_slice(&entry.hash.0);
        }
        let sum = Hash::of(&index);
        frames.put_slice(&index);
        frames.put_slice(&sum.0);
        (segment, frames.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_back_and_damage_is_noticed() {
        let mut builder = Builder::default();
        for n in 1..4 {
            let entry =
                Entry { first: Seq(n), last: Seq(n), marks: Marks(n as u8), hash: Hash::of(b"x"), offset: 9, len: 9 };
            builder.push(&entry, &[n as u8; 10]);
        }
        let (segment, bytes) = builder.finish("s".to_owned());
        let range = segment.index();
        assert_eq!(range.end, bytes.len() as u64);
        let index = bytes.slice(range.start as usize..);
        let entries = segment.read_index(&index).unwrap();
        assert_eq!(
            entries.iter().map(|entry| (entry.offset, entry.len)).collect::<Vec<_>>(),
            [(0, 10), (10, 10), (20, 10)]
        );
        assert_eq!(segment.marks, Marks(3));
        for at in 0..index.len() {
            let mut damaged = index.to_vec();
            damaged[at] ^= 1;
            assert!(segment.read_index(&damaged.into()).is_err(), "{at}");
            assert!(segment.read_index(&index.slice(..at)).is_err(), "{at}");
        }
    }

    #[test]
    fn fuzzed_indexes() {
        let mut builder = Builder::default();
        for n in 1..4 {
            let entry = Entry { first: Seq(n), last: Seq(n), marks: Marks(0), hash: Hash::of(b"x"), offset: 9, len: 9 };
            builder.push(&entry, &[n as u8; 10]);
        }
        let (segment, bytes) = builder.finish("s".to_owned());
        let index = bytes.slice(segment.index().start as usize..).to_vec();
        let repair = |bytes: &mut Vec<u8>| {
            if let Some(end) = bytes.len().checked_sub(SUM) {
                let sum = Hash::of(&bytes[..end]);
                bytes[end..].copy_from_slice(&sum.0);
            }
        };
        rekindle_fuzz::fuzz!("object-index").seeds([index]).repair(repair).bytes(|bytes| {
            for count in [0, 1, 3, u64::MAX] {
                let _ = Segment { count, ..segment.clone() }.read_index(&bytes.to_vec().into());
            }
            let entries = segment.read_index(&bytes.to_vec().into()).ok()?;
            let _ = entries.iter().map(Entry::end).max();
            Some(())
        });
    }
}
