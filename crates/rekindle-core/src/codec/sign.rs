//! Signatures over documents that leave the store: exported files and receipts.

use zeroize::Zeroizing;

use super::Codec;
use crate::position::Hash;

/// Signs the parts of a document one after the other: each signature covers everything before it.
pub(crate) struct Signer {
    id: String,
    key: Zeroizing<[u8; 32]>,
    last: Hash,
}

impl Signer {
    /// The id of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature of the next part.
    pub fn sign(&mut self, part: &[&[u8]]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.last.0);
        for piece in part {
            hasher.update(&(piece.len() as u64).to_le_bytes()).update(piece);
        }
        self.last = Hash(*hasher.finalize().as_bytes());
        self.last
    }
}

impl Codec {
    /// Signs with the active main key, if there is one.
    pub(crate) fn signer(&self) -> Option<Signer> {
        let ring = self.protection.ring()?;
        self.signer_of(ring.active_id())
    }

    /// Signs again with the key of that id, to compare.
    pub(crate) fn signer_of(&self, id: &str) -> Option<Signer> {
        let keys = self.protection.ring()?.get(id)?;
        Some(Signer { id: id.to_owned(), key: keys.sign.clone(), last: Hash::default() })
    }
}
