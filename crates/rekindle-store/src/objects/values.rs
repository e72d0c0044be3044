//! Small values of the object store: one object each, written only over the version that was read.
//!
//! ```text
//! values/<namespace>/<kind>/<key>
//! ```
//!
//! A deleted value leaves an object that says so: an unconditional delete could remove a value that
//! another process writes at that moment.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use rekindle_core::values::{
    Change, Changed, Decision, MAX_VALUE_BYTES, ValueKey, ValueKind, ValuePage, ValueQuery, Values, check_keys,
};
use rekindle_core::{Error, ErrorKind, Hash, Namespace, Result, file_name};
use serde::{Deserialize, Serialize};

use super::backend::Tag;
use super::envelope;
use super::layout::{hex, parse_hex};
use super::store::{Inner, ObjectsStore};
use crate::names::from_file_name;

/// How often other writers may be faster. Each time, one of them has made progress.
const TRIES: usize = 200;
/// Number of writes a value remembers, to tell a write whose acknowledgement was lost.
const REMEMBERED: usize = 16;
/// Number of values that are read at once.
const AT_ONCE: usize = 16;

/// The header before the bytes of a value.
#[derive(Serialize, Deserialize)]
struct Header {
    namespace: String,
    kind: String,
    key: String,
    /// The hash of the value; nothing if it was deleted.
    value: Option<Hash>,
    /// The writes before, newest first.
    writes: Vec<String>,
}

/// An object that was read.
struct Found {
    key: String,
    value: Option<Bytes>,
    writes: Vec<[u8; 16]>,
    tag: Tag,
}

fn folder(namespace: &Namespace, kind: ValueKind) -> String {
    format!("values/{}/{kind}", file_name(namespace.as_str()))
}

fn name(key: &ValueKey) -> String {
    format!("{}/{}", folder(key.namespace(), key.kind()), file_name(key.key()))
}

fn encode(key: &ValueKey, value: Option<&Bytes>, nonce: &[u8; 16], before: &[[u8; 16]]) -> Result<Bytes> {
    let header = Header {
        namespace: key.namespace().to_string(),
        kind: key.kind().to_string(),
        key: key.key().to_owned(),
        value: value.map(|value| Hash::of(value)),
        writes: before.iter().take(REMEMBERED).map(hex).collect(),
    };
    let value = value.map(|value| &value[..]).unwrap_or_default();
    let mut bytes = envelope::encode(nonce, &header, value.len())?;
    bytes.extend_from_slice(value);
    Ok(bytes.freeze())
}

fn decode(name: &str, namespace: &Namespace, kind: ValueKind, (bytes, tag): (Bytes, Tag)) -> Result<Found> {
    let damaged = |what: &str| {
        Error::corrupt(format!("the object `{name}` {what}"))
            .hint("restore the object from a version or a copy of the bucket")
    };
    let (nonce, header, start) = envelope::decode::<Header>(name, &bytes)?;
    let here = name.rsplit_once('/').is_some_and(|(_, last)| last == file_name(&header.key));
    if !here || header.namespace != namespace.as_str() || header.kind != kind.as_str() {
        return Err(damaged("holds another value than its name says"));
    }
    let body = bytes.slice(start..);
    let value = match header.value {
        Some(hash) if hash == Hash::of(&body) && body.len() <= MAX_VALUE_BYTES => Some(body),
        None if body.is_empty() => None,
        _ => return Err(damaged("does not hold the value its header says")),
    };
    let before = header.writes.iter().filter_map(|write| parse_hex(write));
    Ok(Found { key: header.key, value, writes: std::iter::once(nonce).chain(before).collect(), tag })
}

impl Inner {
    async fn find_value(&self, key: &ValueKey) -> Result<Option<Found>> {
        let name = name(key);
        let Some(found) = self.bucket.get_tagged(&name).await? else { return Ok(None) };
        let found = decode(&name, key.namespace(), key.kind(), found)?;
        match found.key == key.key() {
            true => Ok(Some(found)),
            false => Err(Error::corrupt(format!("the object `{name}` holds the value of another key"))),
        }
    }

    async fn change_value(&self, change: &Change) -> Result<Changed> {
        self.check_writable()?;
        let (name, nonce) = (name(&change.key), self.ids.nonce());
        for _ in 0..TRIES {
            let found = self.find_value(&change.key).await?;
            if found.as_ref().is_some_and(|found| found.writes.contains(&nonce)) {
                return Ok(Changed::Done);
            }
            let current = found.as_ref().and_then(|found| found.value.as_ref());
            match change.decide(current.map(|value| &value[..])) {
                Decision::Keep => return Ok(Changed::Done),
                Decision::Refuse => return Ok(Changed::Differs(current.cloned())),
                Decision::Write => {}
            }
            let before = found.as_ref().map(|found| &found.writes[..]).unwrap_or_default();
            let bytes = encode(&change.key, change.value.as_ref(), &nonce, before)?;
            let written = match &found {
                Some(found) => self.bucket.put_over(&name, bytes, &found.tag).await?,
                None => self.bucket.try_put_new(&name, bytes).await?,
            };
            if written {
                return Ok(Changed::Done);
            }
        }
        let message = format!("other writers were faster every time: `{name}`");
        Err(Error::new(ErrorKind::StoreUnavailable, message).hint("try again"))
    }

    async fn list_values(&self, query: &ValueQuery) -> Result<ValuePage> {
        let listed = self.list_all(&folder(&query.namespace, query.kind)).await?;
        let mut found: Vec<(String, String)> = Vec::new();
        for chunk in listed.chunks(AT_ONCE) {
            let keys: Vec<_> = chunk.iter().map(|listed| self.key_of(query, &listed.name)).collect();
            let keys = try_join_all(keys).await?.into_iter().zip(chunk);
            found.extend(keys.filter_map(|(key, listed)| Some((key?, listed.name.clone()))));
        }
        found.retain(|(key, _)| query.after.as_ref().is_none_or(|after| key > after));
        found.sort_unstable();
        let mut page = ValuePage::default();
        for chunk in found.chunks(AT_ONCE) {
            let reads: Vec<_> = chunk.iter().map(|(_, name)| self.read_value(query, name)).collect();
            // Deleted ones are not listed.
            for read in try_join_all(reads).await?.into_iter().flatten() {
                let Some(value) = read.value else { continue };
                if !page.has_room(query.limit) {
                    return Ok(page);
                }
                page.values.push((read.key, value));
            }
        }
        Ok(page)
    }

    /// The key of an object; a long one is in the object alone.
    async fn key_of(&self, query: &ValueQuery, name: &str) -> Result<Option<String>> {
        let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
        match from_file_name(last) {
            Some(key) => Ok(Some(key)),
            None => Ok(self.read_value(query, name).await?.map(|found| found.key)),
        }
    }

    async fn read_value(&self, query: &ValueQuery, name: &str) -> Result<Option<Found>> {
        match self.bucket.get_tagged(name).await? {
            Some(found) => decode(name, &query.namespace, query.kind, found).map(Some),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl Values for ObjectsStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let found = self.0.find_value(key).await.map_err(|error| error.during("get value"))?;
        Ok(found.and_then(|found| found.value))
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(AT_ONCE) {
            let reads = chunk.iter().map(|key| self.0.find_value(key));
            let read = try_join_all(reads).await.map_err(|error| error.during("get values"))?;
            found.extend(read.into_iter().map(|found| found.and_then(|found| found.value)));
        }
        Ok(found)
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        self.0.change_value(change).await.map_err(|error| error.during("change value"))
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        self.0.list_values(query).await.map_err(|error| error.during("list values"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_values() {
        let namespace = Namespace::new("n").unwrap();
        let key = ValueKey::new(namespace.clone(), ValueKind::HIGH_WATER, "k").unwrap();
        let value = Bytes::from_static(b"value");
        let seeds = [Some(&value), None].map(|value| encode(&key, value, &[1; 16], &[[2; 16]]).unwrap().to_vec());
        rekindle_fuzz::fuzz!("object-value").seeds(seeds).repair(envelope::repaired).bytes(|bytes| {
            let bytes: Bytes = bytes.to_vec().into();
            let tag = super::super::local::content_tag(&bytes);
            let found = decode(&name(&key), &namespace, ValueKind::HIGH_WATER, (bytes, tag)).ok()?;
            assert!(found.value.is_none_or(|value| value.len() <= MAX_VALUE_BYTES));
            Some(())
        });
    }
}
