//! Encryption: XChaCha20-Poly1305 with nonces derived from what is sealed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::Place;
use super::frame::{Frame, FrameError};
use super::keys::{DerivedKeys, KeyRing};
use crate::error::{Error, ErrorKind, Result};
use crate::id::SessionKey;
use crate::session::DamageKind;

/// The bytes of a nonce.
const NONCE: usize = 24;

/// What the ciphertext of a frame is bound to: its header, its session and its branch.
fn associated_data(place: Place<'_>, frame: &Frame) -> Vec<u8> {
    let mut data = Vec::with_capacity(256);
    data.extend_from_slice(&frame.bound_header());
    for part in [place.session.namespace.as_str(), place.session.id.as_str(), place.branch.as_str(), &frame.key] {
        data.extend_from_slice(&(part.len() as u64).to_le_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

/// The nonce of a message: a keyed hash of everything that is sealed and bound, so that it
/// repeats only when the whole ciphertext does.
fn synthetic_nonce(keys: &DerivedKeys, bound: &[u8], message: &[u8]) -> XNonce {
    let mut hasher = blake3::Hasher::new_keyed(&keys.nonce);
    hasher.update(&(bound.len() as u64).to_le_bytes()).update(bound).update(message);
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(&hasher.finalize().as_bytes()[..NONCE]);
    nonce
}

/// Nonce and ciphertext of a message.
pub(super) fn seal_bytes(keys: &DerivedKeys, bound: &[u8], message: &[u8]) -> Result<Vec<u8>> {
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    let nonce = synthetic_nonce(keys, bound, message);
    let sealed = cipher
        .encrypt(&nonce, Payload { msg: message, aad: bound })
        .map_err(|_| Error::invalid("there is too much to encrypt at once"))?;
    Ok([&nonce[..], &sealed].concat())
}

/// The message, if nonce and ciphertext are what [`seal_bytes`] made of it here.
pub(super) fn open_bytes(keys: &DerivedKeys, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (head, sealed) = sealed.split_at_checked(NONCE)?;
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(head);
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    cipher.decrypt(&nonce, Payload { msg: sealed, aad: bound }).ok()
}

/// Seals the payload of a frame.
pub(super) fn seal(keys: &DerivedKeys, place: Place<'_>, frame: &Frame, plain: &[u8]) -> Result<Vec<u8>> {
    seal_bytes(keys, &associated_data(place, frame), plain)
}

/// Opens what [`seal`] sealed.
pub(super) fn unseal(
    keys: &DerivedKeys,
    place: Place<'_>,
    frame: &Frame,
    sealed: &[u8],
) -> Result<Vec<u8>, FrameError> {
    open_bytes(keys, &associated_data(place, frame), sealed).ok_or_else(|| {
        FrameError::new(DamageKind::Sealed, "does not open under its key: altered, moved or from another place")
    })
}

/// Opens a header of the first era: `<key id> <base64 of nonce and ciphertext>`.
pub(super) fn open_text(ring: Option<&KeyRing>, session: &SessionKey, text: &str) -> Result<Vec<u8>> {
    let wrong = || Error::corrupt("the sealed header is damaged");
    let (id, encoded) = text.split_once(' ').ok_or_else(wrong)?;
    let keys = ring.and_then(|ring| ring.get(id)).ok_or_else(|| {
        let message = format!("the header is encrypted with the key `{id}`, which was not given");
        Error::new(ErrorKind::KeyMissing { key: id.to_owned() }, message)
    })?;
    let sealed = STANDARD.decode(encoded).map_err(|_| wrong())?;
    open_bytes(keys, &text_binding(session), &sealed).ok_or_else(wrong)
}

fn text_binding(session: &SessionKey) -> Vec<u8> {
    let (namespace, id) = (session.namespace.as_str(), session.id.as_str());
    [b"header\0", &(namespace.len() as u64).to_le_bytes()[..], namespace.as_bytes(), id.as_bytes()].concat()
}
