//! Data keys: one for each encrypted session, wrapped by the main key, kept only among the small values of
//! its store. Whoever destroys it erases the session, wherever copies of its frames are.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use zeroize::Zeroizing;

use super::{Journal, ReceiptKey};
use crate::codec::{DataKey, Standing, Wrapped};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Namespace, SessionKey};
use crate::session::{SessionHeader, SessionInfo};
use crate::values::{Change, Changed, ValueKey, ValueKind, all_values};

/// The id of a session's first data key.
const FIRST: &str = "d1";

/// The version of a stored key.
const VERSION: u8 = 1;

/// A data key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredKey {
    id: String,
    wrapped: Wrapped,
    /// The stores it was copied to, for people.
    copies: Vec<String>,
}

/// What became of the data keys of a namespace when they were wrapped anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// Keys that were wrapped with the active main key.
    pub changed: u64,
    /// Keys that were wrapped with it already.
    pub current: u64,
}

impl Journal {
    /// Opens a session as it is stored, with its keys at hand.
    pub(super) async fn open_stored(&self, session: &SessionKey) -> Result<SessionInfo> {
        let info = self.store.open(session).await?;
        self.learn(&info.header).await?;
        Ok(info)
    }

    /// Finds out how this journal stands to a session: with which key it is written to, if at all.
    pub(super) async fn learn(&self, header: &SessionHeader) -> Result<()> {
        if !self.codec.knows(header) {
            let standing = self.standing(header).await?;
            self.codec.learn(header.key.clone(), standing);
        }
        Ok(())
    }

    /// How this journal stands to a session, by its keys and the values of its store.
    pub(super) async fn standing(&self, header: &SessionHeader) -> Result<Standing> {
        let refused =
            |key: &str, error: &Error| Standing::Refused { key: key.to_owned(), message: error.message().to_owned() };
        match self.data_key(header).await {
            Ok(Some(key)) => Ok(Standing::Data(Arc::new(key))),
            Ok(None) => Ok(self.codec.standing_without_data_key(header)),
            // What cannot be read with these keys is still listed, and can be removed.
            Err(error) => match error.kind() {
                ErrorKind::KeyMissing { key } => Ok(refused(key, &error)),
                ErrorKind::Corrupt => Ok(refused(FIRST, &error)),
                _ => Err(error.on(&header.key)),
            },
        }
    }

    /// The data key of a session that is to be created, made if it needs one. Safe to repeat. It is
    /// [known](Journal::learn) only once the session is there: until then the name may be another's.
    pub(super) async fn equip(&self, header: &SessionHeader) -> Result<Option<Arc<DataKey>>> {
        let (Some(values), Some(service)) = (self.store.values(), self.codec.key_service()) else { return Ok(None) };
        let mut secret = Zeroizing::new([0; 32]);
        secret[..16].copy_from_slice(&self.ids.nonce());
        secret[16..].copy_from_slice(&self.ids.nonce());
        let wrapped = service.wrap(&secret, &context(header, FIRST)).await?;
        let stored = StoredKey { id: FIRST.to_owned(), wrapped, copies: Vec::new() };
        let change = Change::set(value_key(header)?, stored.to_bytes()?).if_is(None);
        let key = match values.change(&change).await? {
            Changed::Done => Some(DataKey::new(stored.id, header.incarnation.clone(), &secret)),
            // An earlier attempt got this far.
            Changed::Differs(_) => self.data_key(header).await?,
        };
        Ok(key.map(Arc::new))
    }

    /// Destroys the data key of a session; what is to be said of it.
    pub(super) async fn destroy_key(&self, header: &SessionHeader) -> Result<Option<ReceiptKey>> {
        let Some(values) = self.store.values() else { return Ok(None) };
        let key = value_key(header)?;
        let Some(bytes) = values.get(&key).await? else { return Ok(None) };
        values.change(&Change::delete(key)).await?;
        let (id, copies) = StoredKey::from_bytes(bytes).map(|stored| (stored.id, stored.copies)).unwrap_or_default();
        Ok(Some(ReceiptKey { id, copies }))
    }

    /// Copies the data key of a session to the store of another journal, and notes that at this one first, so
    /// that an erasure can say where else the key is.
    pub(super) async fn copy_key(&self, to: &Journal, header: &SessionHeader, place: &str) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let key = value_key(header)?;
        let Some(mut bytes) = values.get(&key).await? else { return Ok(()) };
        let Some(target) = to.store.values() else {
            let message = format!("a {} store keeps no data keys", to.store.capabilities().name);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("export the session, and import the file there: it is encrypted anew"));
        };
        loop {
            let mut stored = StoredKey::from_bytes(bytes.clone())?;
            if stored.copies.iter().any(|known| known == place) {
                break;
            }
            stored.copies.push(place.to_owned());
            let change = Change::set(key.clone(), stored.to_bytes()?).if_is(Some(bytes));
            match values.change(&change).await? {
                Changed::Done => break,
                Changed::Differs(Some(now)) => bytes = now,
                Changed::Differs(None) => return Err(Error::not_found("the data key was destroyed meanwhile")),
            }
        }
        let stored = StoredKey::from_bytes(values.get(&key).await?.unwrap_or_default())?;
        let copy = StoredKey { copies: Vec::new(), ..stored };
        match target.change(&Change::set(key, copy.to_bytes()?).if_is(None)).await? {
            Changed::Done | Changed::Differs(Some(_)) => Ok(()),
            Changed::Differs(None) => Err(Error::new(ErrorKind::Stale, "the data key was removed meanwhile")),
        }
    }

    /// Wraps the data keys of a namespace with the main key that is active. No record is rewritten. Safe to
    /// repeat, and beside everything else that happens.
    pub async fn rewrap(&self, namespace: &Namespace) -> Result<Rewrapped> {
        let mut report = Rewrapped::default();
        let (Some(values), Some(service)) = (self.store.values(), self.codec.key_service()) else {
            return Ok(report);
        };
        let sessions = self.keyed_sessions(namespace).await?;
        for (name, bytes) in all_values(values, namespace, ValueKind::DATA_KEY).await? {
            let stored = StoredKey::from_bytes(bytes.clone())?;
            if service.is_current(&stored.wrapped) {
                report.current += 1;
                continue;
            }
            // Of a session that is put away, or was being made: it is wrapped anew when that is back.
            let Some(header) = sessions.get(&name) else { continue };
            let context = context(header, &stored.id);
            let secret = service.unwrap(&stored.wrapped, &context).await.map_err(|error| error.on(&header.key))?;
            let wrapped = service.wrap(&secret, &context).await?;
            let anew = StoredKey { wrapped, ..stored };
            let change = Change::set(value_key(header)?, anew.to_bytes()?).if_is(Some(bytes));
            if values.change(&change).await? == Changed::Done {
                report.changed += 1;
            }
        }
        Ok(report)
    }

    /// Destroys the data keys of a namespace that belong to no session here, `except` those with these names:
    /// sessions that are put away. How many there were.
    pub async fn destroy_orphaned_keys(&self, namespace: &Namespace, except: &[SessionHeader]) -> Result<u64> {
        let Some(values) = self.store.values() else { return Ok(0) };
        let kept: Vec<String> = except.iter().map(value_name).collect();
        let before = all_values(values, namespace, ValueKind::DATA_KEY).await?;
        let sessions = self.keyed_sessions(namespace).await?;
        let mut destroyed = 0;
        for (name, bytes) in before {
            if sessions.contains_key(&name) || kept.contains(&name) {
                continue;
            }
            let key = ValueKey::new(namespace.clone(), ValueKind::DATA_KEY, name)?;
            destroyed += u64::from(values.change(&Change::delete(key).if_is(Some(bytes))).await? == Changed::Done);
        }
        Ok(destroyed)
    }

    async fn keyed_sessions(&self, namespace: &Namespace) -> Result<std::collections::HashMap<String, SessionHeader>> {
        use crate::store::StoreExt as _;
        let query = crate::session::SessionQuery::new(namespace.clone()).with_limit(500);
        let sessions = self.store.list_all(&query).await?;
        Ok(sessions.into_iter().map(|info| (value_name(&info.header), info.header)).collect())
    }

    async fn data_key(&self, header: &SessionHeader) -> Result<Option<DataKey>> {
        let (Some(values), Some(service)) = (self.store.values(), self.codec.key_service()) else { return Ok(None) };
        let Some(bytes) = values.get(&value_key(header)?).await? else { return Ok(None) };
        let stored = StoredKey::from_bytes(bytes)?;
        let secret = service.unwrap(&stored.wrapped, &context(header, &stored.id)).await?;
        Ok(Some(DataKey::new(stored.id, header.incarnation.clone(), &secret)))
    }
}

impl StoredKey {
    fn to_bytes(&self) -> Result<Bytes> {
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
        if !self.copies.is_empty() {
            let copies = serde_json::to_vec(&self.copies);
            out.put_slice(&copies.map_err(|error| Error::invalid("a place cannot be written").because(error))?);
        }
        Ok(out.freeze())
    }

    fn from_bytes(mut bytes: Bytes) -> Result<Self> {
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
        let copies = match bytes.is_empty() {
            true => Vec::new(),
            false => serde_json::from_slice(&bytes).map_err(|_| damaged())?,
        };
        Ok(Self { id, wrapped: Wrapped { key, bytes: wrapped }, copies })
    }
}

/// What a wrapped key is bound to.
fn context(header: &SessionHeader, id: &str) -> Vec<u8> {
    let mut out = b"rekindle data key\0".to_vec();
    for part in [header.key.namespace.as_str(), header.key.id.as_str(), &header.incarnation, id] {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

/// The name of a session's key among the values: short, since every session has one.
fn value_name(header: &SessionHeader) -> String {
    let hash = blake3::hash(&context(header, ""));
    hash.to_hex()[..16].to_owned()
}

fn value_key(header: &SessionHeader) -> Result<ValueKey> {
    ValueKey::new(header.key.namespace.clone(), ValueKind::DATA_KEY, value_name(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_round_trip_and_damage_is_no_panic() {
        let wrapped = Wrapped { key: "default".into(), bytes: vec![7; 60] };
        for copies in [vec![], vec!["postgres://db".to_owned()]] {
            let stored = StoredKey { id: FIRST.into(), wrapped: wrapped.clone(), copies };
            let bytes = stored.to_bytes().unwrap();
            assert!(!stored.copies.is_empty() || bytes.len() + 16 <= 100, "{} bytes", bytes.len());
            assert_eq!(StoredKey::from_bytes(bytes.clone()).unwrap(), stored);
            for cut in 0..bytes.len() {
                let _ = StoredKey::from_bytes(bytes.slice(..cut));
            }
        }
        assert!(StoredKey::from_bytes(Bytes::new()).is_err());
        assert!(StoredKey::from_bytes(Bytes::from_static(&[2, 1])).is_err());
    }
}
