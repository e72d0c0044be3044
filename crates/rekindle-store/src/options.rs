//! What every store can be told when it is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::Clock;

use crate::system::SystemClock;

/// Options common to all stores.
///
/// ```
/// use rekindle_store::StoreOptions;
/// let options = StoreOptions::new().with_read_only(true);
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) staleness: Duration,
    pub(crate) settings: BTreeMap<String, String>,
}

impl fmt::Debug for StoreOptions {
    /// Settings by name only: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.settings.keys().collect();
        f.debug_struct("StoreOptions")
            .field("clock", &self.clock)
            .field("create", &self.create)
            .field("read_only", &self.read_only)
            .field("staleness", &self.staleness)
            .field("settings", &names)
            .finish()
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// The store's own clock; what is missing is created; reading and writing.
    pub fn new() -> Self {
        Self { clock: None, create: true, read_only: false, staleness: Duration::ZERO, settings: BTreeMap::new() }
    }

    /// The clock that leases expire by: for tests. Without it, a store on a server goes by the
    /// server's clock, any other by that of this machine.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Something only one kind of store understands and a URL should not say, e.g. `password` or
    /// `aws_secret_access_key`. Wins over the URL.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// How old what is read of a session may be where each look is a request (object storage): a command that
    /// looks at one session several times asks once. Zero unless this says otherwise. Changes are decided on the
    /// session as it is in any case, and a process always sees its own.
    #[must_use]
    pub fn with_staleness(mut self, staleness: Duration) -> Self {
        self.staleness = staleness;
        self
    }

    /// The clock given, or that of this machine.
    pub(crate) fn local_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock))
    }

    /// Whether a store that does not exist is created (the default) or an error.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether writing is refused; nothing is created then.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}
