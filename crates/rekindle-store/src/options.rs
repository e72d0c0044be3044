//! What every store can be told when it is opened.

use std::sync::Arc;

use rekindle_core::Clock;

use crate::system::SystemClock;

/// Options common to all stores.
///
/// ```
/// use rekindle_store::StoreOptions;
/// let options = StoreOptions::new().with_read_only(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// The system's clock; what is missing is created; reading and writing.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), create: true, read_only: false }
    }

    /// The clock that leases expire by.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
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
