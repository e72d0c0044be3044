//! Changes that a change carries along: copies of those before it, so that a session that is read from
//! nothing takes one request for a group of changes, not one for each.
//!
//! The object of a change is its envelope and frames, then the copies, then a trailer:
//!
//! ```text
//! envelope, frames                 the change itself, as if it were alone
//! envelope, frames …               the changes before it in its group, oldest first
//! number u64, length u64 …         one line for each copy (little-endian)
//! count  u32                       how many lines
//! sum    16                        the first bytes of BLAKE3 of copies, lines and count
//! magic  8
//! ```
//!
//! A reader that does not know of copies takes them for bytes behind the frames, which nothing names. Copies save
//! requests and nothing else: whatever is wrong with them, the objects themselves are read.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rekindle_core::Hash;

/// The number of changes in a group: the last one carries all others.
pub(super) const GROUP: u64 = 32;
/// The most bytes that are carried along.
pub(super) const MOST_BYTES: usize = 128 << 10;
const MAGIC: &[u8; 8] = b"rkcarry1";
const LINE: usize = 16;
const SUM: usize = 16;
const FOOTER: usize = 4 + SUM + MAGIC.len();

/// The first change of the group that `number` is in.
pub(super) fn group_start(number: u64) -> u64 {
    number.saturating_sub(1) / GROUP * GROUP + 1
}

/// The last changes of a session, as they were written, back to the start of their group or to where they would be too
/// large to be carried together.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    changes: Vec<(u64, Bytes)>,
    bytes: usize,
}

impl Recent {
    /// Takes note of the next change: `object` is its envelope and frames, or nothing if they are not at hand.
    pub(super) fn push(&mut self, number: u64, object: Option<Bytes>) {
        let follows = self.changes.last().is_some_and(|(last, _)| last + 1 == number);
        let fits = object.as_ref().is_some_and(|object| object.len() + self.bytes <= MOST_BYTES);
        if number == group_start(number) || !follows || !fits {
            *self = Self::default();
        }
        if let Some(object) = object.filter(|object| object.len() <= MOST_BYTES) {
            self.bytes += object.len();
            self.changes.push((number, object));
        }
    }

    /// The object of change `number`, which consists of `change`, with the changes before it in its group.
    pub(super) fn carried_by(&self, number: u64, change: Bytes) -> Bytes {
        let follows = self.changes.last().is_some_and(|(last, _)| last + 1 == number);
        if number == group_start(number) || !follows {
            return change;
        }
        let mut out = BytesMut::with_capacity(change.len() + self.bytes + self.changes.len() * LINE + FOOTER);
        out.put_slice(&change);
        self.changes.iter().for_each(|(_, object)| out.put_slice(object));
        for (number, object) in &self.changes {
            out.put_u64_le(*number);
            out.put_u64_le(object.len() as u64);
        }
        out.put_u32_le(self.changes.len() as u32);
        let sum = Hash::of(&out[change.len()..]);
        out.put_slice(&sum.0[..SUM]);
        out.put_slice(MAGIC);
        out.freeze()
    }
}

/// The changes that the object of change `number` carries along behind its own frames, which end at `own_end`; none if
/// the object is cut off or its trailer is damaged.
pub(super) fn carried(number: u64, object: &Bytes, own_end: usize) -> Vec<(u64, Bytes)> {
    let of_group = |(copy, _): &(u64, Bytes)| group_start(number) <= *copy && *copy < number;
    read(object, own_end).filter(|copies| copies.iter().all(of_group)).unwrap_or_default()
}

fn read(object: &Bytes, own_end: usize) -> Option<Vec<(u64, Bytes)>> {
    let footer_at = object.len().checked_sub(FOOTER)?;
    let mut footer = object.slice(footer_at..);
    let count = usize::try_from(footer.get_u32_le()).ok()?;
    if footer[SUM..] != MAGIC[..] || count as u64 >= GROUP {
        return None;
    }
    let lines_at = footer_at.checked_sub(count.checked_mul(LINE)?)?;
    let mut lines = object.slice(lines_at..footer_at);
    let mut named = Vec::with_capacity(count);
    while lines.has_remaining() {
        named.push((lines.get_u64_le(), usize::try_from(lines.get_u64_le()).ok()?));
    }
    let total = named.iter().try_fold(0usize, |total, (_, len)| total.checked_add(*len))?;
    let mut at = lines_at.checked_sub(total)?;
    if at != own_end || Hash::of(&object[at..footer_at + 4]).0[..SUM] != footer[..SUM] {
        return None;
    }
    let copy = |(number, len): (u64, usize)| {
        let copy = object.slice(at..at + len);
        at += len;
        (number, copy)
    };
    Some(named.into_iter().map(copy).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u64) -> Bytes {
        Bytes::from(vec![number as u8; 3 + number as usize])
    }

    fn after(numbers: std::ops::RangeInclusive<u64>) -> Recent {
        let mut recent = Recent::default();
        numbers.for_each(|number| recent.push(number, Some(object(number))));
        recent
    }

    #[test]
    fn a_change_carries_its_group() {
        let check = |before: std::ops::RangeInclusive<u64>, number: u64, expected: &[u64]| {
            let made = after(before).carried_by(number, object(number));
            assert_eq!(made[..object(number).len()], object(number)[..]);
            let found = carried(number, &made, object(number).len());
            assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected);
            assert!(found.iter().all(|(number, bytes)| *bytes == object(*number)));
        };
        assert_eq!(Recent::default().carried_by(1, object(1)), object(1));
        check(1..=1, 2, &[1]);
        check(1..=31, 32, &(1..=31).collect::<Vec<_>>());
        check(1..=32, 33, &[]);
        check(1..=33, 34, &[33]);
        // What is not next to it is not carried.
        check(1..=3, 5, &[]);
        check(9..=12, 13, &[9, 10, 11, 12]);
    }

    #[test]
    fn what_is_large_is_not_carried_nor_what_is_before_it() {
        let mut recent = after(1..=3);
        recent.push(4, Some(vec![4; MOST_BYTES - 10].into()));
        // Together they are too large: the last one begins anew.
        let made = recent.carried_by(5, object(5));
        assert_eq!(carried(5, &made, object(5).len()).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4]);
        recent.push(4, Some(vec![4; MOST_BYTES + 1].into()));
        assert_eq!(recent.carried_by(5, object(5)), object(5));
        recent.push(5, Some(object(5)));
        assert_eq!(carried(6, &recent.carried_by(6, object(6)), object(6).len()).len(), 1);
        recent.push(6, None);
        assert_eq!(recent.carried_by(7, object(7)), object(7));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_behind_the_change_is_noticed() {
        let made = after(1..=4).carried_by(5, object(5));
        for index in object(5).len()..made.len() {
            let mut flipped = made.to_vec();
            flipped[index] ^= 1;
            assert!(carried(5, &flipped.into(), object(5).len()).is_empty(), "byte {index}");
            assert!(carried(5, &made.slice(..index), object(5).len()).is_empty(), "cut at {index}");
        }
    }

    #[test]
    fn a_trailer_counts_only_behind_its_own_change_and_for_its_own_group() {
        let made = after(1..=4).carried_by(5, object(5));
        assert_eq!(carried(5, &made, object(5).len()).len(), 4);
        assert!(carried(5, &made, object(5).len() + 1).is_empty());
        assert!(carried(40, &made, object(5).len()).is_empty());
        assert!(carried(4, &made, object(5).len()).is_empty());
    }

    #[test]
    fn fuzzed_carried_changes() {
        let repair = |bytes: &mut Vec<u8>| {
            let Some(footer_at) = bytes.len().checked_sub(FOOTER) else { return };
            let sum = Hash::of(&bytes[..footer_at + 4]);
            bytes[footer_at + 4..footer_at + 4 + SUM].copy_from_slice(&sum.0[..SUM]);
        };
        let seed = after(1..=4).carried_by(5, Bytes::new()).to_vec();
        rekindle_fuzz::fuzz!("object-carried").seeds([seed]).repair(repair).bytes(|bytes| {
            let object = Bytes::copy_from_slice(bytes);
            assert!(carried(5, &object, 0).iter().map(|(_, copy)| copy.len()).sum::<usize>() <= object.len());
        });
    }
}
