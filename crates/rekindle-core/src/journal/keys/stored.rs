//! The stored form of a data key.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::codec::Wrapped;
use crate::error::{Error, ErrorKind, Result};
use crate::id::SessionId;

/// The version of a stored key.
const VERSION: u8 = 1;

/// A data key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredKey {
    pub id: String,
    pub wrapped: Wrapped,
    pub notes: Notes,
}

/// Notes beside a data key. Most keys have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notes {
    /// The stores it was copied to, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// Archives of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<ArchiveNote>,
    /// Set before an orphaned key is destroyed, see [`super::tend`]: another text each time, so that only who set it
    /// destroys the key. It is valid as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<String>,
}

/// The session the key belongs to, which may have left the store, and the places of archives that need the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ArchiveNote {
    pub session: SessionId,
    pub incarnation: String,
    pub places: Vec<String>,
}

impl StoredKey {
    pub fn new(id: &str, wrapped: Wrapped) -> Self {
        Self { id: id.to_owned(), wrapped, notes: Notes::default() }
    }

    pub fn to_bytes(&self) -> Result<Bytes> {
        let limit = |what, length: usize| Error::limit(what, length as u64, 255);
        let mut out = BytesMut::with_capacity(100);
        out.put_u8(VERSION);
        for text in [&self.id, &self.wrapped.key] {
            out.put_u8(u8::try_from(text.len()).map_err(|_| limit("bytes of a key id", text.len()))?);
            out.put_slice(text.as_bytes());
        }
        let length = self.wrapped.bytes.len();
        out.put_u16_le(
            u16::try_from(length).map_err(|_| Error::limit("bytes of a wrapped key", length as u64, 65_535))?,
        );
        out.put_slice(&self.wrapped.bytes);
        out.put_slice(&self.notes.to_bytes()?);
        Ok(out.freeze())
    }

    pub fn from_bytes(mut bytes: Bytes) -> Result<Self> {
        let damaged = || Error::corrupt("the stored data key is damaged");
        let version = bytes.try_get_u8().map_err(|_| damaged())?;
        if version != VERSION {
            let (found, supported) = (u32::from(version), u32::from(VERSION));
            let kind = ErrorKind::VersionTooNew { what: "data key".into(), found, supported };
            return Err(Error::new(kind, format!("data key version {version}; this build reads {VERSION}")));
        }
        let mut text = || {
            let length = usize::from(bytes.try_get_u8().ok()?);
            let text = bytes.get(..length)?.to_vec();
            bytes.advance(length);
            String::from_utf8(text).ok()
        };
        let (id, key) = (text().ok_or_else(damaged)?, text().ok_or_else(damaged)?);
        let length = usize::from(bytes.try_get_u16_le().map_err(|_| damaged())?);
        let wrapped = bytes.get(..length).ok_or_else(damaged)?.to_vec();
        bytes.advance(length);
        let notes = Notes::from_bytes(&bytes).ok_or_else(damaged)?;
        Ok(Self { id, wrapped: Wrapped { key, bytes: wrapped }, notes })
    }
}

impl Notes {
    /// Nothing if there are none, a list of places if there are only copies, else an object.
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let only_copies = self.archived.is_none() && self.leaving.is_none();
        let written = match (only_copies, self.copies.is_empty()) {
            (true, true) => return Ok(Vec::new()),
            (true, false) => serde_json::to_vec(&self.copies),
            (false, _) => serde_json::to_vec(self),
        };
        written.map_err(|error| Error::invalid("a place cannot be written").because(error))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes.first() {
            None => Some(Self::default()),
            Some(b'{') => serde_json::from_slice(bytes).ok(),
            Some(_) => Some(Self { copies: serde_json::from_slice(bytes).ok()?, ..Self::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_round_trip_and_damage_is_no_panic() {
        let wrapped = Wrapped { key: "default".into(), bytes: vec![7; 60] };
        let copies = vec!["postgres://db".to_owned()];
        let archived = ArchiveNote {
            session: SessionId::new("s").unwrap(),
            incarnation: "00".to_owned(),
            places: vec!["s3://bucket".to_owned()],
        };
        let cases = [
            Notes::default(),
            Notes { copies: copies.clone(), ..Notes::default() },
            Notes { leaving: Some("1".to_owned()), ..Notes::default() },
            Notes { archived: Some(archived.clone()), ..Notes::default() },
            Notes { copies, archived: Some(archived), leaving: Some("1".to_owned()) },
        ];
        for notes in cases {
            let stored = StoredKey { notes, ..StoredKey::new("d1", wrapped.clone()) };
            let bytes = stored.to_bytes().unwrap();
            let plain = stored.notes == Notes::default();
            assert!(!plain || bytes.len() + 16 <= 100, "{} bytes", bytes.len());
            assert_eq!(StoredKey::from_bytes(bytes.clone()).unwrap(), stored);
            for cut in 0..bytes.len() {
                let _ = StoredKey::from_bytes(bytes.slice(..cut));
            }
        }
        assert!(StoredKey::from_bytes(Bytes::new()).is_err());
        assert!(StoredKey::from_bytes(Bytes::from_static(&[2, 1])).is_err());
    }

    #[test]
    fn copies_are_written_as_before() {
        let stored = StoredKey::new("d1", Wrapped { key: "k".into(), bytes: vec![7] });
        let notes = Notes { copies: vec!["file:./b".to_owned()], ..Notes::default() };
        let bytes = StoredKey { notes, ..stored }.to_bytes().unwrap();
        assert!(bytes.ends_with(br#"["file:./b"]"#), "{bytes:?}");
    }

    #[test]
    fn fuzzed_stored_keys() {
        let wrapped = Wrapped { key: "default".into(), bytes: vec![7; 60] };
        let copied = Notes { copies: vec!["postgres://db".to_owned()], ..Notes::default() };
        let seeds = [Notes::default(), copied, Notes { leaving: Some("1".to_owned()), ..Notes::default() }]
            .map(|notes| StoredKey { notes, ..StoredKey::new("d1", wrapped.clone()) }.to_bytes().unwrap().to_vec());
        rekindle_fuzz::fuzz!("stored-key").seeds(seeds).bytes(|bytes| {
            let stored = StoredKey::from_bytes(bytes.to_vec().into()).ok()?;
            assert_eq!(StoredKey::from_bytes(stored.to_bytes().unwrap()).unwrap(), stored);
            Some(())
        });
    }
}
