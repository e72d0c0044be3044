//! Data keys: one for each encrypted session, wrapped by the main key, kept only among the small values of
//! its store. Whoever destroys it erases the session, wherever copies of its frames are.

mod stored;
mod tend;

use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

pub use tend::{OrphanedKey, OrphanedKeys, Rewrapped};

use self::stored::{ArchiveNote, StoredKey};
use super::{Journal, ReceiptKey};
use crate::codec::{DataKey, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::id::SessionKey;
use crate::session::{SessionHeader, SessionInfo};
use crate::values::{Change, Changed, MAX_VALUES, ValueKey, ValueKind, Values};

/// The id of a session's first data key.
const FIRST: &str = "d1";

/// The session a data key belongs to, as the key is bound to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyOwner {
    /// The session.
    pub session: SessionKey,
    /// Tells it from others of the same name.
    pub incarnation: String,
}

/// A data key that was made for a session, before the session is.
pub(super) struct NewKey {
    pub key: Arc<DataKey>,
    stored: Bytes,
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
            self.codec.learn(header, standing);
        }
        Ok(())
    }

    /// The same for a page of sessions, with one look at the values.
    pub(super) async fn learn_all(&self, sessions: &[SessionInfo]) -> Result<()> {
        let headers = sessions.iter().map(|info| &info.header).filter(|header| !self.codec.knows(header));
        let unknown: Vec<&SessionHeader> = headers.collect();
        for headers in unknown.chunks(MAX_VALUES) {
            let found = match (self.store.values(), self.codec.key_service()) {
                (Some(values), Some(_)) => self.stored_keys(values, headers).await?,
                _ => headers.iter().map(|_| Ok(None)).collect(),
            };
            for (header, stored) in headers.iter().zip(found) {
                let standing = self.standing_with(header, stored).await?;
                self.codec.learn(header, standing);
            }
        }
        Ok(())
    }

    async fn stored_keys(&self, values: &dyn Values, headers: &[&SessionHeader]) -> Result<Vec<Result<Option<Bytes>>>> {
        let keys = headers.iter().map(|header| value_key(&KeyOwner::of(header))).collect::<Result<Vec<_>>>()?;
        match values.get_many(&keys).await {
            Ok(found) => Ok(found.into_iter().map(Ok).collect()),
            // One damaged value does not hide the keys of other sessions.
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                let mut found = Vec::with_capacity(keys.len());
                for key in &keys {
                    found.push(values.get(key).await);
                }
                Ok(found)
            }
            Err(error) => Err(error),
        }
    }

    /// The standing of this journal to a session, by its keys and the values of its store.
    pub(super) async fn standing(&self, header: &SessionHeader) -> Result<Standing> {
        let stored = match (self.store.values(), self.codec.key_service()) {
            (Some(values), Some(_)) => values.get(&value_key(&KeyOwner::of(header))?).await,
            _ => Ok(None),
        };
        self.standing_with(header, stored).await
    }

    async fn standing_with(&self, header: &SessionHeader, stored: Result<Option<Bytes>>) -> Result<Standing> {
        let refused =
            |key: &str, error: &Error| Standing::Refused { key: key.to_owned(), message: error.message().to_owned() };
        let key = match stored {
            Ok(Some(bytes)) => self.unwrapped(header, bytes).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match key {
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

    async fn unwrapped(&self, header: &SessionHeader, bytes: Bytes) -> Result<DataKey> {
        let Some(service) = self.codec.key_service() else { return Err(Error::invalid("nothing unwraps data keys")) };
        let stored = StoredKey::from_bytes(bytes)?;
        let secret = service.unwrap(&stored.wrapped, &context(&KeyOwner::of(header), &stored.id)).await?;
        Ok(DataKey::new(stored.id, header.incarnation.clone(), &secret))
    }

    /// The data key of a session that is to be created, made if it needs one. Safe to repeat. It is
    /// [known](Journal::learn) only once the session is there: until then the name may be another's.
    /// [`Journal::keep_key`] follows behind the creation.
    pub(super) async fn equip(&self, header: &SessionHeader) -> Result<Option<NewKey>> {
        let (Some(values), Some(service)) = (self.store.values(), self.codec.key_service()) else { return Ok(None) };
        let owner = KeyOwner::of(header);
        let mut secret = Zeroizing::new([0; 32]);
        secret[..16].copy_from_slice(&self.ids.nonce());
        secret[16..].copy_from_slice(&self.ids.nonce());
        let wrapped = service.wrap(&secret, &context(&owner, FIRST)).await?;
        let stored = StoredKey::new(FIRST, wrapped).to_bytes()?;
        match values.change(&Change::set(value_key(&owner)?, stored.clone()).if_is(None)).await? {
            Changed::Done => {
                let key = DataKey::new(FIRST.to_owned(), header.incarnation.clone(), &secret);
                Ok(Some(NewKey { key: Arc::new(key), stored }))
            }
            // An earlier attempt got this far, or the session was archived.
            Changed::Differs(Some(stored)) => {
                let key = self.unwrapped(header, stored.clone()).await?;
                Ok(Some(NewKey { key: Arc::new(key), stored }))
            }
            Changed::Differs(None) => {
                Err(Error::new(ErrorKind::StoreUnavailable, "the data key was removed meanwhile").hint("try again"))
            }
        }
    }

    /// Makes sure that a session that was just created has its data key. Between the making of the key and the
    /// session, the key belonged to no session: [`Journal::destroy_orphaned_keys`] may have marked or destroyed it.
    pub(super) async fn keep_key(&self, header: &SessionHeader, new: &NewKey) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let key = value_key(&KeyOwner::of(header))?;
        if tend::stay(values, &key).await? {
            return Ok(());
        }
        values.change(&Change::set(key, new.stored.clone()).if_is(None)).await?;
        // Erased since it was created: the key must not outlive that.
        match self.store.open(&header.key).await {
            Ok(info) if !info.is_identified() => Ok(()),
            Ok(info) if info.header.incarnation == header.incarnation => Ok(()),
            Ok(_) => self.destroy_key(header).await.map(drop),
            Err(error) if *error.kind() == ErrorKind::NotFound => self.destroy_key(header).await.map(drop),
            Err(_) => Ok(()),
        }
    }

    /// What is to be said of the data key of a session, if it has one.
    pub(super) async fn described_key(&self, header: &SessionHeader) -> Result<Option<ReceiptKey>> {
        let Some(values) = self.store.values() else { return Ok(None) };
        let Some(bytes) = values.get(&value_key(&KeyOwner::of(header))?).await? else { return Ok(None) };
        let stored = StoredKey::from_bytes(bytes);
        let (id, copies) = stored.map(|stored| (stored.id, stored.notes.copies)).unwrap_or_default();
        Ok(Some(ReceiptKey { id, copies }))
    }

    /// Destroys the data key of a session; what is to be said of it.
    pub(super) async fn destroy_key(&self, header: &SessionHeader) -> Result<Option<ReceiptKey>> {
        let Some(values) = self.store.values() else { return Ok(None) };
        let described = self.described_key(header).await?;
        if described.is_some() {
            values.change(&Change::delete(value_key(&KeyOwner::of(header))?)).await?;
        }
        Ok(described)
    }

    /// Copies the data key of a session to the store of another journal, and notes that at this one first, so
    /// that an erasure can say where else the key is. Made again behind the creation of the copy, it takes the place of
    /// [`Journal::keep_key`].
    pub(super) async fn copy_key(&self, to: &Journal, header: &SessionHeader, place: &str) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let key = value_key(&KeyOwner::of(header))?;
        if values.get(&key).await?.is_none() {
            return Ok(());
        }
        let Some(target) = to.store.values() else {
            let message = format!("a {} store keeps no data keys", to.store.capabilities().name);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("export the session, and import the file there: it is encrypted anew"));
        };
        let noted = edit(values, &key, |stored| {
            let known = stored.notes.copies.iter().any(|known| known == place);
            if !known {
                stored.notes.copies.push(place.to_owned());
            }
            !known
        });
        let Some(stored) = noted.await? else { return Err(Error::not_found("the data key was destroyed meanwhile")) };
        if tend::stay(target, &key).await? {
            return Ok(());
        }
        let copy = StoredKey::new(&stored.id, stored.wrapped);
        match target.change(&Change::set(key, copy.to_bytes()?).if_is(None)).await? {
            Changed::Done | Changed::Differs(Some(_)) => Ok(()),
            Changed::Differs(None) => Err(Error::new(ErrorKind::Stale, "the data key was removed meanwhile")),
        }
    }

    /// Notes beside the data key of a session that an archive of it needs the key, and where that is: then the key
    /// is no orphan once the session has left the store. Safe to repeat; nothing happens if it has no data key.
    pub async fn note_archive(&self, owner: &KeyOwner, place: &str) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let key = value_key(owner)?;
        let noted = edit(values, &key, |stored| {
            let archived = stored.notes.archived.get_or_insert_with(|| ArchiveNote {
                session: owner.session.id.clone(),
                incarnation: owner.incarnation.clone(),
                places: Vec::new(),
            });
            let known = archived.places.iter().any(|known| known == place);
            if !known {
                archived.places.push(place.to_owned());
            }
            !known
        });
        noted.await.map(drop).map_err(|error| error.on(&owner.session))
    }
}

/// Changes a stored key as `change` says, which returns whether it did; the key as it is then, if there is one.
async fn edit(
    values: &dyn Values,
    key: &ValueKey,
    change: impl Fn(&mut StoredKey) -> bool,
) -> Result<Option<StoredKey>> {
    let mut bytes = values.get(key).await?;
    while let Some(found) = bytes {
        let mut stored = StoredKey::from_bytes(found.clone())?;
        if !change(&mut stored) {
            return Ok(Some(stored));
        }
        match values.change(&Change::set(key.clone(), stored.to_bytes()?).if_is(Some(found))).await? {
            Changed::Done => return Ok(Some(stored)),
            Changed::Differs(now) => bytes = now,
        }
    }
    Ok(None)
}

impl KeyOwner {
    /// The session that a header describes.
    pub fn of(header: &SessionHeader) -> Self {
        Self { session: header.key.clone(), incarnation: header.incarnation.clone() }
    }

    /// The number the key is stored under: short, since every session has one.
    pub fn number(&self) -> u64 {
        let hash = blake3::hash(&context(self, ""));
        let mut start = [0; 8];
        start.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_be_bytes(start)
    }
}

/// The bytes a wrapped key is bound to.
fn context(owner: &KeyOwner, id: &str) -> Vec<u8> {
    let mut out = b"rekindle data key\0".to_vec();
    for part in [owner.session.namespace.as_str(), owner.session.id.as_str(), &owner.incarnation, id] {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

fn value_key(owner: &KeyOwner) -> Result<ValueKey> {
    let name = format!("{:016x}", owner.number());
    ValueKey::new(owner.session.namespace.clone(), ValueKind::DATA_KEY, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    #[test]
    fn the_name_of_a_key_stays() {
        let owner = KeyOwner { session: SessionId::new("s").unwrap().into(), incarnation: "0".to_owned() };
        let hash = blake3::hash(&context(&owner, ""));
        assert_eq!(value_key(&owner).unwrap().key(), &hash.to_hex()[..16]);
    }
}
