//! A map that forgets what was not used for longest.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    capacity: usize,
    is_in_use: fn(&V) -> bool,
    held: Mutex<Held<K, V>>,
}

#[derive(Debug)]
struct Held<K, V> {
    uses: u64,
    values: HashMap<K, (u64, V)>,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self::keeping(capacity, |_| false)
    }

    /// A map that does not forget what is in use, even if it holds too much then.
    pub(super) fn keeping(capacity: usize, is_in_use: fn(&V) -> bool) -> Self {
        Self { capacity, is_in_use, held: Mutex::new(Held { uses: 0, values: HashMap::new() }) }
    }

    /// The value under `key`, if there is one.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.uses += 1;
        let now = held.uses;
        held.values.get_mut(key).map(|(used, value)| {
            *used = now;
            value.clone()
        })
    }

    /// Puts a value under `key`, whatever was there.
    pub(super) fn put(&self, key: &K, value: V) {
        self.forget(key);
        self.get_or_make(key, || value);
    }

    /// The value under `key`, made if there is none.
    pub(super) fn get_or_make(&self, key: &K, make: impl FnOnce() -> V) -> V {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.uses += 1;
        let now = held.uses;
        if let Some((used, value)) = held.values.get_mut(key) {
            *used = now;
            return value.clone();
        }
        if held.values.len() >= self.capacity {
            let free = held.values.iter().filter(|(_, (_, value))| !(self.is_in_use)(value));
            let oldest = free.min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| held.values.remove(&key));
        }
        let value = make();
        held.values.insert(key.clone(), (now, value.clone()));
        value
    }

    pub(super) fn forget(&self, key: &K) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).values.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let cache = Cache::new(2);
        cache.get_or_make(&"a", || 1);
        cache.get_or_make(&"b", || 2);
        cache.get_or_make(&"a", || 9);
        cache.get_or_make(&"c", || 3);
        assert_eq!((cache.get_or_make(&"a", || 9), cache.get_or_make(&"b", || 8)), (1, 8));
        cache.put(&"a", 2);
        assert_eq!((cache.get(&"a"), cache.get(&"c")), (Some(2), None));
        let keeping = Cache::keeping(1, |value: &i32| *value < 0);
        keeping.put(&"a", -1);
        keeping.put(&"b", 2);
        keeping.put(&"c", 3);
        assert_eq!((keeping.get(&"a"), keeping.get(&"b"), keeping.get(&"c")), (Some(-1), None, Some(3)));
        cache.forget(&"a");
        assert_eq!(cache.get_or_make(&"a", || 7), 7);
    }
}
