//! Small values of the memory store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{
    Change, Changed, Decision, ValueKey, ValueKind, ValuePage, ValueQuery, Values, check_keys,
};
use rekindle_core::{Namespace, Result};

use super::MemoryStore;

/// Values by namespace and kind, then by key.
#[derive(Debug, Default)]
pub(super) struct All(Mutex<Kinds>);

type Kinds = BTreeMap<(Namespace, ValueKind), BTreeMap<String, Bytes>>;

impl All {
    fn lock(&self) -> MutexGuard<'_, Kinds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(all: &Kinds, key: &ValueKey) -> Option<Bytes> {
    all.get(&(key.namespace().clone(), key.kind())).and_then(|values| values.get(key.key())).cloned()
}

#[async_trait]
impl Values for MemoryStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        Ok(find(&self.values.lock(), key))
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let all = self.values.lock();
        Ok(keys.iter().map(|key| find(&all, key)).collect())
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        let mut all = self.values.lock();
        let key = &change.key;
        let values = all.entry((key.namespace().clone(), key.kind())).or_default();
        let current = values.get(key.key()).cloned();
        match change.decide(current.as_deref()) {
            Decision::Keep => {}
            Decision::Refuse => return Ok(Changed::Differs(current)),
            Decision::Write => match &change.value {
                Some(value) => drop(values.insert(key.key().to_owned(), value.clone())),
                None => drop(values.remove(key.key())),
            },
        }
        Ok(Changed::Done)
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        let all = self.values.lock();
        let Some(values) = all.get(&(query.namespace.clone(), query.kind)) else { return Ok(ValuePage::default()) };
        let after = query.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = values.range::<str, _>((after, Bound::Unbounded));
        ValuePage::fill(query.limit, behind.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}
