//! The values of a store that is opened when they are first needed: an anchor that is out of reach
//! keeps nobody from working.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{Change, Changed, ValueKey, ValuePage, ValueQuery, Values};
use rekindle_core::{Error, ErrorKind, Result, Store};
use tokio::sync::Mutex;

type Open = dyn Fn() -> Result<Arc<dyn Store>> + Send + Sync;

/// The values of a store that is opened when they are first needed.
pub struct OpenedValues {
    open: Arc<Open>,
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl OpenedValues {
    pub(super) fn new(open: Arc<Open>) -> Self {
        Self { open, store: Mutex::new(None) }
    }

    async fn store(&self) -> Result<Arc<dyn Store>> {
        let mut store = self.store.lock().await;
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = (self.open)()?;
        Ok(store.insert(opened).clone())
    }
}

fn values(store: &dyn Store) -> Result<&dyn Values> {
    store.values().ok_or_else(|| {
        let message = format!("a `{}` store keeps no marks", store.capabilities().name);
        Error::new(ErrorKind::Unsupported, message).hint("use a bucket, a file: or a sqlite: store as anchor")
    })
}

#[async_trait]
impl Values for OpenedValues {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        values(&self.store().await?)?.get(key).await
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        values(&self.store().await?)?.get_many(keys).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        values(&self.store().await?)?.change(change).await
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        values(&self.store().await?)?.list(query).await
    }
}
