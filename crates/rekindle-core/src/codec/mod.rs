//! From records to frames and back: limits, redaction, JSON, zstd, hash chain, AEAD.
//!
//! The codec is pure: given the same place, nonce, time and records it writes the same bytes.
//! Whatever bytes it is given to read, it returns a typed error or a batch, never a panic.
//!
//! * The **chain hash** of a frame covers the hash before it, its position and its plain
//!   payload, so it stays the same when a session moves to a store with other compression.
//!   It is keyed when a key is set: without the key nobody can continue or mend a chain.
//! * The **nonce** of the encryption is a keyed hash of everything it seals and binds. There is
//!   no counter to rewind and no randomness to repeat: two ciphertexts share a nonce only if they
//!   are the same ciphertext.

mod chain;
mod compression;
mod frame;
mod keys;
mod limits;
mod line;
mod redact;
mod seal;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use frame::{Elsewhere, FORMAT_VERSION, Frame, FrameError};
pub use keys::KeyRing;
pub use limits::Limits;
pub use line::{object_from_line, object_to_line};
pub use redact::Redaction;

use self::chain::{base_nonce, chain_hash, fork_hash, genesis_hash};
use self::frame::{BASE, COMPRESSED, KEYED, SEALED};
use self::seal::{open_text, seal, seal_text, unseal};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::json::{self, Json};
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Marks, Record};
use crate::session::{Damage, DamageKind, SessionHeader};
use crate::time::Timestamp;

/// Most payloads fit in so many bytes, so that writing one does not move it.
const USUAL_PAYLOAD: usize = 4 << 10;

/// Payloads from this size on are compressed by default.
pub const DEFAULT_COMPRESSION_THRESHOLD: usize = 4 << 10;

/// How payloads are protected.
#[derive(Debug, Default)]
enum Protection {
    #[default]
    None,
    Signed(KeyRing),
    Encrypted(KeyRing),
}

impl Protection {
    fn ring(&self) -> Option<&KeyRing> {
        match self {
            Self::None => None,
            Self::Signed(ring) | Self::Encrypted(ring) => Some(ring),
        }
    }
}

/// Turns records into frames and frames into records.
///
/// ```
/// use rekindle_core::codec::{Codec, KeyRing};
/// let codec = Codec::new().with_encryption(KeyRing::new("k1", [7; 32])?);
/// # Ok::<(), rekindle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Codec {
    limits: Limits,
    redaction: Redaction,
    compression: Option<(usize, i32)>,
    protection: Protection,
    accepts_unprotected: bool,
}

/// Which branch of which session a frame belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// The branch.
    pub branch: &'a BranchId,
}

/// What a frame is made of besides its records.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// What it continues.
    pub after: Head,
    /// When it is committed.
    pub at: Timestamp,
    /// Unlike any other.
    pub nonce: [u8; 16],
}

/// A frame's records, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The number of the first record.
    pub first: Seq,
    /// The number of the last record.
    pub last: Seq,
    /// When it was committed, by the writer's clock.
    pub at: Timestamp,
    /// The chain hash of it and everything before.
    pub hash: Hash,
    /// The records.
    pub records: Vec<Record>,
}

impl Batch {
    /// The records with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (Seq, &Record)> {
        self.records.iter().enumerate().map(|(index, record)| (Seq(self.first.0 + index as u64), record))
    }
}

#[derive(Serialize, Deserialize)]
struct SealedHeader {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    metadata: std::collections::BTreeMap<String, Json>,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec {
    /// JSON, zstd from 4 KiB on, default redaction and limits, no keys.
    pub fn new() -> Self {
        Self {
            limits: Limits::default(),
            redaction: Redaction::default(),
            compression: Some((DEFAULT_COMPRESSION_THRESHOLD, 3)),
            protection: Protection::None,
            accepts_unprotected: false,
        }
    }

    /// Other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Another redaction.
    #[must_use]
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// Compresses payloads of at least `threshold` bytes, at a zstd level.
    #[must_use]
    pub fn with_compression(mut self, threshold: usize, level: i32) -> Self {
        self.compression = Some((threshold, level));
        self
    }

    /// Compresses nothing. Compressed frames can still be read.
    #[must_use]
    pub fn without_compression(mut self) -> Self {
        self.compression = None;
        self
    }

    /// Signs: the chain is keyed, payloads stay readable.
    #[must_use]
    pub fn with_signing(mut self, ring: KeyRing) -> Self {
        self.protection = Protection::Signed(ring);
        self
    }

    /// Encrypts payloads, titles and metadata; the chain is keyed too.
    #[must_use]
    pub fn with_encryption(mut self, ring: KeyRing) -> Self {
        self.protection = Protection::Encrypted(ring);
        self
    }

    /// Also reads frames that were written before a key was set. Without this, an unprotected
    /// frame under a codec with keys is an error: it may be a forgery.
    #[must_use]
    pub fn accepting_unprotected(mut self) -> Self {
        self.accepts_unprotected = true;
        self
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The redaction in force.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Whether titles and metadata are sealed.
    pub fn encrypts(&self) -> bool {
        matches!(self.protection, Protection::Encrypted(_))
    }

    /// Makes the frame of `records` behind `stamp.after`.
    pub fn encode(&self, place: Place<'_>, stamp: Stamp, records: &[Record]) -> Result<Frame> {
        let context = |error: Error| error.during("encode").on(place.session).at(position(place, stamp.after.seq));
        if records.is_empty() {
            return Err(context(Error::invalid("a batch needs at least one record")));
        }
        let payload = self.plain_payload(records).map_err(context)?;
        let first = stamp.after.seq.next();
        let last = Seq(stamp.after.seq.0.saturating_add(records.len() as u64));
        if last > Seq::MAX {
            return Err(context(Error::limit("record number", last.0, Seq::MAX.0)));
        }
        self.frame(place, stamp, (first, last), 0, Marks::of(records), payload).map_err(context)
    }

    /// Makes the frames of a base that stands for `head`. They are chained behind its hash,
    /// numbered from 1, and each knows how many there are, so that a lost one is noticed.
    pub fn encode_base(&self, place: Place<'_>, head: Head, at: Timestamp, parts: &[&[Record]]) -> Result<Vec<Frame>> {
        let context = |error: Error| error.during("encode base").on(place.session);
        let mut after = Head { seq: Seq::ZERO, hash: head.hash };
        let mut frames = Vec::with_capacity(parts.len());
        for records in parts {
            let part = after.seq.next();
            let stamp = Stamp { after, at, nonce: base_nonce(head.seq, parts.len()) };
            let payload = self.plain_payload(records).map_err(context)?;
            let frame = self.frame(place, stamp, (part, part), BASE, Marks::of(records), payload).map_err(context)?;
            after = Head { seq: part, hash: frame.hash };
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Checks that the frames of a base are those of `head`, all of them, in order.
    pub fn check_base(&self, place: Place<'_>, head: Head, frames: &[Frame], thorough: bool) -> Result<(), Damage> {
        let mut before = Head { seq: Seq::ZERO, hash: head.hash };
        let missing = |detail: &str| Damage::new(DamageKind::Missing, place.branch.clone(), Seq(1), head.seq, detail);
        for frame in frames {
            if !frame.is_base() || frame.nonce != base_nonce(head.seq, frames.len()) {
                return Err(missing("the compacted history is incomplete"));
            }
            self.check_link(place, frame, before, thorough)?;
            before = Head { seq: frame.last, hash: frame.hash };
        }
        match frames.is_empty() {
            true => Err(missing("the compacted history is gone")),
            false => Ok(()),
        }
    }

    /// The same frame with its payload decompressed and decrypted: what an export holds.
    pub(crate) fn plain_frame(&self, place: Place<'_>, frame: &Frame) -> Result<Frame, Damage> {
        let payload = self.open_payload(place, frame).map_err(|error| damage(place, frame, error))?;
        let flags = frame.flags & !(COMPRESSED | SEALED);
        Ok(Frame { payload: payload.into_owned().into(), flags, ..frame.clone() })
    }

    /// Reads the records of a frame.
    pub fn decode(&self, place: Place<'_>, frame: &Frame) -> Result<Batch, Damage> {
        self.decode_measured(place, frame).map(|(batch, _)| batch)
    }

    /// The same, with how many bytes they are as JSON.
    pub(crate) fn decode_measured(&self, place: Place<'_>, frame: &Frame) -> Result<(Batch, usize), Damage> {
        let payload = self.open_payload(place, frame).map_err(|error| damage(place, frame, error))?;
        let records: Vec<Record> = serde_json::from_slice(&payload).map_err(|error| {
            damage(place, frame, FrameError::new(DamageKind::Format, format!("its records cannot be read: {error}")))
        })?;
        if !frame.is_base() && records.len() as u64 != frame.last.0 - frame.first.0 + 1 {
            let detail = format!("holds {} records, not {}", records.len(), frame.last.0 - frame.first.0 + 1);
            return Err(damage(place, frame, FrameError::new(DamageKind::Format, detail)));
        }
        let batch = Batch { first: frame.first, last: frame.last, at: frame.at, hash: frame.hash, records };
        Ok((batch, payload.len()))
    }

    /// Checks that a frame continues `before`, and with `thorough` also recomputes its hash.
    pub fn check_link(&self, place: Place<'_>, frame: &Frame, before: Head, thorough: bool) -> Result<(), Damage> {
        let broken = |kind, detail: String| Err(damage(place, frame, FrameError::new(kind, detail)));
        if frame.first > before.seq.next() {
            let (first, last) = (before.seq.next(), frame.first.previous());
            return Err(Damage::new(DamageKind::Missing, place.branch.clone(), first, last, "the records are gone"));
        }
        if frame.first < before.seq.next() {
            return broken(DamageKind::Chain, format!("stands behind record {}", before.seq));
        }
        if frame.prev != before.hash {
            return broken(DamageKind::Chain, format!("does not continue record {}", before.seq));
        }
        if !thorough {
            return Ok(());
        }
        let payload = self.open_payload(place, frame).map_err(|error| damage(place, frame, error))?;
        let chain_key = match frame.is_keyed() {
            false => None,
            true => match self.protection.ring().and_then(|ring| ring.get(&frame.key)) {
                Some(keys) => Some(&keys.chain),
                None => {
                    let detail = format!("needs the key `{}` to be checked", frame.key);
                    return Err(damage(place, frame, FrameError::key(&frame.key, detail)));
                }
            },
        };
        if chain_hash(chain_key.map(|key| &**key), place.branch, frame, &payload) != frame.hash {
            return broken(DamageKind::Chain, "its hash does not fit its content".into());
        }
        Ok(())
    }

    /// The hash a fork in the middle of a batch starts with. At the end of a batch it is the
    /// batch's own.
    pub fn fork_hash(batch_hash: Hash, batch_last: Seq, at: Seq) -> Hash {
        fork_hash(batch_hash, batch_last, at)
    }

    /// The start of a session's chain. It binds the parts of the header that never change.
    pub fn genesis(&self, header: &SessionHeader) -> Hash {
        genesis_hash(self.protection.ring().map(|ring| &*ring.active().chain), header)
    }

    /// Whether a header fits its genesis under any key of the ring.
    pub fn check_genesis(&self, header: &SessionHeader) -> bool {
        let keyed = self.protection.ring().into_iter().flat_map(KeyRing::all);
        keyed.map(|keys| genesis_hash(Some(&keys.chain), header)).any(|hash| hash == header.genesis)
            || ((self.protection.ring().is_none() || self.accepts_unprotected)
                && genesis_hash(None, header) == header.genesis)
    }

    /// The header as it is stored: redacted, and with title and metadata sealed if the codec
    /// encrypts.
    pub fn seal_header(&self, header: &SessionHeader) -> Result<SessionHeader> {
        // Before anything walks it, and after what redaction adds.
        self.check_header(header).map_err(|error| error.on(&header.key))?;
        let mut stored = header.clone();
        stored.title = header.title.as_deref().map(|title| self.redaction.text(title));
        stored.tags = header.tags.iter().map(|tag| self.redaction.text(tag)).collect();
        for (name, value) in &mut stored.labels {
            *value = match self.redaction.excludes(name) {
                true => format!("[redacted:{name}]"),
                false => self.redaction.text(value),
            };
        }
        for (key, value) in &mut stored.metadata {
            *value = match self.redaction.excludes(key) {
                true => Json::from(serde_json::json!({ "$redacted": key })),
                false => self.redaction.value(value)?,
            };
        }
        self.check_header(&stored).map_err(|error| error.on(&header.key))?;
        if let Protection::Encrypted(ring) = &self.protection {
            let plain = SealedHeader { title: stored.title.take(), metadata: std::mem::take(&mut stored.metadata) };
            let plain = serde_json::to_vec(&plain)
                .map_err(|error| Error::invalid("the header cannot be written").because(error))?;
            stored.sealed = Some(seal_text(ring, &header.key, &plain)?);
        }
        Ok(stored)
    }

    /// The header as callers see it, from the stored one.
    pub fn open_header(&self, mut stored: SessionHeader) -> Result<SessionHeader> {
        let key = stored.key.clone();
        let context = |error: Error| error.during("open header").on(&key);
        let Some(sealed) = stored.sealed.take() else {
            return match self.encrypts() && !self.accepts_unprotected {
                true => Err(context(Error::corrupt("the header is not sealed, and this codec demands it"))),
                false => Ok(stored),
            };
        };
        let plain = open_text(self.protection.ring(), &stored.key, &sealed).map_err(context)?;
        let header: SealedHeader = serde_json::from_slice(&plain).map_err(|error| {
            context(Error::corrupt("the sealed header does not have the expected fields").because(error))
        })?;
        stored.title = header.title;
        stored.metadata = header.metadata;
        Ok(stored)
    }

    fn check_header(&self, header: &SessionHeader) -> Result<()> {
        let bytes = serde_json::to_vec(header)
            .map_err(|error| Error::invalid("the header cannot be written").because(error))?;
        if bytes.len() > self.limits.record_bytes {
            return Err(Error::limit("bytes of the header", bytes.len() as u64, self.limits.record_bytes as u64));
        }
        let depth = json::depth(&bytes).saturating_sub(2);
        match depth > self.limits.depth {
            true => Err(Error::limit("depth of the metadata", depth as u64, self.limits.depth as u64)),
            false => Ok(()),
        }
    }

    /// The records as one line of JSON, within the limits and without what must not be stored.
    fn plain_payload(&self, records: &[Record]) -> Result<Vec<u8>> {
        if records.len() > self.limits.batch_records {
            return Err(Error::limit("records per batch", records.len() as u64, self.limits.batch_records as u64));
        }
        let mut payload = Vec::with_capacity(USUAL_PAYLOAD);
        payload.push(b'[');
        for record in records {
            if payload.len() > 1 {
                payload.push(b',');
            }
            self.write_record(record, &mut payload)?;
            if payload.len() > self.limits.batch_bytes {
                return Err(Error::limit("bytes per batch", payload.len() as u64, self.limits.batch_bytes as u64));
            }
        }
        payload.push(b']');
        Ok(payload)
    }

    fn write_record(&self, record: &Record, payload: &mut Vec<u8>) -> Result<()> {
        let start = payload.len();
        serde_json::to_writer(&mut *payload, record)
            .map_err(|error| Error::invalid("a record cannot be written as JSON").because(error))?;
        // The record itself adds three levels: the record, its body, a list in it.
        let (suspicious, depth) = self.redaction.inspect(&payload[start..]);
        let depth = depth.saturating_sub(3);
        if depth > self.limits.depth {
            return Err(Error::limit("depth of a value", depth as u64, self.limits.depth as u64));
        }
        if suspicious && let Cow::Owned(redacted) = self.redaction.record(&payload[start..])? {
            payload.truncate(start);
            payload.extend_from_slice(&redacted);
        }
        json::put_on_one_line(&mut payload[start..]);
        let size = payload.len() - start;
        if size > self.limits.record_bytes {
            let what = format!("bytes of a `{}` record", record.kind());
            return Err(Error::limit(what, size as u64, self.limits.record_bytes as u64));
        }
        Ok(())
    }

    fn frame(
        &self,
        place: Place<'_>,
        stamp: Stamp,
        (first, last): (Seq, Seq),
        flags: u8,
        marks: Marks,
        payload: Vec<u8>,
    ) -> Result<Frame> {
        let mut frame = Frame {
            first,
            last,
            at: stamp.at,
            nonce: stamp.nonce,
            prev: stamp.after.hash,
            hash: Hash::default(),
            marks,
            flags,
            key: String::new(),
            payload: Bytes::new(),
        };
        let ring = self.protection.ring();
        if let Some(ring) = ring {
            frame.flags |= KEYED;
            frame.key = ring.active_id().to_owned();
        }
        frame.hash = chain_hash(ring.map(|ring| &*ring.active().chain), place.branch, &frame, &payload);
        let payload = match self.compress(&payload)? {
            Some(compressed) => {
                frame.flags |= COMPRESSED;
                compressed
            }
            None => payload,
        };
        frame.payload = match &self.protection {
            Protection::Encrypted(ring) => {
                frame.flags |= SEALED;
                seal(ring.active(), place, &frame, &payload)?
            }
            _ => payload,
        }
        .into();
        Ok(frame)
    }

    /// The compressed payload, if that is worth it.
    fn compress(&self, payload: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((threshold, level)) = self.compression else { return Ok(None) };
        if payload.len() < threshold {
            return Ok(None);
        }
        let compressed = compression::compressed(payload, level)
            .map_err(|error| Error::invalid("the payload cannot be compressed").because(error))?;
        Ok((compressed.len() < payload.len() / 10 * 9).then_some(compressed))
    }

    /// The plain payload of a frame.
    fn open_payload<'a>(&self, place: Place<'_>, frame: &'a Frame) -> Result<Cow<'a, [u8]>, FrameError> {
        if let Some(elsewhere) = frame.elsewhere() {
            let detail = format!("its content lies in {}", elsewhere.place);
            return Err(FrameError::new(DamageKind::Elsewhere, detail));
        }
        let ring = self.protection.ring();
        if ring.is_some() && !frame.is_keyed() && !self.accepts_unprotected {
            let detail = "was written without a key, and this codec demands one";
            return Err(FrameError::new(DamageKind::Unprotected, detail));
        }
        let mut payload = Cow::Borrowed(&frame.payload[..]);
        if frame.is_sealed() {
            let keys = ring.and_then(|ring| ring.get(&frame.key)).ok_or_else(|| {
                let detail = format!("is encrypted with the key `{}`, which was not given", frame.key);
                FrameError::key(&frame.key, detail)
            })?;
            payload = Cow::Owned(unseal(keys, place, frame, &payload)?);
        }
        if frame.flags & COMPRESSED != 0 {
            payload = Cow::Owned(compression::decompressed(&payload, self.limits.batch_bytes)?);
        }
        // Encryption authenticates the hash; a signed frame is only as good as its hash. Without
        // any key it is only text; with keys, one that names a key nobody has is a forgery.
        if let Some(ring) = ring.filter(|_| frame.is_keyed() && !frame.is_sealed()) {
            let keys = ring.get(&frame.key).ok_or_else(|| {
                let detail = format!("is signed with the key `{}`, which was not given", frame.key);
                FrameError::key(&frame.key, detail)
            })?;
            if chain_hash(Some(&keys.chain), place.branch, frame, &payload) != frame.hash {
                return Err(FrameError::new(DamageKind::Sealed, "its signature does not fit its content"));
            }
        }
        Ok(payload)
    }
}

/// What is wrong with a frame, with where it stands.
fn damage(place: Place<'_>, frame: &Frame, error: FrameError) -> Damage {
    Damage::of_frame(error, place.branch.clone(), frame.first, frame.last)
}

impl Damage {
    /// This damage as the error of an operation that needed the bytes.
    pub fn to_error(&self, session: &SessionKey) -> Error {
        let kind = match self.kind {
            DamageKind::Version => {
                let supported = u32::from(FORMAT_VERSION);
                let found = self.found_version.unwrap_or(supported + 1);
                ErrorKind::VersionTooNew { what: "frame".into(), found, supported }
            }
            DamageKind::Key => ErrorKind::KeyMissing { key: self.key.clone().unwrap_or_default() },
            DamageKind::Elsewhere => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        };
        let span = match self.first == self.last {
            true => format!("record {}", self.first),
            false => format!("records {} to {}", self.first, self.last),
        };
        let error = Error::new(kind, format!("{span} of branch `{}`: {}", self.branch, self.detail));
        let error = error.on(session).at(self.position());
        match self.kind {
            DamageKind::Elsewhere => error.hint("open the store with the bucket of its large values"),
            _ => error,
        }
    }
}

fn position(place: Place<'_>, seq: Seq) -> Position {
    Position::new(place.branch.clone(), seq)
}

#[cfg(test)]
mod tests;
