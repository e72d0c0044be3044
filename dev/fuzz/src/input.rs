//! Inputs: arbitrary bytes, arbitrary text, and valid encodings with some mutations.

use std::fmt;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::mutation::{Mutation, mutations};

/// The longest input that is made of repetitions.
pub(crate) const MAX_INPUT: usize = 64 << 10;
/// Pieces of text that decoders treat specially somewhere.
pub(crate) const WORDS: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "0",
    "-0",
    "-1",
    "1e999",
    "-1e-999",
    "0.1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "-9223372036854775809",
    "4294967296",
    "1e18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\"\\udfff\"",
    "\u{0}",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{feff}",
    "\r\n",
    "\n\n",
    "\t",
    "../",
    "//",
    "%00",
    "%",
    "${",
    "}",
    "${a.b[0]}",
    "@",
    "~",
    ":",
    ",",
    "\"",
    "\\",
    "'",
    "&a",
    "*a",
    "<<: ",
    "- ",
    "# ",
    "---\n",
    "!!binary ",
    "data: ",
    "é",
    "🦀",
    "NaN",
    "Infinity",
    "0x10",
    "1_000",
    "٣",
    "-",
    "=",
    " ",
];

/// An input; its debug form is readable as a byte string.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Input(pub Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 2_000;
        write!(f, "b\"{}\"", self.0[..self.0.len().min(SHOWN)].escape_ascii())?;
        match self.0.len() > SHOWN {
            true => write!(f, " and {} more bytes", self.0.len() - SHOWN),
            false => Ok(()),
        }
    }
}

/// The material inputs are made of.
#[derive(Default)]
pub(crate) struct Material {
    /// Valid encodings.
    pub seeds: Vec<Vec<u8>>,
    /// Pieces that mean something to the decoder, beside those that mean something to many.
    pub words: Vec<Vec<u8>>,
    /// Makes a mutated encoding pass the checks that come first, such as checksums.
    pub repair: Option<fn(&mut Vec<u8>)>,
}

impl Material {
    /// A word, by any number.
    pub fn word(&self, index: usize) -> &[u8] {
        let index = index % (WORDS.len() + self.words.len() * 2);
        match WORDS.get(index) {
            Some(word) => word.as_bytes(),
            // Words of the decoder come up twice as often.
            None => &self.words[(index - WORDS.len()) / 2],
        }
    }

    /// A valid encoding, by any number; nothing if there are none.
    pub fn seed(&self, index: usize) -> &[u8] {
        self.seeds.get(index % self.seeds.len().max(1)).map_or(&[], Vec::as_slice)
    }

    fn mutated(&self, seed: usize, mutations: &[Mutation], repair: bool) -> Vec<u8> {
        let mut bytes = self.seed(seed).to_vec();
        for mutation in mutations {
            mutation.apply(&mut bytes, self);
            bytes.truncate(MAX_INPUT.max(self.seed(seed).len()));
        }
        if let (true, Some(repair)) = (repair, self.repair) {
            repair(&mut bytes);
        }
        bytes
    }
}

/// Inputs made of `material`.
pub(crate) fn inputs(material: Arc<Material>) -> impl Strategy<Value = Input> {
    let repaired = Arc::clone(&material);
    let words = Arc::clone(&material);
    prop_oneof![
        8 => (any::<usize>(), vec(mutations(), 1..6), proptest::bool::weighted(0.75))
            .prop_map(move |(seed, mutations, repair)| material.mutated(seed, &mutations, repair)),
        1 => vec(any::<u8>(), 0..300).prop_map(move |mut bytes| {
            if let Some(repair) = repaired.repair {
                repair(&mut bytes);
            }
            bytes
        }),
        1 => vec(any::<usize>(), 0..20).prop_map(move |picks| {
            picks.iter().flat_map(|pick| words.word(*pick).to_vec()).collect()
        }),
        1 => ".{0,60}".prop_map(String::into_bytes),
    ]
    .prop_map(Input)
}
