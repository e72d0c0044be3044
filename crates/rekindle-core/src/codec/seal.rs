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

fn frame_nonce(keys: &DerivedKeys, frame: &Frame) -> XNonce {
    let hash = blake3::keyed_hash(&keys.nonce, &frame.hash.0);
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(&hash.as_bytes()[..24]);
    nonce
}

pub(super) fn seal(keys: &DerivedKeys, place: Place<'_>, frame: &Frame, plain: &[u8]) -> Result<Vec<u8>> {
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    let aad = associated_data(place, frame);
    cipher
        .encrypt(&frame_nonce(keys, frame), Payload { msg: plain, aad: &aad })
        .map_err(|_| Error::invalid("the payload is too large to encrypt"))
}

pub(super) fn unseal(
    keys: &DerivedKeys,
    place: Place<'_>,
    frame: &Frame,
    sealed: &[u8],
) -> Result<Vec<u8>, FrameError> {
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    let aad = associated_data(place, frame);
    cipher.decrypt(&frame_nonce(keys, frame), Payload { msg: sealed, aad: &aad }).map_err(|_| {
        FrameError::new(DamageKind::Sealed, "does not open under its key: altered, moved or from another place")
    })
}

/// Seals a small text for a header: `<key id> <base64 of nonce and ciphertext>`.
pub(super) fn seal_text(ring: &KeyRing, session: &SessionKey, plain: &[u8]) -> Result<String> {
    let keys = ring.active();
    let mut hasher = blake3::Hasher::new_keyed(&keys.nonce);
    hasher.update(b"header").update(&text_binding(session)).update(plain);
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(&hasher.finalize().as_bytes()[..24]);
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    let sealed = cipher
        .encrypt(&nonce, Payload { msg: plain, aad: &text_binding(session) })
        .map_err(|_| Error::invalid("the header is too large to encrypt"))?;
    let encoded = STANDARD.encode([&nonce[..], &sealed].concat());
    Ok(format!("{} {encoded}", ring.active_id()))
}

/// Opens what [`seal_text`] sealed.
pub(super) fn open_text(ring: Option<&KeyRing>, session: &SessionKey, text: &str) -> Result<Vec<u8>> {
    let wrong = || Error::corrupt("the sealed header is damaged");
    let (id, encoded) = text.split_once(' ').ok_or_else(wrong)?;
    let keys = ring.and_then(|ring| ring.get(id)).ok_or_else(|| {
        let message = format!("the header is encrypted with the key `{id}`, which was not given");
        Error::new(ErrorKind::KeyMissing { key: id.to_owned() }, message)
    })?;
    let bytes = STANDARD.decode(encoded).map_err(|_| wrong())?;
    let (head, sealed) = bytes.split_at_checked(24).ok_or_else(wrong)?;
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(head);
    let cipher = XChaCha20Poly1305::new((&*keys.seal).into());
    cipher.decrypt(&nonce, Payload { msg: sealed, aad: &text_binding(session) }).map_err(|_| wrong())
}

fn text_binding(session: &SessionKey) -> Vec<u8> {
    let (namespace, id) = (session.namespace.as_str(), session.id.as_str());
    [b"header\0", &(namespace.len() as u64).to_le_bytes()[..], namespace.as_bytes(), id.as_bytes()].concat()
}
