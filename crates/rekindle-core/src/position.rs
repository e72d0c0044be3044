//! Where things are: sequence numbers, positions, heads, lease epochs and chain hashes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::id::BranchId;

/// The number of a record on its branch. The first record is 1; 0 is "before everything".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first record.
    pub const ZERO: Self = Self(0);
    /// The largest number a branch may reach.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number before this one; zero stays zero.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The generation of a lease. Every acquisition gets a larger one; the store refuses writes
/// that carry an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in a session's history: a branch and the last record that counts.
///
/// ```
/// use rekindle_core::Position;
/// let position: Position = "main:42".parse()?;
/// assert_eq!(position.seq.0, 42);
/// assert_eq!(position.to_string(), "main:42");
/// # Ok::<(), rekindle_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The branch.
    pub branch: BranchId,
    /// The last record that counts.
    pub seq: Seq,
}

impl Position {
    /// The position after record `seq` of `branch`.
    pub fn new(branch: BranchId, seq: Seq) -> Self {
        Self { branch, seq }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.branch, self.seq)
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (branch, seq) = text
            .rsplit_once(':')
            .ok_or_else(|| Error::invalid(format!("`{text}` is not a position; write branch:seq, e.g. main:42")))?;
        let seq: u64 = seq
            .parse()
            .ok()
            .filter(|seq| *seq <= Seq::MAX.0)
            .ok_or_else(|| Error::invalid(format!("`{seq}` is not a sequence number")))?;
        Ok(Self::new(branch.parse()?, Seq(seq)))
    }
}

/// A BLAKE3 hash: a link of the chain, a fingerprint, a digest of arguments.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The unkeyed BLAKE3 hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The first eight hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string().split_off(56)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0u8; 64];
        for (index, byte) in self.0.iter().enumerate() {
            text[2 * index] = DIGITS[usize::from(byte >> 4)];
            text[2 * index + 1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid("a hash is written as 64 hex digits");
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or_else(wrong)?;
            let low = char::from(pair[1]).to_digit(16).ok_or_else(wrong)?;
            *byte = u8::try_from(high * 16 + low).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The end of a branch as its writer knows it: the last record and the hash of everything up
/// to it. Naming both makes a compare-and-append also a check that history is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    /// The last record; zero on an empty branch.
    pub seq: Seq,
    /// The chain hash at that record.
    pub hash: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_reject_nonsense() {
        for text in ["main:0", "a:b:7", "ünïcode:9"] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        for text in ["main", "main:", "main:-1", ":4", "main:99999999999999999999", "main:9223372036854775808"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn hashes_round_trip_and_reject_nonsense() {
        let hash = Hash::of(b"x");
        assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        assert_eq!(hash.short().len(), 8);
        assert!("zz".repeat(32).parse::<Hash>().is_err());
        assert!("é".repeat(32).parse::<Hash>().is_err());
    }
}
