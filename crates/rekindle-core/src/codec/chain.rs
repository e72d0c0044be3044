//! The hash chain: what each link covers.

use super::frame::{BASE, Frame};
use crate::id::BranchId;
use crate::position::{Hash, Position, Seq};
use crate::session::SessionHeader;

/// Keyed, or else separated by its purpose.
fn hasher(key: Option<&[u8; 32]>, context: &str) -> blake3::Hasher {
    match key {
        Some(key) => blake3::Hasher::new_keyed(key),
        None => blake3::Hasher::new_derive_key(context),
    }
}

/// The hash of a frame: of what is before it, where it stands and its plain payload.
pub(super) fn chain_hash(key: Option<&[u8; 32]>, branch: &BranchId, frame: &Frame, payload: &[u8]) -> Hash {
    // The header of a frame fits one update: small ones cost more than their bytes.
    let mut fields = [0u8; 96];
    fields[..32].copy_from_slice(&frame.prev.0);
    fields[32..40].copy_from_slice(&frame.first.0.to_le_bytes());
    fields[40..48].copy_from_slice(&frame.last.0.to_le_bytes());
    fields[48..56].copy_from_slice(&frame.at.0.to_le_bytes());
    fields[56..72].copy_from_slice(&frame.nonce);
    fields[72] = frame.flags & BASE;
    fields[73] = frame.marks.0;
    fields[80..88].copy_from_slice(&(branch.as_str().len() as u64).to_le_bytes());
    fields[88..96].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let mut hasher = hasher(key, "rekindle 2026-11 frame chain unkeyed v1");
    hasher.update(&fields).update(branch.as_str().as_bytes()).update(payload);
    Hash(*hasher.finalize().as_bytes())
}

/// The hash of a frame that was sealed with a data key: of its header, its key id and its sealed payload.
pub(super) fn sealed_hash(branch: &BranchId, frame: &Frame) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key("rekindle 2026-11 sealed frame chain v2");
    hasher.update(&frame.bound_header());
    for part in [branch.as_str().as_bytes(), frame.key.as_bytes(), &frame.payload] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    Hash(*hasher.finalize().as_bytes())
}

/// How a session's chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// The header has no seal, and a fork begins with the hash of the record it starts from.
    First,
    /// The header is sealed, and the beginning of a fork is keyed. For protected sessions only.
    Sealed,
}

/// The start of a session's chain, bound to what never changes in its header.
pub(super) fn genesis_hash(key: Option<&[u8; 32]>, header: &SessionHeader, era: Era) -> Hash {
    let mut hasher = hasher(key, "rekindle 2026-11 session genesis v1");
    let name = header.imported_from.as_ref().unwrap_or(&header.key);
    let parent = header.parent.as_ref();
    let parts = [
        Some(match era {
            Era::First => "genesis",
            Era::Sealed => "genesis 2",
        }),
        Some(name.namespace.as_str()),
        Some(name.id.as_str()),
        Some(header.incarnation.as_str()),
        header.agent.as_deref(),
        parent.map(|parent| parent.namespace.as_str()),
        parent.map(|parent| parent.id.as_str()),
    ];
    for part in parts {
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hasher.update(&length.to_le_bytes()).update(part.unwrap_or_default().as_bytes());
    }
    Hash(*hasher.finalize().as_bytes())
}

/// The hash a fork in the middle of a batch starts with. At the end of a batch it is the
/// batch's own.
pub(super) fn fork_hash(batch_hash: Hash, batch_last: Seq, at: Seq) -> Hash {
    if at == batch_last {
        return batch_hash;
    }
    let mut hasher = blake3::Hasher::new_derive_key("rekindle 2026-11 fork inside a batch v1");
    hasher.update(&batch_hash.0).update(&at.0.to_le_bytes());
    Hash(*hasher.finalize().as_bytes())
}

/// The hash a fork of a protected session starts with: only who has the key can make a branch.
pub(super) fn fork_start(key: &[u8; 32], branch: &BranchId, from: &Position, hash: Hash) -> Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in [b"fork 2".as_slice(), branch.as_str().as_bytes(), from.branch.as_str().as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.update(&from.seq.0.to_le_bytes()).update(&hash.0);
    Hash(*hasher.finalize().as_bytes())
}

/// The hash of what a header says, keyed if there is a key.
pub(super) fn header_hash(key: Option<&[u8; 32]>, bound: &[u8]) -> Hash {
    let mut hasher = hasher(key, "rekindle 2026-11 session header v2");
    hasher.update(b"header 2").update(bound);
    Hash(*hasher.finalize().as_bytes())
}

/// The nonce of a base's frames: what they stand for and how many there are.
pub(super) fn base_nonce(seq: Seq, parts: usize) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&seq.0.to_le_bytes());
    nonce[8..].copy_from_slice(&(parts as u64).to_le_bytes());
    nonce
}
