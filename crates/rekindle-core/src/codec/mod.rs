//! From records to frames and back: limits, redaction, JSON, zstd, hash chain, AEAD.
//!
//! The codec is pure: given the same place, nonce, time and records it writes the same bytes.
//! Whatever bytes it is given to read, it returns a typed error or a batch, never a panic.
//!
//! * The **chain hash** of a frame covers the hash before it, its position and its plain
//!   payload, so it stays the same when a session moves to a store with other compression.
//!   It is keyed when a key is set: without the key nobody can continue or mend a chain.
//! * A session with a **data key** is sealed with it, and the hash covers the sealed payload: once the key
//!   is destroyed, order and completeness can still be checked.
//! * The **nonce** of the encryption is a keyed hash of everything it seals and binds. There is
//!   no counter to rewind and no randomness to repeat: two ciphertexts share a nonce only if they
//!   are the same ciphertext.

mod chain;
mod compression;
mod frame;
mod header;
mod keychain;
mod keys;
mod limits;
mod line;
mod redact;
mod seal;
mod service;
mod sign;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

pub use frame::{Elsewhere, FORMAT_VERSION, Frame, FrameError};
pub use header::Described;
pub(crate) use keychain::Standing;
pub(crate) use keys::DataKey;
pub use keys::KeyRing;
pub use limits::Limits;
pub use line::{object_from_line, object_to_line};
pub use redact::Redaction;
pub use service::{KeyService, Wrapped};
pub(crate) use sign::Signer;

use self::chain::{Era, base_nonce, chain_hash, fork_hash, fork_start, genesis_hash, sealed_hash};
use self::frame::{BASE, COMPRESSED, DATA_KEY, KEYED, SEALED};
use self::header::{HeaderKey, not_opened};
use self::keychain::Keychain;
use self::keys::DerivedKeys;
use self::seal::{seal, unseal};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::json;
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Marks, Record};
use crate::session::{Damage, DamageKind, SessionHeader};
use crate::time::Timestamp;

/// Most payloads fit in so many bytes, so that writing one does not move it.
const USUAL_PAYLOAD: usize = 4 << 10;

/// Payloads from this size on are compressed by default.
pub const DEFAULT_COMPRESSION_THRESHOLD: usize = 4 << 10;

/// How payloads are protected.
#[derive(Clone, Debug, Default)]
enum Protection {
    #[default]
    None,
    Signed(Arc<KeyRing>),
    Encrypted {
        /// The main keys, if they are here: for sessions without a data key.
        ring: Option<Arc<KeyRing>>,
        /// What data keys are wrapped with.
        service: Arc<dyn KeyService>,
    },
}

impl Protection {
    fn ring(&self) -> Option<&KeyRing> {
        match self {
            Self::None => None,
            Self::Signed(ring) => Some(ring),
            Self::Encrypted { ring, .. } => ring.as_deref(),
        }
    }
}

/// What the beginning of a session's chain says about its key.
#[derive(Debug)]
pub(crate) enum Root {
    /// None is needed: forks begin with the hash of the record they start from.
    Open,
    /// The key that began it: the header is sealed, and forks begin with a hash under this key.
    Keyed(Zeroizing<[u8; 32]>),
    /// The key is not there, or the header is not that of the session.
    Unknown,
}

impl Root {
    /// The hash a fork starts with, given the one at the position it starts from; nothing if that cannot be
    /// known without the key.
    pub(crate) fn fork_start(&self, branch: &BranchId, from: &Position, hash: Hash) -> Option<Hash> {
        match self {
            Self::Open => Some(hash),
            Self::Keyed(key) => Some(fork_start(key, branch, from, hash)),
            Self::Unknown => None,
        }
    }
}

/// What a frame is written with.
enum Pen<'a> {
    Plain,
    Signed(&'a KeyRing),
    Main(&'a KeyRing),
    Data(Arc<DataKey>),
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
    keychain: Keychain,
    /// Encrypts only for sessions it has learned of.
    is_strict: bool,
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
            keychain: Keychain::default(),
            is_strict: false,
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
        self.protection = Protection::Signed(Arc::new(ring));
        self
    }

    /// Encrypts payloads, titles and metadata. In a store that keeps [`Values`](crate::values::Values), each
    /// session has a data key of its own, wrapped by the active key of the ring; in others, the active key
    /// itself is used.
    #[must_use]
    pub fn with_encryption(mut self, ring: KeyRing) -> Self {
        let ring = Arc::new(ring);
        self.protection = Protection::Encrypted { ring: Some(Arc::clone(&ring)), service: ring };
        self
    }

    /// Encrypts as [`Codec::with_encryption`] does, with data keys that a service wraps.
    #[must_use]
    pub fn with_key_service(mut self, service: Arc<dyn KeyService>) -> Self {
        let ring = match self.protection {
            Protection::Encrypted { ring, .. } => ring,
            _ => None,
        };
        self.protection = Protection::Encrypted { ring, service };
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
        matches!(self.protection, Protection::Encrypted { .. })
    }

    /// Returns whether everything it writes is signed or encrypted.
    pub fn protects(&self) -> bool {
        !matches!(self.protection, Protection::None)
    }

    /// What data keys are wrapped with, if it encrypts.
    pub(crate) fn key_service(&self) -> Option<&Arc<dyn KeyService>> {
        match &self.protection {
            Protection::Encrypted { service, .. } => Some(service),
            _ => None,
        }
    }

    /// From now on, encrypts only for sessions it has learned of: never with the main key what has a data key.
    pub(crate) fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// The same codec with its own view of which keys sessions have: only this one.
    pub(crate) fn apart(&self, header: &SessionHeader, standing: Standing) -> Self {
        let keychain = Keychain::default();
        keychain.put(header.key.clone(), header.genesis, standing);
        Self {
            limits: self.limits,
            redaction: self.redaction.clone(),
            compression: self.compression,
            protection: self.protection.clone(),
            accepts_unprotected: self.accepts_unprotected,
            keychain,
            is_strict: self.is_strict,
        }
    }

    /// Remembers how it stands to a session.
    pub(crate) fn learn(&self, header: &SessionHeader, standing: Standing) {
        self.keychain.put(header.key.clone(), header.genesis, standing);
    }

    /// Forgets the key of a session.
    pub(crate) fn forget(&self, session: &SessionKey) {
        self.keychain.forget(session);
    }

    /// Returns whether it has learned how it stands to a session.
    pub(crate) fn has_learned(&self, session: &SessionKey) -> bool {
        self.keychain.get(session).is_some()
    }

    /// Returns whether the data key of exactly that session is at hand.
    pub(crate) fn knows(&self, header: &SessionHeader) -> bool {
        let Some(learned) = self.keychain.learned(&header.key) else { return false };
        let of_it = matches!(learned.standing, Standing::Data(data) if data.incarnation == header.incarnation);
        of_it && learned.genesis == header.genesis
    }

    /// How it stands to a session without a data key, by the key that its header names.
    pub(crate) fn standing_without_data_key(&self, header: &SessionHeader) -> Standing {
        let refused = |key: String, message: String| Standing::Refused { key, message };
        match header.key_named() {
            HeaderKey::Data(key) if self.encrypts() => {
                let message = "its data key is gone: it was erased, or the key is in another store".to_owned();
                refused(key, message)
            }
            HeaderKey::Data(key) => refused(key, "the session is encrypted, and no encryption key was given".into()),
            HeaderKey::Main(key) if self.protection.ring().is_none_or(|ring| ring.get(&key).is_none()) => {
                let message = format!("the session is protected by the key `{key}`, which was not given");
                refused(key, message)
            }
            // Of a session from before headers were sealed, its beginning tells whether a key is needed.
            HeaderKey::None if matches!(self.root(header), Root::Unknown) => {
                refused(String::new(), "the session is signed or encrypted with a key that was not given".to_owned())
            }
            HeaderKey::Main(_) | HeaderKey::None => Standing::Open,
        }
    }

    /// What frames of a session are written with.
    fn pen(&self, session: &SessionKey) -> Result<Pen<'_>> {
        let standing = self.keychain.get(session);
        if let Some(error) = standing.as_ref().and_then(Standing::refusal) {
            return Err(error);
        }
        match (&self.protection, standing) {
            (Protection::None, _) => Ok(Pen::Plain),
            (Protection::Signed(ring), _) => Ok(Pen::Signed(ring)),
            (Protection::Encrypted { .. }, Some(Standing::Data(data))) => Ok(Pen::Data(data)),
            (Protection::Encrypted { ring: Some(ring), .. }, standing) if standing.is_some() || !self.is_strict => {
                Ok(Pen::Main(ring))
            }
            (Protection::Encrypted { .. }, _) => Err(not_opened(session)),
        }
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

    /// Returns the bytes of the records of a frame as JSON.
    pub(crate) fn plain_len(&self, place: Place<'_>, frame: &Frame) -> Result<usize, Damage> {
        let payload = self.open_payload(place, frame).map_err(|error| damage(place, frame, error))?;
        Ok(payload.len())
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
        if frame.has_data_key() {
            return self.check_sealed_hash(place, frame);
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

    /// Checks the hash of a frame with a data key, and its content if the key is at hand. In an export that
    /// was decrypted there is nothing to compute it from.
    fn check_sealed_hash(&self, place: Place<'_>, frame: &Frame) -> Result<(), Damage> {
        let damaged = |error| damage(place, frame, error);
        if !frame.is_sealed() {
            return Ok(());
        }
        if let Some(elsewhere) = frame.elsewhere() {
            let detail = format!("its content lies in {}", elsewhere.place);
            return Err(damaged(FrameError::new(DamageKind::Elsewhere, detail)));
        }
        if sealed_hash(place.branch, frame) != frame.hash {
            return Err(damaged(FrameError::new(DamageKind::Chain, "its hash does not fit its content")));
        }
        match self.data_key(place.session, &frame.key) {
            Some(_) => self.open_payload(place, frame).map(drop).map_err(damaged),
            None => Ok(()),
        }
    }

    fn data_key(&self, session: &SessionKey, id: &str) -> Option<Arc<DataKey>> {
        self.keychain.data(session).filter(|data| data.id == id)
    }

    /// The hash a fork in the middle of a batch starts with. At the end of a batch it is the
    /// batch's own.
    pub fn fork_hash(batch_hash: Hash, batch_last: Seq, at: Seq) -> Hash {
        fork_hash(batch_hash, batch_last, at)
    }

    /// The start of a session's chain. It binds the parts of the header that never change.
    pub fn genesis(&self, header: &SessionHeader) -> Hash {
        self.genesis_under(header, self.keychain.data(&header.key).as_deref())
    }

    /// The same under a data key, if there is one.
    pub(crate) fn genesis_under(&self, header: &SessionHeader, data: Option<&DataKey>) -> Hash {
        match data {
            Some(data) => genesis_hash(Some(&data.keys.chain), header, Era::Sealed),
            None => match self.protection.ring() {
                Some(ring) => genesis_hash(Some(&ring.active().chain), header, Era::Sealed),
                None => genesis_hash(None, header, Era::First),
            },
        }
    }

    /// The same as sessions began before headers were sealed.
    pub(crate) fn first_genesis(&self, header: &SessionHeader) -> Hash {
        genesis_hash(self.protection.ring().map(|ring| &*ring.active().chain), header, Era::First)
    }

    /// Returns whether a header fits its genesis under any key there is.
    pub fn check_genesis(&self, header: &SessionHeader) -> bool {
        let plain = || genesis_hash(None, header, Era::First) == header.genesis;
        match self.root(header) {
            Root::Keyed(_) => true,
            Root::Open => !self.protects() || self.accepts_unprotected || !plain(),
            Root::Unknown => false,
        }
    }

    /// What the beginning of a session's chain says about its key.
    pub(crate) fn root(&self, header: &SessionHeader) -> Root {
        let begins = |key: Option<&[u8; 32]>, era| genesis_hash(key, header, era) == header.genesis;
        if let Some(Standing::Data(data)) = self.keychain.get(&header.key)
            && begins(Some(&data.keys.chain), Era::Sealed)
        {
            return Root::Keyed(data.keys.chain.clone());
        }
        for keys in self.protection.ring().into_iter().flat_map(KeyRing::all) {
            if begins(Some(&keys.chain), Era::Sealed) {
                return Root::Keyed(keys.chain.clone());
            }
            if begins(Some(&keys.chain), Era::First) {
                return Root::Open;
            }
        }
        if begins(None, Era::First) { Root::Open } else { Root::Unknown }
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
        let pen = self.pen(place.session)?;
        match &pen {
            Pen::Plain => frame.hash = chain_hash(None, place.branch, &frame, &payload),
            Pen::Signed(ring) | Pen::Main(ring) => {
                frame.flags |= KEYED;
                frame.key = ring.active_id().to_owned();
                frame.hash = chain_hash(Some(&ring.active().chain), place.branch, &frame, &payload);
            }
            // Its hash covers what is sealed, so it comes last.
            Pen::Data(data) => {
                frame.flags |= DATA_KEY;
                frame.key.clone_from(&data.id);
            }
        }
        let payload = match self.compress(&payload)? {
            Some(compressed) => {
                frame.flags |= COMPRESSED;
                compressed
            }
            None => payload,
        };
        let mut sealed = |keys: &DerivedKeys| {
            frame.flags |= SEALED;
            seal(keys, place, &frame, &payload)
        };
        let payload = match &pen {
            Pen::Plain | Pen::Signed(_) => payload,
            Pen::Main(ring) => sealed(ring.active())?,
            Pen::Data(data) => sealed(&data.keys)?,
        };
        frame.payload = payload.into();
        if frame.has_data_key() {
            frame.hash = sealed_hash(place.branch, &frame);
        }
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
        if self.protects() && !frame.is_protected() && !self.accepts_unprotected {
            let detail = "was written without a key, and this codec demands one";
            return Err(FrameError::new(DamageKind::Unprotected, detail));
        }
        let mut payload = Cow::Borrowed(&frame.payload[..]);
        if frame.is_sealed() {
            let data = self.data_key(place.session, &frame.key).filter(|_| frame.has_data_key());
            let main = || ring.filter(|_| !frame.has_data_key()).and_then(|ring| ring.get(&frame.key));
            let Some(keys) = data.as_ref().map(|data| &data.keys).or_else(main) else {
                let refused = self.keychain.get(place.session).filter(|_| frame.has_data_key());
                return Err(match refused {
                    Some(Standing::Refused { key, message }) => FrameError::key(&key, message),
                    _ => {
                        let detail = format!("is encrypted with the key `{}`, which was not given", frame.key);
                        FrameError::key(&frame.key, detail)
                    }
                });
            };
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
