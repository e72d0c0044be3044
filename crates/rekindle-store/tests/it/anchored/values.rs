//! Values in memory, which can be held up and cut off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{Change, Changed, Decision, ValueKey, ValuePage, ValueQuery, Values};
use rekindle_core::{Error, ErrorKind, Result};

/// Decides before each change whether it may happen.
pub type Guard = dyn Fn() -> Result<()> + Send + Sync;

/// Values in memory; clones share them.
#[derive(Clone)]
pub struct MemoryValues {
    all: Arc<Mutex<BTreeMap<ValueKey, Bytes>>>,
    guard: Arc<Guard>,
}

impl Default for MemoryValues {
    fn default() -> Self {
        Self { all: Arc::default(), guard: Arc::new(|| Ok(())) }
    }
}

impl MemoryValues {
    /// The same values behind a guard.
    pub fn guarded(&self, guard: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self { all: self.all.clone(), guard: Arc::new(guard) }
    }
}

/// The error of what is out of reach.
pub fn unreachable() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "out of reach")
}

#[async_trait]
impl Values for MemoryValues {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        Ok(self.all.lock().unwrap().get(key).cloned())
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        (self.guard)()?;
        let mut all = self.all.lock().unwrap();
        let current = all.get(&change.key).cloned();
        match (change.decide(current.as_deref()), &change.value) {
            (Decision::Keep, _) => {}
            (Decision::Refuse, _) => return Ok(Changed::Differs(current)),
            (Decision::Write, Some(value)) => drop(all.insert(change.key.clone(), value.clone())),
            (Decision::Write, None) => drop(all.remove(&change.key)),
        }
        Ok(Changed::Done)
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        let all = self.all.lock().unwrap();
        let of_kind = all.iter().filter(|(key, _)| (key.namespace(), key.kind()) == (&query.namespace, query.kind));
        let behind = of_kind.filter(|(key, _)| query.after.as_deref().is_none_or(|after| key.key() > after));
        let mut values: Vec<_> = behind.map(|(key, value)| (key.key().to_owned(), value.clone())).collect();
        let more = values.len() > query.limit;
        values.truncate(query.limit);
        Ok(ValuePage { values, more })
    }
}
