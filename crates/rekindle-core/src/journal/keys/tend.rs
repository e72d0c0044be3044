//! Tending the data keys of a namespace: wrapping them with another main key, and destroying those that belong
//! to no session.
//!
//! A key is made before its session, so a key without a session may be about to get one. So an orphan is destroyed in
//! three steps: it is marked as leaving, the sessions are looked at again, and it is deleted if it is still as it was marked. The
//! creator of a session looks at its key afterwards ([`Journal::keep_key`]): before the deletion it takes the mark away, so
//! that the deletion fails; behind it, it puts the key back.
//!
//! The key of a session is told by its header. As long as a session of the namespace is there and cannot be read, any key
//! may be its key, and none is an orphan.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::stored::StoredKey;
use super::{Journal, KeyOwner, context, edit, value_key};
use crate::codec::KeyService;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Namespace, SessionKey};
use crate::session::{SessionInfo, SessionQuery};
use crate::values::{Change, Changed, ValueKey, ValueKind, ValueQuery, Values};

/// The outcome of wrapping the data keys of a namespace anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrapped {
    /// Keys that were wrapped with the active main key.
    pub changed: u64,
    /// Keys that were wrapped with it already.
    pub current: u64,
    /// Keys of no session and no archive that is known: they stay under the main key they had.
    pub unknown: u64,
}

/// A data key that belongs to no session of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedKey {
    number: u64,
    bytes: Bytes,
    /// The session it belonged to and the places where archives of it were written, if any were.
    pub archived: Option<(KeyOwner, Vec<String>)>,
}

/// The data keys of a namespace that belong to no session of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanedKeys {
    /// The keys. None if there are unreadable sessions: any key may belong to them.
    pub keys: Vec<OrphanedKey>,
    /// The sessions that are there and cannot be read, each with the reason.
    pub unreadable: Vec<String>,
}

/// The data keys that the listed sessions of a namespace may have.
#[derive(Default)]
struct Owned {
    numbers: HashSet<u64>,
    /// The sessions whose headers name a data key.
    named: Vec<KeyOwner>,
    /// The sessions whose keys cannot be told, each with the reason.
    unreadable: Vec<String>,
}

impl OrphanedKey {
    /// The number of its owner ([`KeyOwner::number`]).
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Journal {
    /// Wraps the data keys of a namespace with the main key that is active: those of its sessions, of sessions that were
    /// archived, and of those that the caller knows of. No record is rewritten. Safe to repeat, and beside everything else
    /// that happens.
    pub async fn rewrap(&self, namespace: &Namespace, archived: &[KeyOwner]) -> Result<Rewrapped> {
        let mut report = Rewrapped::default();
        let (Some(values), Some(service)) = (self.store.values(), self.codec.key_service()) else {
            return Ok(report);
        };
        let mut query = SessionQuery::new(namespace.clone()).with_limit(500);
        loop {
            let page = self.store.list(&query).await?;
            let owners: Vec<KeyOwner> = page.sessions.iter().map(|info| KeyOwner::of(&info.header)).collect();
            let keys = owners.iter().map(value_key).collect::<Result<Vec<_>>>()?;
            for (owner, found) in owners.iter().zip(values.get_many(&keys).await?) {
                let Some(bytes) = found else { continue };
                report.changed += u64::from(rewrap_one(values, &**service, owner, bytes).await?);
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        let known: HashMap<u64, &KeyOwner> = archived.iter().map(|owner| (owner.number(), owner)).collect();
        let (mut current, mut of_archives) = (0, 0);
        let mut pages = KeyPages::new(namespace);
        while let Some(page) = pages.next(values).await? {
            for (name, bytes) in page {
                let stored = StoredKey::from_bytes(bytes.clone())?;
                if service.is_current(&stored.wrapped) {
                    current += 1;
                    continue;
                }
                let noted = stored.owner(namespace);
                let owner = number_of(&name).and_then(|number| known.get(&number).copied()).or(noted.as_ref());
                match owner {
                    Some(owner) => of_archives += u64::from(rewrap_one(values, &**service, owner, bytes).await?),
                    None => report.unknown += 1,
                }
            }
        }
        // Those of sessions were wrapped before they were counted.
        report.current = u64::saturating_sub(current, report.changed);
        report.changed += of_archives;
        Ok(report)
    }

    /// The data keys of a namespace that belong to no session of the store. Some of them may belong to archives
    /// ([`OrphanedKey::archived`]), or to sessions that are about to be created.
    pub async fn orphaned_keys(&self, namespace: &Namespace) -> Result<OrphanedKeys> {
        let Some(values) = self.store.values() else { return Ok(OrphanedKeys::default()) };
        let owned = self.owned_keys(namespace).await?;
        let (mut keys, mut stored_numbers) = (Vec::new(), HashSet::new());
        let mut pages = KeyPages::new(namespace);
        while let Some(page) = pages.next(values).await? {
            for (name, bytes) in page {
                let Some(number) = number_of(&name) else { continue };
                stored_numbers.insert(number);
                // Damaged bytes may be a key in a form that is not known here: it stays.
                let Ok(stored) = StoredKey::from_bytes(bytes.clone()) else { continue };
                if owned.numbers.contains(&number) {
                    continue;
                }
                let owner = stored.owner(namespace);
                let archived = owner.zip(stored.notes.archived.map(|note| note.places));
                keys.push(OrphanedKey { number, bytes, archived });
            }
        }
        if keys.is_empty() {
            return Ok(OrphanedKeys::default());
        }
        let mut unreadable = owned.unreadable;
        for owner in owned.named.iter().filter(|owner| !stored_numbers.contains(&owner.number())) {
            // An altered header names another key than its own; a session that was removed since names none.
            if self.is_there(owner).await? {
                unreadable.push(format!("{}: its data key is not in the store", owner.session.id));
            }
        }
        unreadable.extend(self.unlisted_sessions(namespace).await?);
        if !unreadable.is_empty() {
            keys.clear();
        }
        Ok(OrphanedKeys { keys, unreadable })
    }

    /// Destroys orphaned keys that still are as they were found and still belong to no session. Returns how many were;
    /// none if there is a session by now that cannot be read. Safe to repeat, and beside sessions that are created.
    pub async fn destroy_orphaned_keys(&self, namespace: &Namespace, orphans: &[OrphanedKey]) -> Result<u64> {
        let Some(values) = self.store.values() else { return Ok(0) };
        let leaving = self.mark_leaving(values, namespace, orphans).await?;
        if leaving.is_empty() {
            return Ok(0);
        }
        let owned = self.owned_keys(namespace).await?;
        let is_safe = owned.unreadable.is_empty() && self.unlisted_sessions(namespace).await?.is_empty();
        let mut destroyed = 0;
        for (number, marked) in leaving {
            let key = key_of(namespace, number)?;
            if !is_safe || owned.numbers.contains(&number) {
                stay(values, &key).await?;
                continue;
            }
            destroyed += u64::from(values.change(&Change::delete(key).if_is(Some(marked))).await? == Changed::Done);
        }
        Ok(destroyed)
    }

    /// Marks orphaned keys as leaving, as far as they are as they were found. Returns their marked forms by number.
    async fn mark_leaving(
        &self,
        values: &dyn Values,
        namespace: &Namespace,
        orphans: &[OrphanedKey],
    ) -> Result<HashMap<u64, Bytes>> {
        let mark = format!("{:032x}", u128::from_be_bytes(self.ids.nonce()));
        let mut leaving: HashMap<u64, Bytes> = HashMap::new();
        for orphan in orphans {
            let mut stored = StoredKey::from_bytes(orphan.bytes.clone())?;
            stored.notes.leaving = Some(mark.clone());
            let marked = stored.to_bytes()?;
            let change = Change::set(key_of(namespace, orphan.number)?, marked.clone());
            if values.change(&change.if_is(Some(orphan.bytes.clone()))).await? == Changed::Done {
                leaving.insert(orphan.number, marked);
            }
        }
        Ok(leaving)
    }

    /// Destroys the data key of a session whose archive was removed, unless the session is in the store or another
    /// place has an archive of it.
    pub async fn release_archive(&self, owner: &KeyOwner, place: &str) -> Result<()> {
        let Some(values) = self.store.values() else { return Ok(()) };
        let key = value_key(owner)?;
        let released = AtomicBool::new(false);
        let noted = edit(values, &key, |stored| {
            let Some(archived) = &mut stored.notes.archived else { return false };
            let before = archived.places.len();
            archived.places.retain(|known| known != place);
            let changed = archived.places.len() < before;
            let unused = archived.places.is_empty();
            if unused {
                stored.notes.archived = None;
            }
            released.store(unused, Ordering::SeqCst);
            changed
        });
        let Some(stored) = noted.await? else { return Ok(()) };
        if !released.load(Ordering::SeqCst) || self.is_there(owner).await? {
            return Ok(());
        }
        let orphan = OrphanedKey { number: owner.number(), bytes: stored.to_bytes()?, archived: None };
        let leaving = self.mark_leaving(values, &owner.session.namespace, &[orphan]).await?;
        for marked in leaving.into_values() {
            match self.is_there(owner).await {
                Ok(false) => drop(values.change(&Change::delete(key.clone()).if_is(Some(marked))).await?),
                kept => {
                    stay(values, &key).await?;
                    kept?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the session is in the store. An error if one of its name is there that cannot be read.
    async fn is_there(&self, owner: &KeyOwner) -> Result<bool> {
        match self.store.open(&owner.session).await {
            Ok(info) if info.is_identified() => Ok(info.header.incarnation == owner.incarnation),
            Ok(info) => Err(info.check_header().err().unwrap_or_else(|| Error::corrupt(why_unreadable(&info)))),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The data keys that the listed sessions of a namespace may have.
    async fn owned_keys(&self, namespace: &Namespace) -> Result<Owned> {
        let mut owned = Owned::default();
        let mut query = SessionQuery::new(namespace.clone()).with_limit(500);
        loop {
            let page = self.store.list(&query).await?;
            for info in &page.sessions {
                let owner = KeyOwner::of(&info.header);
                owned.numbers.insert(owner.number());
                if !info.is_identified() {
                    owned.unreadable.push(format!("{}: {}", info.header.key.id, why_unreadable(info)));
                } else if info.header.names_data_key() {
                    owned.named.push(owner);
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(owned),
            }
        }
    }

    /// The sessions of a namespace that lists leave out, each with the reason.
    async fn unlisted_sessions(&self, namespace: &Namespace) -> Result<Vec<String>> {
        let unlisted = self.store.unlisted(namespace).await?;
        let name = |session: Option<SessionKey>| session.map_or_else(|| "a session".into(), |key| key.id.to_string());
        Ok(unlisted.into_iter().map(|defect| format!("{}: {}", name(defect.session), defect.detail)).collect())
    }
}

fn why_unreadable(info: &SessionInfo) -> String {
    info.damage.first().map_or_else(|| "its header cannot be read".to_owned(), |damage| damage.detail.clone())
}

/// The stored keys of a namespace, page by page.
struct KeyPages(Option<ValueQuery>);

impl KeyPages {
    fn new(namespace: &Namespace) -> Self {
        Self(Some(ValueQuery::new(namespace.clone(), ValueKind::DATA_KEY)))
    }

    async fn next(&mut self, values: &dyn Values) -> Result<Option<Vec<(String, Bytes)>>> {
        let Some(query) = self.0.take() else { return Ok(None) };
        let page = values.list(&query).await?;
        let last = page.values.last().map(|(last, _)| last.clone());
        self.0 = last.filter(|_| page.more).map(|last| query.with_after(last));
        Ok(Some(page.values))
    }
}

/// Wraps one key anew. Returns whether it had been wrapped with another main key. A key that changes meanwhile is looked
/// at again.
async fn rewrap_one(values: &dyn Values, service: &dyn KeyService, owner: &KeyOwner, mut bytes: Bytes) -> Result<bool> {
    let failed = |error: Error| error.on(&owner.session);
    loop {
        let stored = StoredKey::from_bytes(bytes.clone())?;
        if service.is_current(&stored.wrapped) {
            return Ok(false);
        }
        let context = context(owner, &stored.id);
        let secret = service.unwrap(&stored.wrapped, &context).await.map_err(failed)?;
        let wrapped = service.wrap(&secret, &context).await.map_err(failed)?;
        let anew = StoredKey { wrapped, ..stored }.to_bytes()?;
        match values.change(&Change::set(value_key(owner)?, anew).if_is(Some(bytes))).await? {
            Changed::Done => return Ok(true),
            Changed::Differs(Some(now)) => bytes = now,
            Changed::Differs(None) => return Ok(false),
        }
    }
}

/// Takes the leaving mark off a key. Returns whether the key is there.
pub(super) async fn stay(values: &dyn Values, key: &ValueKey) -> Result<bool> {
    let kept = edit(values, key, |stored| stored.notes.leaving.take().is_some());
    Ok(kept.await?.is_some())
}

fn number_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name, 16).ok().filter(|number| format!("{number:016x}") == name)
}

fn key_of(namespace: &Namespace, number: u64) -> Result<ValueKey> {
    ValueKey::new(namespace.clone(), ValueKind::DATA_KEY, format!("{number:016x}"))
}

impl StoredKey {
    /// The session the key belongs to, if an archive of it was noted.
    fn owner(&self, namespace: &Namespace) -> Option<KeyOwner> {
        let note = self.notes.archived.as_ref()?;
        let session = SessionKey::new(namespace.clone(), note.session.clone());
        Some(KeyOwner { session, incarnation: note.incarnation.clone() })
    }
}
