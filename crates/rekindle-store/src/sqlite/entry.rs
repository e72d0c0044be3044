//! The layout of index entries: one per frame, of fixed width, so that entries are added by
//! appending bytes. No database here.
//!
//! ```text
//! byte 0        version of the layout (1)
//! byte 1        marks
//! bytes 2..4    check of everything else
//! bytes 4..8    last - first
//! bytes 8..16   last record
//! bytes 16..24  row in `frames`
//! ```
//!
//! Numbers are little-endian. Entries that stand behind each other continue each other: each
//! begins with the record behind the one before, and rows only grow.

use rekindle_core::{Marks, Seq};

/// The bytes of one entry.
pub(super) const ENTRY_BYTES: usize = 24;

const VERSION: u8 = 1;

/// Where a frame stands and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its row.
    pub(super) id: i64,
    /// Its first record.
    pub(super) first: Seq,
    /// Its last record.
    pub(super) last: Seq,
    /// Its marks.
    pub(super) marks: Marks,
}

impl Entry {
    /// Its bytes. A frame holds fewer records than 32 bits can count.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let span = u32::try_from(self.last.0.saturating_sub(self.first.0)).unwrap_or(u32::MAX);
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (VERSION, self.marks.0);
        bytes[4..8].copy_from_slice(&span.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.last.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        let check = check_of(&bytes);
        bytes[2..4].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The entry in `bytes`, unless they are something else.
    fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let (_, span, last, id) = words(bytes);
        if bytes[0] != VERSION || bytes[2..4] != check_of(bytes).to_le_bytes() || last > Seq::MAX.0 {
            return None;
        }
        let first = last.checked_sub(u64::from(span)).filter(|first| *first > 0)?;
        let id = i64::try_from(id).ok()?;
        Some(Self { id, first: Seq(first), last: Seq(last), marks: Marks(bytes[1]) })
    }
}

/// The bytes of `entries` behind each other.
pub(super) fn encode(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    entries.into_iter().flat_map(Entry::to_bytes).collect()
}

/// The entries in `bytes`, unless anything about them is wrong.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (whole, rest) = bytes.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return None;
    }
    let entries: Vec<Entry> = whole.iter().map(Entry::from_bytes).collect::<Option<_>>()?;
    continuous(&entries).then_some(entries)
}

/// Whether each of `entries` continues the one before it.
pub(super) fn continuous(entries: &[Entry]) -> bool {
    entries.windows(2).all(|pair| pair[1].first == pair[0].last.next() && pair[1].id > pair[0].id)
}

/// Marks and span as they stand in the bytes, then last record and row.
fn words(bytes: &[u8; ENTRY_BYTES]) -> (u8, u32, u64, u64) {
    let (words, _) = bytes.as_chunks::<8>();
    let span = (u64::from_le_bytes(words[0]) >> 32) as u32;
    (bytes[1], span, u64::from_le_bytes(words[1]), u64::from_le_bytes(words[2]))
}

// Against accidents, not against people: those could change the frames as well. Multiplying by
// an odd number loses nothing, and the upper bits depend on all lower ones.
fn check_of(bytes: &[u8; ENTRY_BYTES]) -> u16 {
    let (marks, span, last, id) = words(bytes);
    let start = u64::from(bytes[0]) << 40 | u64::from(marks) << 32 | u64::from(span);
    let mixed = [start, last, id].into_iter().fold(0x9E37_79B9_7F4A_7C15_u64, |sum, word| {
        let sum = (sum ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        sum ^ sum >> 32
    });
    (mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: i64, first: u64, last: u64, marks: u8) -> Entry {
        Entry { id, first: Seq(first), last: Seq(last), marks: Marks(marks) }
    }

    fn three() -> [Entry; 3] {
        [entry(7, 1, 1, 0), entry(9, 2, 5, 3), entry(i64::MAX, 6, 6 + u64::from(u32::MAX), 255)]
    }

    #[test]
    fn the_layout_is_what_is_documented() {
        let bytes = entry(0x0102, 3, 0x0A0B, 5).to_bytes();
        assert_eq!((bytes[0], bytes[1]), (1, 5));
        assert_eq!(bytes[4..], [8, 10, 0, 0, 0x0B, 0x0A, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[2..4], [56, 50], "the check is stored, so it never changes");
    }

    #[test]
    fn entries_come_back_as_they_were() {
        assert_eq!(decode(&encode(three())), Some(three().to_vec()));
        assert_eq!(decode(&[]), Some(Vec::new()));
    }

    #[test]
    fn entries_that_do_not_continue_each_other_are_refused() {
        for second in [entry(9, 3, 5, 0), entry(9, 1, 5, 0), entry(7, 2, 5, 0), entry(6, 2, 5, 0)] {
            assert_eq!(decode(&encode([entry(7, 1, 1, 0), second])), None, "{second:?}");
        }
    }

    #[test]
    fn numbers_nobody_wrote_are_refused() {
        for wrong in [entry(-1, 1, 1, 0), entry(1, 0, 1, 0), entry(1, u64::MAX, u64::MAX, 0)] {
            assert_eq!(decode(&encode([wrong])), None, "{wrong:?}");
        }
        let mut longer_than_its_end = entry(1, 1, 9, 0).to_bytes();
        longer_than_its_end[4] = 200;
        let check = check_of(&longer_than_its_end);
        longer_than_its_end[2..4].copy_from_slice(&check.to_le_bytes());
        assert_eq!(decode(&longer_than_its_end), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let whole = encode(three());
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), None, "bit {bit}");
        }
        for length in (1..whole.len()).filter(|length| length % ENTRY_BYTES != 0) {
            assert_eq!(decode(&whole[..length]), None, "{length} bytes");
        }
        for byte in [0, 1, 255] {
            assert_eq!(decode(&[byte; 2 * ENTRY_BYTES]), None);
        }
    }

    #[test]
    fn fuzzed_entries() {
        let repair = |bytes: &mut Vec<u8>| {
            for entry in bytes.as_chunks_mut::<ENTRY_BYTES>().0 {
                let check = check_of(entry);
                entry[2..4].copy_from_slice(&check.to_le_bytes());
            }
        };
        let seeds = [encode(three()), encode([entry(1, 1, 1, 0)]), Vec::new()];
        rekindle_fuzz::fuzz!("sqlite-entries").seeds(seeds).repair(repair).bytes(|bytes| {
            let entries = decode(bytes)?;
            assert_eq!(encode(entries), bytes);
            Some(())
        });
    }
}
