//! The calls of this process that have processes, by their idempotency keys.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Every call under way. A key has several while an earlier try of the call comes to its end.
static CALLS: Mutex<Option<HashMap<String, Vec<Entry>>>> = Mutex::new(None);

#[derive(Clone, Debug)]
struct Entry {
    stop: CancellationToken,
    ended: CancellationToken,
}

/// A call under way. Dropped when its processes have ended.
#[derive(Debug)]
pub(crate) struct Live {
    key: String,
    ended: CancellationToken,
}

impl Live {
    /// Takes note of a call that ends its processes when `stop` fires.
    pub(crate) fn new(key: &str, stop: CancellationToken) -> Self {
        let ended = CancellationToken::new();
        let entry = Entry { stop, ended: ended.clone() };
        calls().get_or_insert_default().entry(key.to_owned()).or_default().push(entry);
        Self { key: key.to_owned(), ended }
    }

    /// The idempotency key of the call.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Stops the calls with that key, and waits until their processes have ended.
    pub(crate) async fn end(key: &str) {
        let entries = calls().as_ref().and_then(|calls| calls.get(key).cloned()).unwrap_or_default();
        for entry in &entries {
            entry.stop.cancel();
        }
        for entry in entries {
            entry.ended.cancelled().await;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ended.cancel();
        let mut calls = calls();
        let Some(calls) = calls.as_mut() else { return };
        if let Some(entries) = calls.get_mut(&self.key) {
            entries.retain(|entry| !entry.ended.is_cancelled());
            if entries.is_empty() {
                calls.remove(&self.key);
            }
        }
    }
}

fn calls() -> MutexGuard<'static, Option<HashMap<String, Vec<Entry>>>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn ending_a_call_waits_for_all_of_its_tries() {
        let stop = CancellationToken::new();
        let tries = [Live::new("k", stop.clone()), Live::new("k", stop.clone())];
        let other = Live::new("other", CancellationToken::new());
        let end = Live::end("k");
        tokio::pin!(end);
        assert!(tokio::time::timeout(Duration::ZERO, &mut end).await.is_err());
        assert!(stop.is_cancelled());
        let [first, second] = tries;
        drop(first);
        assert!(tokio::time::timeout(Duration::ZERO, &mut end).await.is_err());
        drop(second);
        end.await;
        assert!(!calls().as_ref().unwrap().contains_key("k"));
        drop(other);
        Live::end("other").await;
    }
}
