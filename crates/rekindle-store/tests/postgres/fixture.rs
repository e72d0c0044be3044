//! Stores on servers: a schema of its own for each test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rekindle_core::{Clock, Store};
use rekindle_fixtures::Postgres;
use rekindle_store::{PostgresStore, StoreOptions};
use rekindle_testkit::Fixture;

/// A schema on the server all tests share.
pub struct Shared {
    schema: String,
    pub url: String,
}

impl Default for Shared {
    fn default() -> Self {
        let schema = new_schema();
        Self { url: format!("{}?pool=8&schema={schema}", Postgres::shared().url()), schema }
    }
}

impl Shared {
    /// The same, without prepared statements: as behind an old pooler.
    pub fn unprepared() -> Self {
        let shared = Self::default();
        Self { url: format!("{}&prepare=false", shared.url), ..shared }
    }

    /// The schema as it stands in statements.
    pub fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace("%22", "\"\"").replace("%20", " "))
    }
}

/// The name of a schema no other test uses, awkward on purpose, as it stands in a URL.
pub fn new_schema() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("Te%22st%20{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The same as users open it, which makes calls again.
#[derive(Default)]
pub struct Repeating(Shared);

#[async_trait]
impl Fixture for Repeating {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        rekindle_store::open(&self.0.url, StoreOptions::new().with_clock(clock)).unwrap()
    }
}

#[async_trait]
impl Fixture for Shared {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&self.url, StoreOptions::new().with_clock(clock)).unwrap())
    }
}
