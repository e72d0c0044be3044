//! Small durable values beside the journals of a store: wrapped data keys, marks of the highest
//! heads, and whatever else needs a place of its own.
//!
//! A value is named by namespace, kind and key. It is opaque to the store, at most
//! [`MAX_VALUE_BYTES`] long, and changed by comparing it with what is expected there.

mod change;
mod key;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;

pub use change::{Change, Changed, Decision, Expected, MAX_VALUE_BYTES};
pub use key::{MAX_VALUE_KEY_BYTES, ValueKey, ValueKind};

use crate::error::{Error, Result};
use crate::id::Namespace;
use crate::store::PAGE_BYTES;

/// The most values one page of a list may hold, and that may be asked for at once.
pub const MAX_VALUES: usize = 1_000;

/// Small values, kept by a store next to its sessions.
///
/// # Contract
///
/// Each clause names the test of `rekindle-testkit` that checks it.
///
/// * **Durable and atomic**, as the store itself (`values_survive_reopening`).
/// * **Compare and set.** A change happens only if the value is as expected, judged and carried out
///   at one instant ([`Change::decide`]); of many at once exactly one succeeds
///   (`a_change_needs_what_it_expects`, `of_many_changes_one_succeeds`).
/// * **Safe to repeat.** A change whose result is already there is done (`a_change_can_be_repeated`).
/// * **Apart.** Namespaces, kinds and keys do not mix, whatever text they are; values outlive the
///   sessions of the same name (`names_do_not_mix`, `values_outlive_sessions`).
/// * **In order.** Lists go by the bytes of the key, page by page (`values_are_listed_in_order`,
///   `pages_are_limited_by_size`).
/// * **Many at once.** [`Values::get_many`] answers for each key as [`Values::get`] does
///   (`many_values_are_got_at_once`).
/// * **Small.** A value has at most [`MAX_VALUE_BYTES`]; an empty one is a value
///   (`sizes_are_limited`).
/// * **Cancellation.** A change that is dropped is made or not (`a_dropped_change_is_made_or_not`).
#[async_trait]
pub trait Values: Send + Sync {
    /// A value; nothing if there is none.
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>>;

    /// The values of up to [`MAX_VALUES`] keys, in the order of the keys. A store that can do so answers in one
    /// trip; others get one value after the other.
    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.get(key).await?);
        }
        Ok(found)
    }

    /// Sets or deletes a value, if it is as expected.
    async fn change(&self, change: &Change) -> Result<Changed>;

    /// Lists values of one kind in one namespace.
    async fn list(&self, query: &ValueQuery) -> Result<ValuePage>;
}

/// An error if more values are asked for at once than allowed.
pub fn check_keys(keys: &[ValueKey]) -> Result<()> {
    match keys.len() > MAX_VALUES {
        true => Err(Error::limit("keys of values", keys.len() as u64, MAX_VALUES as u64).during("get values")),
        false => Ok(()),
    }
}

/// The places of keys in a list, by the namespace and kind they belong to: for stores that answer for one of
/// these at a time.
pub fn keys_by_kind(keys: &[ValueKey]) -> BTreeMap<(&Namespace, ValueKind), Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        groups.entry((key.namespace(), key.kind())).or_default().push(at);
    }
    groups
}

/// Which values to list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueQuery {
    /// In this namespace.
    pub namespace: Namespace,
    /// Of this kind.
    pub kind: ValueKind,
    /// Behind this key.
    pub after: Option<String>,
    /// How many at most, up to [`MAX_VALUES`].
    pub limit: usize,
}

impl ValueQuery {
    /// The first values of a kind.
    pub fn new(namespace: Namespace, kind: ValueKind) -> Self {
        Self { namespace, kind, after: None, limit: MAX_VALUES }
    }

    /// Behind a key: the last of the page before.
    #[must_use]
    pub fn with_after(mut self, key: impl Into<String>) -> Self {
        self.after = Some(key.into());
        self
    }

    /// At most `limit` values.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// An error if the page is larger than allowed, or empty, or does not begin behind a key.
    pub fn check(&self) -> Result<()> {
        if let Some(after) = &self.after {
            key::check(after).map_err(|error| error.during("list values"))?;
        }
        match self.limit {
            1..=MAX_VALUES => Ok(()),
            _ => Err(Error::limit("page size", self.limit as u64, MAX_VALUES as u64).during("list values")),
        }
    }
}

/// A page of values. It ends early once it holds [`PAGE_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValuePage {
    /// Keys and values, in the order of the keys' bytes.
    pub values: Vec<(String, Bytes)>,
    /// Whether there are more behind them.
    pub more: bool,
}

impl ValuePage {
    /// Returns whether a page of `limit` values has room for another one, and sets `more` if not.
    pub fn has_room(&mut self, limit: usize) -> bool {
        let bytes = || self.values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        self.more = self.values.len() >= limit || bytes() >= PAGE_BYTES;
        !self.more
    }

    /// The first values of those in order, as many as fit.
    pub fn fill<E>(
        limit: usize,
        values: impl IntoIterator<Item = std::result::Result<(String, Bytes), E>>,
    ) -> std::result::Result<Self, E> {
        let mut page = Self::default();
        for value in values {
            let value = value?;
            if !page.has_room(limit) {
                break;
            }
            page.values.push(value);
        }
        Ok(page)
    }
}

/// Every value of a kind in a namespace, page by page.
pub async fn all_values(values: &dyn Values, namespace: &Namespace, kind: ValueKind) -> Result<Vec<(String, Bytes)>> {
    let mut query = ValueQuery::new(namespace.clone(), kind);
    let mut all = Vec::new();
    loop {
        let page = values.list(&query).await?;
        let last = page.values.last().map(|(key, _)| key.clone());
        all.extend(page.values);
        match last.filter(|_| page.more) {
            Some(last) => query.after = Some(last),
            None => return Ok(all),
        }
    }
}
