//! Limits on what goes in and on what stored bytes may grow to.

/// The most that is accepted. Everything over it is a [`Limit`](crate::ErrorKind::Limit) error
/// that names what, how much and the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one record as JSON.
    pub record_bytes: usize,
    /// Records of one batch.
    pub batch_records: usize,
    /// Bytes of one batch as JSON; also the most a stored payload may decompress to.
    pub batch_bytes: usize,
    /// How deeply values may nest.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { record_bytes: 16 << 20, batch_records: 10_000, batch_bytes: 64 << 20, depth: 100 }
    }
}

impl Limits {
    /// Another limit on the bytes of one record.
    #[must_use]
    pub fn with_record_bytes(mut self, bytes: usize) -> Self {
        self.record_bytes = bytes;
        self
    }

    /// Another limit on the bytes of one batch.
    #[must_use]
    pub fn with_batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }
}
