//! The envelope around a batch of records, in its binary form.
//!
//! ```text
//! offset size  field
//!      0    3  magic "RKJ"
//!      3    1  format version
//!      4    1  flags: 1 compressed, 2 sealed, 4 keyed chain, 8 base, 16 payload elsewhere,
//!              32 data key
//!      5    1  marks
//!      6    1  length of the key id
//!      7    1  zero
//!      8    8  first record   (all numbers little-endian)
//!     16    8  last record
//!     24    8  time of the commit, microseconds since 1970
//!     32   16  nonce
//!     48   32  hash of the frame before
//!     80   32  hash of this frame
//!    112    4  length of the payload
//!    116    4  CRC-32 of everything else
//!    120       key id, then payload
//! ```
//!
//! A frame with a data key has format version 2: its key id names a key of its session, and its hash
//! covers the sealed payload, so that order and completeness can be checked without the key.
//!
//! Of a frame whose payload lies elsewhere, the payload is a reference: the BLAKE3 hash of the real
//! one, its length in eight bytes, and the place as text. Everything else is as it was, so the chain,
//! the signature and the encryption fit again once the payload is back.

use std::borrow::Cow;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::keys::MAX_KEY_ID;
use crate::position::{Hash, Seq};
use crate::record::Marks;
use crate::session::DamageKind;
use crate::time::Timestamp;

/// The newest format version this build writes and reads.
pub const FORMAT_VERSION: u8 = 2;

const MAGIC: &[u8; 3] = b"RKJ";
const HEADER: usize = 120;
const CHECKSUM_AT: usize = 116;

/// Payload is zstd.
pub(crate) const COMPRESSED: u8 = 1;
/// Payload is AEAD ciphertext.
pub(crate) const SEALED: u8 = 2;
/// The chain hash is keyed.
pub(crate) const KEYED: u8 = 4;
/// A part of a base rather than of history.
pub(crate) const BASE: u8 = 8;
/// The payload is only a reference to the real one.
pub(crate) const ELSEWHERE: u8 = 16;
/// Sealed with a data key of its session; the hash covers the sealed payload.
pub(crate) const DATA_KEY: u8 = 32;
const KNOWN_FLAGS: u8 = COMPRESSED | SEALED | KEYED | BASE | ELSEWHERE | DATA_KEY;
/// The hash and the length at the beginning of a reference.
const REFERENCE: usize = 40;

/// A batch of records as a store keeps it: what the store must know in clear, and the payload,
/// which is none of its business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its first record.
    pub first: Seq,
    /// Its last record.
    pub last: Seq,
    /// When it was committed, by the writer's clock. Never used for order.
    pub at: Timestamp,
    /// Makes this frame unlike any other with the same content.
    pub nonce: [u8; 16],
    /// The chain hash before it.
    pub prev: Hash,
    /// The chain hash of it and everything before.
    pub hash: Hash,
    /// What its records are about.
    pub marks: Marks,
    pub(crate) flags: u8,
    pub(crate) key: String,
    pub(crate) payload: Bytes,
}

/// Where the payload of a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere<'a> {
    /// Its BLAKE3 hash.
    pub hash: Hash,
    /// Its length in bytes.
    pub len: u64,
    /// The place, as [`Frame::detach`] was told.
    pub place: &'a str,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct FrameError {
    /// What kind of damage it is.
    pub kind: DamageKind,
    /// What was found.
    pub detail: Cow<'static, str>,
    /// The format version, if it is newer than those this build reads.
    pub found_version: Option<u32>,
    /// The id of the key that is needed and was not given.
    pub key: Option<String>,
}

impl FrameError {
    /// An error of that kind.
    pub fn new(kind: DamageKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), found_version: None, key: None }
    }

    /// The error about a format version that this build does not read.
    pub(crate) fn version(found: u8) -> Self {
        let detail = format!("format version {found}; this build reads up to {FORMAT_VERSION}");
        Self { found_version: Some(found.into()), ..Self::new(DamageKind::Version, detail) }
    }

    /// The error about a key that was not given.
    pub(crate) fn key(key: &str, detail: String) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(DamageKind::Key, detail) }
    }
}

impl Frame {
    /// Whether it is a part of a base.
    pub fn is_base(&self) -> bool {
        self.flags & BASE != 0
    }

    /// Returns whether the payload is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }

    /// Whether its payload is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.flags & SEALED != 0
    }

    /// Whether its chain hash is keyed.
    pub fn is_keyed(&self) -> bool {
        self.flags & KEYED != 0
    }

    /// Returns whether nobody without a key can have written it.
    pub fn is_protected(&self) -> bool {
        self.flags & (KEYED | SEALED) != 0
    }

    /// Returns whether it was sealed with a data key of its session.
    pub fn has_data_key(&self) -> bool {
        self.flags & DATA_KEY != 0
    }

    /// The format version it is written in.
    pub(crate) fn version(&self) -> u8 {
        if self.has_data_key() { 2 } else { 1 }
    }

    /// The id of the key it was written with, or nothing.
    pub fn key_id(&self) -> &str {
        &self.key
    }

    /// The payload as it is kept: compressed and encrypted, or a reference.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Where the payload lies, if not here.
    pub fn elsewhere(&self) -> Option<Elsewhere<'_>> {
        let reference = Some(&self.payload).filter(|_| self.flags & ELSEWHERE != 0)?;
        let (fixed, place) = reference.split_at_checked(REFERENCE)?;
        let (hash, len) = fixed.split_at(32);
        Some(Elsewhere {
            hash: Hash::from_slice(hash)?,
            len: u64::from_le_bytes(len.try_into().ok()?),
            place: std::str::from_utf8(place).ok()?,
        })
    }

    /// The same frame with a reference in place of its payload; `place` says where that is put, for
    /// whoever brings it back and for people. One that is detached already stays as it is.
    ///
    /// ```
    /// # use rekindle_core::codec::{Codec, Frame, Place, Stamp};
    /// # use rekindle_core::{BranchId, Head, SessionId, SessionKey, Timestamp};
    /// # let session: SessionKey = SessionId::new("a")?.into();
    /// # let place = Place { session: &session, branch: &BranchId::main() };
    /// # let after = Head { seq: rekindle_core::Seq::ZERO, hash: rekindle_core::Hash::default() };
    /// # let stamp = Stamp { after, at: Timestamp(1), nonce: [0; 16] };
    /// # let record: rekindle_core::Record = rekindle_core::Json::parse(r#"{"edit":{"author":"a","reason":""}}"#)?.decode()?;
    /// # let frame = Codec::new().encode(place, stamp, &[record])?;
    /// let small = frame.detach("s3://bucket/value");
    /// assert_eq!(small.elsewhere().map(|elsewhere| elsewhere.place), Some("s3://bucket/value"));
    /// assert_eq!(small.attach(frame.payload().clone()).unwrap(), frame);
    /// # Ok::<(), rekindle_core::Error>(())
    /// ```
    #[must_use]
    pub fn detach(&self, place: &str) -> Self {
        if self.flags & ELSEWHERE != 0 {
            return self.clone();
        }
        let mut reference = BytesMut::with_capacity(REFERENCE + place.len());
        reference.put_slice(&Hash::of(&self.payload).0);
        reference.put_u64_le(self.payload.len() as u64);
        reference.put_slice(place.as_bytes());
        Self { flags: self.flags | ELSEWHERE, payload: reference.freeze(), ..self.clone() }
    }

    /// The frame as it was before [`Frame::detach`]; an error unless `payload` is the one that was
    /// detached.
    pub fn attach(&self, payload: Bytes) -> Result<Self, FrameError> {
        let Some(elsewhere) = self.elsewhere() else {
            return Err(FrameError::new(DamageKind::Format, "its payload is not elsewhere"));
        };
        if elsewhere.len != payload.len() as u64 || elsewhere.hash != Hash::of(&payload) {
            return Err(FrameError::new(DamageKind::Checksum, "what lies elsewhere is not its payload"));
        }
        Ok(Self { flags: self.flags & !ELSEWHERE, payload, ..self.clone() })
    }

    /// How many bytes [`Frame::to_bytes`] gives.
    pub fn stored_len(&self) -> usize {
        HEADER + self.key.len() + self.payload.len()
    }

    fn header(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut out = &mut bytes[..];
        out.put_slice(MAGIC);
        out.put_u8(self.version());
        out.put_u8(self.flags);
        out.put_u8(self.marks.0);
        out.put_u8(self.key.len() as u8);
        out.put_u8(0);
        out.put_u64_le(self.first.0);
        out.put_u64_le(self.last.0);
        out.put_u64_le(self.at.0);
        out.put_slice(&self.nonce);
        out.put_slice(&self.prev.0);
        out.put_slice(&self.hash.0);
        out.put_u32_le(self.payload.len() as u32);
        bytes
    }

    /// What encryption binds a payload to: the header without length and checksum, which the
    /// ciphertext itself determines, and without the hash where that covers the ciphertext.
    pub(super) fn bound_header(&self) -> [u8; 112] {
        let mut bound = [0; 112];
        bound.copy_from_slice(&self.header()[..112]);
        if self.has_data_key() {
            bound[80..].fill(0);
        }
        bound
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.stored_len());
        out.put_slice(&self.header());
        out.put_slice(self.key.as_bytes());
        out.put_slice(&self.payload);
        let crc = checksum(&out);
        out[CHECKSUM_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
        out.freeze()
    }

    /// Reads the binary form; the payload shares `bytes`.
    pub fn from_bytes(mut bytes: Bytes) -> Result<Self, FrameError> {
        let format = |detail: &'static str| FrameError::new(DamageKind::Format, detail);
        if bytes.len() < HEADER {
            return Err(format("shorter than the header of a frame"));
        }
        if &bytes[..3] != MAGIC {
            return Err(format("does not begin as a frame does"));
        }
        if bytes[3] > FORMAT_VERSION {
            return Err(FrameError::version(bytes[3]));
        }
        let stored = u32::from_le_bytes(bytes[CHECKSUM_AT..HEADER].try_into().expect("four bytes"));
        if stored != checksum(&bytes) {
            return Err(FrameError::new(DamageKind::Checksum, "the checksum does not fit the bytes"));
        }
        let mut fields = bytes.split_to(HEADER);
        fields.advance(3);
        let version = fields.get_u8();
        let flags = fields.get_u8();
        let marks = Marks(fields.get_u8());
        let key_len = usize::from(fields.get_u8());
        fields.advance(1);
        let (first, last, at) = (Seq(fields.get_u64_le()), Seq(fields.get_u64_le()), Timestamp(fields.get_u64_le()));
        let mut nonce = [0; 16];
        fields.copy_to_slice(&mut nonce);
        let (mut prev, mut hash) = (Hash::default(), Hash::default());
        fields.copy_to_slice(&mut prev.0);
        fields.copy_to_slice(&mut hash.0);
        let payload_len = fields.get_u32_le() as usize;
        if flags & !KNOWN_FLAGS != 0 || (flags & DATA_KEY != 0) != (version == 2) {
            return Err(format("has flags this build does not know"));
        }
        if bytes.len() != key_len + payload_len
            || key_len > MAX_KEY_ID
            || first > last
            || first == Seq::ZERO
            || last > Seq::MAX
        {
            return Err(format("its fields contradict each other"));
        }
        let key = String::from_utf8(bytes.split_to(key_len).to_vec()).map_err(|_| format("its key id is not text"))?;
        let frame = Self { first, last, at, nonce, prev, hash, marks, flags, key, payload: bytes };
        match flags & ELSEWHERE != 0 && frame.elsewhere().is_none() {
            true => Err(format("its reference cannot be read")),
            false => Ok(frame),
        }
    }
}

/// CRC-32 of a frame without its checksum field. `bytes` is at least a header long.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CHECKSUM_AT]);
    hasher.update(&bytes[HEADER..]);
    hasher.finalize()
}

#[cfg(test)]
pub(super) fn example() -> Frame {
    Frame {
        first: Seq(3),
        last: Seq(4),
        at: Timestamp(1_794_740_400_123_456),
        nonce: [9; 16],
        prev: Hash::of(b"before"),
        hash: Hash::of(b"this"),
        marks: Marks::CHECKPOINT,
        flags: 0,
        key: String::new(),
        payload: Bytes::from_static(b"[{\"edit\":{\"author\":\"a\",\"reason\":\"\"}}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        for (flags, key) in [(0, ""), (SEALED | KEYED, "key-1"), (BASE | COMPRESSED, ""), (SEALED | DATA_KEY, "d1")] {
            let frame = Frame { flags, key: key.into(), ..example() };
            let bytes = frame.to_bytes();
            assert_eq!(bytes.len(), frame.stored_len());
            assert_eq!(Frame::from_bytes(bytes).unwrap(), frame);
        }
    }

    #[test]
    fn a_payload_can_lie_elsewhere() {
        let frame = example();
        let small = frame.detach("somewhere");
        assert_eq!(small.detach("nowhere"), small);
        let small = Frame::from_bytes(small.to_bytes()).unwrap();
        let elsewhere = small.elsewhere().unwrap();
        assert_eq!((elsewhere.len, elsewhere.place), (frame.payload.len() as u64, "somewhere"));
        assert_eq!(small.attach(frame.payload.clone()).unwrap(), frame);
        assert_eq!(small.attach(Bytes::from_static(b"other")).unwrap_err().kind, DamageKind::Checksum);
        assert_eq!(frame.attach(frame.payload.clone()).unwrap_err().kind, DamageKind::Format);
        let short = Frame { payload: Bytes::from_static(b"short"), ..small };
        assert_eq!(Frame::from_bytes(short.to_bytes()).unwrap_err().kind, DamageKind::Format);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = example().to_bytes();
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.to_vec();
                damaged[index] ^= 1 << bit;
                assert!(Frame::from_bytes(damaged.into()).is_err(), "byte {index} bit {bit}");
            }
            assert!(Frame::from_bytes(bytes.slice(..index)).is_err(), "cut at {index}");
            let mut zeroed = bytes.to_vec();
            zeroed[index..].fill(0);
            assert!(
                Frame::from_bytes(zeroed.into()).is_err() || bytes[index..].iter().all(|b| *b == 0),
                "zero from {index}"
            );
        }
    }

    #[test]
    fn a_newer_format_says_so() {
        let mut bytes = example().to_bytes().to_vec();
        bytes[3] = 9;
        let error = Frame::from_bytes(bytes.into()).unwrap_err();
        assert_eq!((error.kind, error.found_version), (DamageKind::Version, Some(9)));
    }
}
