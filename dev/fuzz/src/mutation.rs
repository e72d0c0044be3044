//! Changes to a valid encoding, as faults and attackers make them.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::input::{MAX_INPUT, Material};

/// One change. Places are any numbers, taken modulo the length of what they point into.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    Flip {
        at: usize,
        bit: u8,
    },
    Set {
        at: usize,
        byte: u8,
    },
    Cut {
        at: usize,
        len: usize,
    },
    Truncate {
        at: usize,
    },
    Insert {
        at: usize,
        bytes: Vec<u8>,
    },
    Word {
        at: usize,
        which: usize,
        replaced: usize,
    },
    Repeat {
        at: usize,
        len: usize,
        times: usize,
    },
    Splice {
        at: usize,
        other: usize,
        from: usize,
    },
    Swap {
        at: usize,
        other: usize,
        len: usize,
    },
    /// A number of `1 << width` bytes set to an extreme, as lengths and counts are stored.
    Extreme {
        at: usize,
        width: u8,
        which: usize,
        big_endian: bool,
    },
    /// The next digits replaced by an extreme number in decimal.
    Digits {
        at: usize,
        which: usize,
    },
    Nest {
        at: usize,
        which: usize,
        depth: usize,
        closed: bool,
    },
}

const EXTREMES: &[u64] = &[
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX - 1,
    u64::MAX,
];
const DECIMALS: &[&str] = &[
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e308",
    "1e309",
    "0.5",
    "00",
    "99999999999999999999999999999999999999999999999999",
];
const NESTS: &[(&str, &str)] = &[
    ("[", "]"),
    ("{\"a\":", "}"),
    ("[{\"type\":[", "]}]"),
    ("{\"not\":", "}"),
    ("(", ")"),
    ("- ", ""),
    ("? ", ""),
    ("a: {", "}"),
    ("${", "}"),
    ("<b>", "</b>"),
    (" ", ""),
    ("\\", ""),
];

/// Any mutation.
pub(crate) fn mutations() -> impl Strategy<Value = Mutation> {
    let at = || any::<usize>();
    prop_oneof![
        3 => (at(), 0u8..8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        2 => (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set { at, byte }),
        2 => (at(), 1usize..40).prop_map(|(at, len)| Mutation::Cut { at, len }),
        1 => at().prop_map(|at| Mutation::Truncate { at }),
        2 => (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
        4 => (at(), any::<usize>(), 0usize..12).prop_map(|(at, which, replaced)| Mutation::Word { at, which, replaced }),
        1 => (at(), 1usize..60, 1usize..300).prop_map(|(at, len, times)| Mutation::Repeat { at, len, times }),
        2 => (at(), any::<usize>(), any::<usize>()).prop_map(|(at, other, from)| Mutation::Splice { at, other, from }),
        1 => (at(), any::<usize>(), 1usize..40).prop_map(|(at, other, len)| Mutation::Swap { at, other, len }),
        2 => (at(), 0u8..4, any::<usize>(), any::<bool>())
            .prop_map(|(at, width, which, big_endian)| Mutation::Extreme { at, width, which, big_endian }),
        2 => (at(), any::<usize>()).prop_map(|(at, which)| Mutation::Digits { at, which }),
        1 => (at(), any::<usize>(), prop_oneof![4 => 1usize..200, 1 => 1usize..20_000], any::<bool>())
            .prop_map(|(at, which, depth, closed)| Mutation::Nest { at, which, depth, closed }),
    ]
}

impl Mutation {
    /// Changes `bytes`; one that finds nothing to change leaves them as they are.
    pub fn apply(&self, bytes: &mut Vec<u8>, material: &Material) {
        let len = bytes.len();
        // A place between two bytes; one of a byte needs a byte.
        let place = |at: usize| at % (len + 1);
        let end = |at: usize, size: usize| place(at).saturating_add(size).min(len);
        match *self {
            Self::Flip { .. } | Self::Set { .. } | Self::Digits { .. } if len == 0 => {}
            Self::Flip { at, bit } => bytes[at % len] ^= 1 << bit,
            Self::Set { at, byte } => bytes[at % len] = byte,
            Self::Cut { at, len: size } => drop(bytes.drain(place(at)..end(at, size))),
            Self::Truncate { at } => bytes.truncate(place(at)),
            Self::Insert { at, bytes: ref new } => drop(bytes.splice(place(at)..place(at), new.iter().copied())),
            Self::Word { at, which, replaced } => {
                let word = material.word(which).to_vec();
                bytes.splice(place(at)..end(at, replaced), word);
            }
            Self::Repeat { at, len: size, times } => {
                let piece = bytes[place(at)..end(at, size)].to_vec();
                let times = times.min(MAX_INPUT / piece.len().max(1));
                bytes.splice(place(at)..place(at), piece.repeat(times));
            }
            Self::Splice { at, other, from } => {
                let other = material.seed(other);
                bytes.truncate(place(at));
                bytes.extend_from_slice(&other[from % (other.len() + 1)..]);
            }
            Self::Swap { at, other, len: size } => {
                let size = size.min(len / 2);
                let (a, b) = (place(at).min(len - size), place(other).min(len - size));
                if a.abs_diff(b) >= size {
                    for index in 0..size {
                        bytes.swap(a + index, b + index);
                    }
                }
            }
            Self::Extreme { at, width, which, big_endian } => {
                let (number, size) = (EXTREMES[which % EXTREMES.len()], 1usize << width);
                let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
                let new = if big_endian { &big[8 - size..] } else { &little[..size] };
                let at = place(at);
                for (byte, new) in bytes[at..].iter_mut().zip(new) {
                    *byte = *new;
                }
            }
            Self::Digits { at, which } => {
                let Some(start) = (at % len..len).find(|index| bytes[*index].is_ascii_digit()) else { return };
                let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(start..start + digits, DECIMALS[which % DECIMALS.len()].bytes());
            }
            Self::Nest { at, which, depth, closed } => {
                let (open, close) = NESTS[which % NESTS.len()];
                let depth = depth.min(MAX_INPUT / 2 / open.len());
                let mut nest = open.repeat(depth);
                if closed {
                    nest.push('0');
                    nest.push_str(&close.repeat(depth));
                }
                bytes.splice(place(at)..place(at), nest.bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::WORDS;

    #[test]
    fn mutations_do_what_they_are_called() {
        let material = Material {
            seeds: vec![b"0123456789".to_vec(), b"abc".to_vec()],
            words: vec![b"word".to_vec()],
            repair: None,
        };
        let check = |mutation: Mutation, expected: &[u8]| {
            let mut bytes = material.seeds[0].clone();
            mutation.apply(&mut bytes, &material);
            assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
            // Nothing panics for want of bytes.
            mutation.apply(&mut Vec::new(), &material);
        };
        check(Mutation::Flip { at: 12, bit: 0 }, b"0133456789");
        check(Mutation::Set { at: 0, byte: b'x' }, b"x123456789");
        check(Mutation::Cut { at: 8, len: 40 }, b"01234567");
        check(Mutation::Truncate { at: 3 }, b"012");
        check(Mutation::Insert { at: 10, bytes: b"xy".to_vec() }, b"0123456789xy");
        check(Mutation::Word { at: 2, which: WORDS.len(), replaced: 1 }, b"01word3456789");
        check(Mutation::Repeat { at: 8, len: 2, times: 2 }, b"01234567898989");
        check(Mutation::Splice { at: 3, other: 1, from: 1 }, b"012bc");
        check(Mutation::Swap { at: 0, other: 8, len: 2 }, b"8923456701");
        check(Mutation::Extreme { at: 2, width: 1, which: 6, big_endian: false }, b"01\x00\x01456789");
        check(Mutation::Extreme { at: 2, width: 1, which: 6, big_endian: true }, b"01\x01\x00456789");
        check(Mutation::Digits { at: 4, which: 2 }, b"0123-1");
        check(Mutation::Nest { at: 10, which: 0, depth: 2, closed: true }, b"0123456789[[0]]");
    }
}
