//! The bytes of changes and snapshots.
//!
//! ```text
//! offset size  field
//!      0    3  magic "RKO"
//!      3    1  format version
//!      4   16  nonce
//!     20    4  length of the header (little-endian)
//!     24   32  BLAKE3 of nonce and header
//!     56       header (JSON), then frames
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use rekindle_core::{Error, ErrorKind, Hash, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

const VERSION: u8 = 1;
const MAGIC: &[u8; 3] = b"RKO";
/// Where the header begins.
pub(super) const HEADER_AT: usize = 56;
/// The part that tells one object from every other of its name.
pub(super) const IDENTITY: u64 = 20;
/// A header that claims to be longer is damaged.
const LONGEST_HEADER: usize = 256 << 20;

pub(super) fn encode(nonce: &[u8; 16], header: &impl Serialize, body_len: usize) -> Result<BytesMut> {
    let json = serde_json::to_vec(header).map_err(|error| Error::invalid(format!("cannot be written: {error}")))?;
    let len = u32::try_from(json.len()).ok().filter(|_| json.len() <= LONGEST_HEADER);
    let len = len.ok_or_else(|| Error::limit("bytes of a header", json.len() as u64, LONGEST_HEADER as u64))?;
    let mut out = BytesMut::with_capacity(HEADER_AT + json.len() + body_len);
    out.put_slice(&identity(nonce));
    out.put_u32_le(len);
    out.put_slice(&sum(nonce, &json).0);
    out.put_slice(&json);
    Ok(out)
}

/// The first bytes of the object with that nonce.
pub(super) fn identity(nonce: &[u8; 16]) -> [u8; 20] {
    let mut identity = [0; 20];
    identity[..3].copy_from_slice(MAGIC);
    identity[3] = VERSION;
    identity[4..].copy_from_slice(nonce);
    identity
}

fn sum(nonce: &[u8; 16], json: &[u8]) -> Hash {
    Hash::of(&[nonce, json].concat())
}

/// Up to where the header reaches, told from the first bytes of an object.
pub(super) fn header_end(name: &str, bytes: &[u8]) -> Result<usize> {
    let damaged = |what: &str| Error::corrupt(format!("the object `{name}` {what}"));
    let Some(start) = bytes.get(..HEADER_AT) else { return Err(damaged("is too short")) };
    if &start[..3] != MAGIC || start[3] == 0 {
        return Err(damaged("does not begin as it should"));
    }
    if start[3] > VERSION {
        let kind =
            ErrorKind::VersionTooNew { what: "object".into(), found: start[3].into(), supported: VERSION.into() };
        return Err(Error::new(kind, format!("the object `{name}` has format {}", start[3])));
    }
    let len = u32::from_le_bytes([start[20], start[21], start[22], start[23]]) as usize;
    match len <= LONGEST_HEADER {
        true => Ok(HEADER_AT + len),
        false => Err(damaged("claims an impossible length")),
    }
}

/// The nonce and the header of an object, and where its frames begin.
pub(super) fn decode<T: DeserializeOwned>(name: &str, bytes: &Bytes) -> Result<([u8; 16], T, usize)> {
    let damaged = |what: String| Error::corrupt(format!("the object `{name}` {what}"));
    let end = header_end(name, bytes)?;
    let json = bytes.get(HEADER_AT..end).ok_or_else(|| damaged("is cut off".to_owned()))?;
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&bytes[4..20]);
    if sum(&nonce, json).0 != bytes[24..HEADER_AT] {
        return Err(damaged("does not fit its hash".to_owned()));
    }
    let header = serde_json::from_slice(json).map_err(|error| damaged(format!("cannot be read: {error}")))?;
    Ok((nonce, header, end))
}

/// Makes length and hash of a mutated envelope fit again, if its header ends where its JSON does.
#[cfg(test)]
#[allow(clippy::ptr_arg)] // as targets take it
pub(super) fn repaired(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER_AT {
        return;
    }
    let mut values = serde_json::Deserializer::from_slice(&bytes[HEADER_AT..]).into_iter::<serde::de::IgnoredAny>();
    let len = match values.next() {
        Some(Ok(_)) => values.byte_offset(),
        _ => bytes.len() - HEADER_AT,
    };
    bytes[20..24].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&bytes[4..20]);
    let sum = sum(&nonce, &bytes[HEADER_AT..HEADER_AT + len]);
    bytes[24..HEADER_AT].copy_from_slice(&sum.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_header_is_noticed() {
        let bytes = encode(&[7; 16], &vec!["a", "b"], 0).unwrap().freeze();
        let (nonce, header, end) = decode::<Vec<String>>("x", &bytes).unwrap();
        assert_eq!((nonce, header.len(), end), ([7; 16], 2, bytes.len()));
        assert_eq!(bytes[..IDENTITY as usize], identity(&nonce));
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.to_vec();
                flipped[index] ^= 1 << bit;
                assert!(decode::<Vec<String>>("x", &flipped.into()).is_err(), "byte {index} bit {bit}");
            }
            assert!(decode::<Vec<String>>("x", &bytes.slice(..index)).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn fuzzed_envelopes() {
        let seeds = [&["a", "b"][..], &[]].map(|header| encode(&[7; 16], &header, 0).unwrap().to_vec());
        rekindle_fuzz::fuzz!("object-envelope").seeds(seeds).repair(repaired).bytes(|bytes| {
            let _ = header_end("x", bytes);
            let (nonce, header, end) = decode::<Vec<String>>("x", &bytes.to_vec().into()).ok()?;
            assert!(end <= bytes.len());
            let again = encode(&nonce, &header, 0).unwrap().freeze();
            assert_eq!(decode::<Vec<String>>("x", &again).unwrap().1, header);
            Some(())
        });
    }
}
