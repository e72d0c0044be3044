//! Payloads made smaller, and back. Setting up takes longer than a small payload does, so every thread keeps
//! what it has set up.

use std::cell::RefCell;
use std::io::{self, Read as _};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

use super::frame::FrameError;
use crate::session::DamageKind;

thread_local! {
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(super) fn compressed(payload: &[u8], level: i32) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != level) {
            *kept = Some((level, Compressor::new(level)?));
        }
        match kept {
            Some((_, compressor)) => compressor.compress(payload),
            None => zstd::bulk::compress(payload, level),
        }
    })
}

/// What was compressed, unless it is more than `limit` bytes.
pub(super) fn decompressed(payload: &[u8], limit: usize) -> Result<Vec<u8>, FrameError> {
    match at_once(payload, limit) {
        Some(plain) => Ok(plain),
        None => bit_by_bit(payload, limit),
    }
}

/// The usual case: it says how large it is, and is. Nothing for whatever is not so.
fn at_once(payload: &[u8], limit: usize) -> Option<Vec<u8>> {
    let size = usize::try_from(get_frame_content_size(payload).ok()??).ok()?;
    if size > limit {
        return None;
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Some(Decompressor::new().ok()?);
        }
        kept.as_mut()?.decompress(payload, size).ok()
    })
}

fn bit_by_bit(payload: &[u8], limit: usize) -> Result<Vec<u8>, FrameError> {
    let wrong = |error: io::Error| FrameError::new(DamageKind::Format, format!("cannot be decompressed: {error}"));
    let decoder = zstd::stream::read::Decoder::with_buffer(payload).map_err(wrong)?;
    let mut plain = Vec::with_capacity((payload.len() * 4).min(limit));
    decoder.take(limit as u64 + 1).read_to_end(&mut plain).map_err(wrong)?;
    if plain.len() > limit {
        return Err(FrameError::new(DamageKind::Format, format!("decompresses to more than {limit} bytes")));
    }
    Ok(plain)
}
