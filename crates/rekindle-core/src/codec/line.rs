//! The envelope as one line of JSON, for stores that people read with a pager.
//!
//! A line begins with a checksum and a length of fixed width, so that a torn or altered line
//! is noticed before it is parsed: `{"crc":"1a2b3c4d","len":"00000123",…}`. The checksum and
//! the length cover everything behind that prefix. Whatever else a store wants to say about a
//! frame stands in its `store` field.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::frame::{BASE, COMPRESSED, DATA_KEY, ELSEWHERE, FORMAT_VERSION, Frame, FrameError, KEYED, SEALED};
use super::keys::MAX_KEY_ID;
use crate::position::{Hash, Seq};
use crate::record::{Marks, is_default};
use crate::session::DamageKind;
use crate::time::Timestamp;

const PREFIX: usize = r#"{"crc":"12345678","len":"12345678","#.len();
const CHECKSUM_END: usize = r#"{"crc":"12345678"#.len();

#[derive(Serialize, Deserialize)]
struct Line<'a, S> {
    v: u8,
    first: Seq,
    last: Seq,
    at: Timestamp,
    #[serde(borrow)]
    nonce: Cow<'a, str>,
    prev: Hash,
    hash: Hash,
    #[serde(default, skip_serializing_if = "is_default")]
    marks: Marks,
    #[serde(default, skip_serializing_if = "is_default")]
    base: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    signed: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    data_key: bool,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    key: Cow<'a, str>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    store: Option<S>,
    /// The records themselves, when they are plain.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    records: Option<&'a RawValue>,
    /// Base64 of zstd.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    zstd: Option<Cow<'a, str>>,
    /// Base64 of ciphertext.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    sealed: Option<Cow<'a, str>>,
    /// Base64 of the ciphertext of zstd.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    sealed_zstd: Option<Cow<'a, str>>,
    /// Base64 of a reference to any of these, behind the digit of its form.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    elsewhere: Option<Cow<'a, str>>,
}

fn none<S>() -> Option<S> {
    None
}

impl Frame {
    /// The frame as one line with its newline; `store` stands in the field of that name.
    pub fn to_line<S: Serialize>(&self, store: Option<S>) -> Result<Vec<u8>, FrameError> {
        let encoded = || Some(Cow::Owned(STANDARD.encode(&self.payload)));
        let form = self.flags & (COMPRESSED | SEALED | ELSEWHERE);
        let text = std::str::from_utf8(&self.payload).ok().filter(|_| form == 0);
        let records = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
        if form == 0 && (records.is_none() || memchr::memchr2(b'\n', b'\r', &self.payload).is_some()) {
            return Err(FrameError::new(DamageKind::Format, "a plain payload is not one line of JSON"));
        }
        let line = Line {
            v: self.version(),
            first: self.first,
            last: self.last,
            at: self.at,
            nonce: Cow::Owned(format!("{:032x}", u128::from_be_bytes(self.nonce))),
            prev: self.prev,
            hash: self.hash,
            marks: self.marks,
            base: self.is_base(),
            signed: self.is_keyed(),
            data_key: self.has_data_key(),
            key: Cow::Borrowed(&self.key),
            store,
            records,
            zstd: (form == COMPRESSED).then(encoded).flatten(),
            sealed: (form == SEALED).then(encoded).flatten(),
            sealed_zstd: (form == SEALED | COMPRESSED).then(encoded).flatten(),
            elsewhere: (form & ELSEWHERE != 0)
                .then(|| Cow::Owned(format!("{}{}", form & !ELSEWHERE, STANDARD.encode(&self.payload)))),
        };
        let mut out = Vec::with_capacity(PREFIX + 400 + self.payload.len() * 4 / 3);
        out.extend_from_slice(&[b' '; PREFIX - 1]);
        serde_json::to_writer(&mut out, &line).expect("a line can always be written to memory");
        seal_line(&mut out)?;
        Ok(out)
    }

    /// Reads a line, without its newline.
    pub fn from_line<S: DeserializeOwned>(bytes: &[u8]) -> Result<(Self, Option<S>), FrameError> {
        let format = |detail: &'static str| FrameError::new(DamageKind::Format, detail);
        let body = open_line(bytes)?;
        #[derive(Deserialize)]
        struct Version {
            v: u8,
        }
        let mut text = Vec::with_capacity(body.len() + 1);
        text.push(b'{');
        text.extend_from_slice(body);
        let version: Version = serde_json::from_slice(&text).map_err(|_| format("is not a frame"))?;
        if version.v > FORMAT_VERSION {
            return Err(FrameError::version(version.v));
        }
        let line: Line<'_, S> = serde_json::from_slice(&text).map_err(|_| format("is not a frame"))?;
        let decode = |text: &str| STANDARD.decode(text).map(Bytes::from).map_err(|_| format("is not base64"));
        let (form, payload) = match (&line.records, &line.zstd, &line.sealed, &line.sealed_zstd, &line.elsewhere) {
            (Some(records), None, None, None, None) => (0, Bytes::copy_from_slice(records.get().as_bytes())),
            (None, Some(text), None, None, None) => (COMPRESSED, decode(text)?),
            (None, None, Some(text), None, None) => (SEALED, decode(text)?),
            (None, None, None, Some(text), None) => (SEALED | COMPRESSED, decode(text)?),
            (None, None, None, None, Some(text)) => {
                let (digit, text) = text.split_at_checked(1).ok_or_else(|| format("has an empty reference"))?;
                let form = digit.parse().ok().filter(|form| form & !(COMPRESSED | SEALED) == 0);
                (form.ok_or_else(|| format("has a reference of no known form"))? | ELSEWHERE, decode(text)?)
            }
            _ => return Err(format("has no payload, or more than one")),
        };
        if line.first > line.last
            || line.first == Seq::ZERO
            || line.last > Seq::MAX
            || line.key.len() > MAX_KEY_ID
            || line.data_key != (line.v == 2)
        {
            return Err(format("its fields contradict each other"));
        }
        let nonce = u128::from_str_radix(&line.nonce, 16).map_err(|_| format("its nonce is not a number"))?;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = form | flag(line.base, BASE) | flag(line.signed, KEYED) | flag(line.data_key, DATA_KEY);
        let frame = Self {
            first: line.first,
            last: line.last,
            at: line.at,
            nonce: nonce.to_be_bytes(),
            prev: line.prev,
            hash: line.hash,
            marks: line.marks,
            flags,
            key: line.key.into_owned(),
            payload,
        };
        if form & ELSEWHERE != 0 && frame.elsewhere().is_none() {
            return Err(format("its reference cannot be read"));
        }
        Ok((frame, line.store))
    }
}

/// The prefix of a line with that body.
fn prefix_of(body: &[u8]) -> String {
    format!(r#"{{"crc":"{:08x}","len":"{:08}","#, crc32fast::hash(body), body.len())
}

/// Puts the prefix before a JSON object that was written `PREFIX - 1` bytes into `out`, and a
/// newline behind it.
fn seal_line(out: &mut Vec<u8>) -> Result<(), FrameError> {
    crate::json::put_on_one_line(&mut out[PREFIX..]);
    let prefix = prefix_of(&out[PREFIX..]);
    if prefix.len() != PREFIX {
        return Err(FrameError::new(DamageKind::Format, "a line is longer than 99,999,999 bytes"));
    }
    out[..PREFIX].copy_from_slice(prefix.as_bytes());
    out.push(b'\n');
    Ok(())
}

/// Checks the prefix of a line and gives what stands behind it.
fn open_line(bytes: &[u8]) -> Result<&[u8], FrameError> {
    let format = |detail: &'static str| FrameError::new(DamageKind::Format, detail);
    let (prefix, body) = bytes.split_at_checked(PREFIX).ok_or_else(|| format("is shorter than the start of a line"))?;
    let expected = prefix_of(body);
    if prefix == expected.as_bytes() {
        return Ok(body);
    }
    if !prefix.starts_with(br#"{"crc":""#) {
        return Err(format("does not begin as a line does"));
    }
    if prefix[CHECKSUM_END..] != expected.as_bytes()[CHECKSUM_END..] {
        return Err(format("does not have the length it declares"));
    }
    Err(FrameError::new(DamageKind::Checksum, "the checksum does not fit the line"))
}

/// A JSON object as a checked line with its newline: what frames use, for other stored objects.
pub fn object_to_line<T: Serialize>(object: &T) -> Result<Vec<u8>, FrameError> {
    let mut out = vec![b' '; PREFIX - 1];
    serde_json::to_writer(&mut out, object)
        .map_err(|error| FrameError::new(DamageKind::Format, format!("cannot be written: {error}")))?;
    seal_line(&mut out)?;
    Ok(out)
}

/// Reads what [`object_to_line`] wrote, with or without the newline. `T` must not be an empty object.
pub fn object_from_line<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let body = open_line(bytes.strip_suffix(b"\n").unwrap_or(bytes))?;
    let text = [b"{", body].concat();
    serde_json::from_slice(&text)
        .map_err(|error| FrameError::new(DamageKind::Format, format!("does not have the expected fields: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::frame::example;
    use super::*;

    #[test]
    fn lines_are_json_and_round_trip() {
        for flags in [0, COMPRESSED, SEALED | KEYED, SEALED | COMPRESSED | KEYED | BASE] {
            let frame = Frame { flags, ..example() };
            let line = frame.to_line(Some(7u8)).unwrap();
            assert!(serde_json::from_slice::<serde_json::Value>(&line).unwrap().is_object());
            let (read, store) = Frame::from_line::<u8>(line.strip_suffix(b"\n").unwrap()).unwrap();
            assert_eq!((read, store), (frame.clone(), Some(7)));
            let small = frame.detach("there");
            let line = small.to_line(None::<()>).unwrap();
            assert_eq!(Frame::from_line::<()>(line.strip_suffix(b"\n").unwrap()).unwrap().0, small);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let line = example().to_line(None::<()>).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        for index in 0..line.len() {
            for bit in 0..8 {
                let mut damaged = line.to_vec();
                damaged[index] ^= 1 << bit;
                assert!(Frame::from_line::<()>(&damaged).is_err(), "byte {index} bit {bit}");
            }
            assert!(Frame::from_line::<()>(&line[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn objects_round_trip() {
        let line = object_to_line(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(object_from_line::<serde_json::Value>(&line).unwrap()["a"], 1);
        assert!(object_from_line::<serde_json::Value>(b"{\"a\":1}").is_err());
    }
}
