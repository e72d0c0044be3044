//! Wrapping data keys: by a main key of ours, or by a service that keeps it.

use std::fmt;

use async_trait::async_trait;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::keys::{DerivedKeys, KeyRing};
use crate::error::{Error, ErrorKind, Result};

/// A data key as it is stored: under a main key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// The id of the main key: 1 to 64 visible ASCII characters.
    pub key: String,
    /// The data key under it; at most 4 KiB.
    pub bytes: Vec<u8>,
}

/// Wraps data keys, so that the main key need not be where the data is.
///
/// `context` names what the secret is for. It must be given again to unwrap it: a wrapped key that was
/// moved to another session does not open.
#[async_trait]
pub trait KeyService: fmt::Debug + Send + Sync {
    /// Wraps a secret with the main key that is active.
    async fn wrap(&self, secret: &[u8; 32], context: &[u8]) -> Result<Wrapped>;

    /// Opens what [`KeyService::wrap`] gave. `KeyMissing` if there is no such main key; `Corrupt` if the
    /// bytes or the context are not those.
    async fn unwrap(&self, wrapped: &Wrapped, context: &[u8]) -> Result<Zeroizing<[u8; 32]>>;

    /// Returns whether something was wrapped with the main key that is active now.
    fn is_current(&self, wrapped: &Wrapped) -> bool;
}

#[async_trait]
impl KeyService for KeyRing {
    async fn wrap(&self, secret: &[u8; 32], context: &[u8]) -> Result<Wrapped> {
        let keys = self.active();
        let salt = salt(keys, context, secret);
        let sealed = cipher(keys).encrypt(&nonce(keys, context, &salt), Payload { msg: secret, aad: context });
        let sealed = sealed.map_err(|_| Error::invalid("a data key cannot be wrapped"))?;
        Ok(Wrapped { key: self.active_id().to_owned(), bytes: [&salt[..], &sealed].concat() })
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &[u8]) -> Result<Zeroizing<[u8; 32]>> {
        let Some(keys) = self.get(&wrapped.key) else {
            let message = format!("a data key is wrapped with the key `{}`, which was not given", wrapped.key);
            return Err(Error::new(ErrorKind::KeyMissing { key: wrapped.key.clone() }, message));
        };
        let opened = wrapped.bytes.split_at_checked(SALT).and_then(|(salt, sealed)| {
            cipher(keys).decrypt(&nonce(keys, context, salt), Payload { msg: sealed, aad: context }).ok()
        });
        let opened = opened.map(Zeroizing::new);
        let secret = opened.and_then(|opened| <[u8; 32]>::try_from(opened.as_slice()).ok());
        secret.map(Zeroizing::new).ok_or_else(|| {
            Error::corrupt(format!("a data key does not open under the key `{}`: altered, or another key", wrapped.key))
        })
    }

    fn is_current(&self, wrapped: &Wrapped) -> bool {
        wrapped.key == self.active_id()
    }
}

fn cipher(keys: &DerivedKeys) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new((&*keys.wrap).into())
}

/// Bytes in front of a wrapped key that make its nonce its own.
const SALT: usize = 12;

/// Repeats only if the whole ciphertext does.
fn salt(keys: &DerivedKeys, context: &[u8], secret: &[u8; 32]) -> [u8; SALT] {
    let mut hasher = blake3::Hasher::new_keyed(&keys.nonce);
    hasher.update(b"data key salt\0").update(secret).update(context);
    let mut salt = [0; SALT];
    salt.copy_from_slice(&hasher.finalize().as_bytes()[..SALT]);
    salt
}

fn nonce(keys: &DerivedKeys, context: &[u8], salt: &[u8]) -> XNonce {
    let mut hasher = blake3::Hasher::new_keyed(&keys.nonce);
    hasher.update(b"data key nonce\0").update(salt).update(context);
    let mut nonce = XNonce::default();
    let length = nonce.len();
    nonce.copy_from_slice(&hasher.finalize().as_bytes()[..length]);
    nonce
}
