//! Keys: a ring of secrets by id, one of them active, and the data keys of sessions. Old keys stay for
//! reading.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// The longest key id.
pub(super) const MAX_KEY_ID: usize = 64;

/// What one secret is used for, derived once. Separate purposes never share a key.
pub(super) struct DerivedKeys {
    pub(super) seal: Zeroizing<[u8; 32]>,
    pub(super) nonce: Zeroizing<[u8; 32]>,
    pub(super) chain: Zeroizing<[u8; 32]>,
    /// Of main keys: what data keys are wrapped with.
    pub(super) wrap: Zeroizing<[u8; 32]>,
    /// Of main keys: what exported files and receipts are signed with.
    pub(super) sign: Zeroizing<[u8; 32]>,
}

impl DerivedKeys {
    fn of(secret: &[u8; 32]) -> Self {
        let derive = |purpose: &str| Zeroizing::new(blake3::derive_key(purpose, secret));
        Self {
            seal: derive("rekindle 2026-11 frame sealing v1"),
            nonce: derive("rekindle 2026-11 frame nonce v1"),
            chain: derive("rekindle 2026-11 frame chain v1"),
            wrap: derive("rekindle 2026-11 data key wrapping v1"),
            sign: derive("rekindle 2026-11 document signing v1"),
        }
    }
}

/// The key one session is sealed with. Whoever destroys it erases the session, wherever its frames are.
pub(crate) struct DataKey {
    pub(super) id: String,
    pub(super) incarnation: String,
    pub(super) keys: DerivedKeys,
}

impl DataKey {
    pub(crate) fn new(id: String, incarnation: String, secret: &[u8; 32]) -> Self {
        Self { id, incarnation, keys: DerivedKeys::of(secret) }
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Secrets by id. Writing uses the active one; reading uses the one a frame names. To rotate,
/// build a ring with the new key active and the old ones added; nothing needs to stop.
///
/// ```
/// use rekindle_core::codec::KeyRing;
/// let ring = KeyRing::new("2026-11", [1; 32])?.with_old("2026-05", [2; 32])?;
/// assert_eq!(ring.active_id(), "2026-11");
/// # Ok::<(), rekindle_core::Error>(())
/// ```
pub struct KeyRing {
    active: String,
    keys: BTreeMap<String, DerivedKeys>,
}

impl KeyRing {
    /// A ring with one key, the active one.
    pub fn new(id: impl Into<String>, secret: [u8; 32]) -> Result<Self> {
        let active = id.into();
        Self { active: active.clone(), keys: BTreeMap::new() }.with_old(active, secret)
    }

    /// Adds a key for reading.
    pub fn with_old(mut self, id: impl Into<String>, secret: [u8; 32]) -> Result<Self> {
        let id = id.into();
        if id.is_empty() || id.len() > MAX_KEY_ID || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(format!("a key id has 1 to {MAX_KEY_ID} visible ASCII characters")));
        }
        let secret = Zeroizing::new(secret);
        if self.keys.insert(id.clone(), DerivedKeys::of(&secret)).is_some() {
            return Err(Error::invalid(format!("the key id `{id}` is given twice")));
        }
        Ok(self)
    }

    /// The id of the key new frames are written with.
    pub fn active_id(&self) -> &str {
        &self.active
    }

    pub(super) fn active(&self) -> &DerivedKeys {
        self.keys.get(&self.active).expect("the active key is put in when the ring is made")
    }

    pub(super) fn get(&self, id: &str) -> Option<&DerivedKeys> {
        self.keys.get(id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &DerivedKeys> {
        self.keys.values()
    }
}

impl fmt::Debug for KeyRing {
    /// Ids only: secrets are never shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("active", &self.active).field("ids", &self.keys.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_check_ids_and_hide_secrets() {
        assert!(KeyRing::new("", [0; 32]).is_err());
        assert!(KeyRing::new("a b", [0; 32]).is_err());
        assert!(KeyRing::new("a", [0; 32]).unwrap().with_old("a", [1; 32]).is_err());
        let shown = format!("{:?}", KeyRing::new("a", [0xAB; 32]).unwrap());
        assert!(
            shown.contains("\"a\"") && !shown.contains("171") && !shown.to_lowercase().contains("ab, ab"),
            "{shown}"
        );
    }
}
