//! What a store under test must offer, and what the tests make of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::{Clock, IdSource, Journal, SessionHeader, SessionId, SessionInfo, SessionKey, Store};

use crate::clock::ManualClock;

/// A store under test.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens the store over the fixture's data, as a new process would. Earlier handles may or
    /// may not be alive. Leases must expire by `clock`.
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store>;

    /// How many bytes the data takes where it is kept, or nothing if that cannot be told.
    async fn stored_bytes(&self) -> Option<u64> {
        None
    }
}

/// How the journal over the store is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecKind {
    /// As it comes.
    Default,
    /// Everything compressed.
    Compressed,
    /// A keyed chain.
    Signed,
    /// Compressed and encrypted.
    Encrypted,
}

impl CodecKind {
    /// A codec of this kind.
    pub fn codec(self) -> Codec {
        let ring = || KeyRing::new("test-key", [42; 32]).expect("the id and the key are legal");
        match self {
            Self::Default => Codec::new(),
            Self::Compressed => Codec::new().with_compression(0, 3),
            Self::Signed => Codec::new().with_signing(ring()),
            Self::Encrypted => Codec::new().with_compression(256, 3).with_encryption(ring()),
        }
    }
}

/// A fixture with a clock and a codec: what a test works with.
pub struct Harness {
    fixture: Box<dyn Fixture>,
    /// The clock of the store and of the journals.
    pub clock: Arc<ManualClock>,
    codec: CodecKind,
    seeds: AtomicU64,
}

impl Harness {
    /// A harness around `fixture`.
    pub fn new(fixture: impl Fixture, codec: CodecKind) -> Self {
        Self { fixture: Box::new(fixture), clock: Arc::default(), codec, seeds: AtomicU64::new(1) }
    }

    /// Opens the store.
    pub async fn store(&self) -> Arc<dyn Store> {
        self.fixture.open(self.clock.clone()).await
    }

    /// Opens the store and puts a journal over it.
    pub async fn journal(&self) -> Journal {
        self.journal_over(self.store().await)
    }

    /// A journal over a store, with ids of its own.
    pub fn journal_over(&self, store: Arc<dyn Store>) -> Journal {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seeds.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        Journal::new(store, self.codec.codec(), self.clock.clone(), IdSource::seeded(seed))
    }

    /// How the journals are configured.
    pub fn codec(&self) -> CodecKind {
        self.codec
    }

    /// How many bytes the data takes, or nothing if that cannot be told.
    pub async fn stored_bytes(&self) -> Option<u64> {
        self.fixture.stored_bytes().await
    }

    /// Creates a session of that id in the default namespace.
    pub async fn session(&self, journal: &Journal, id: &str) -> SessionInfo {
        journal.create(SessionHeader::new(key(id))).await.expect("a new session can be created")
    }
}

/// The key of a session of that id in the default namespace.
pub(crate) fn key(id: &str) -> SessionKey {
    SessionId::new(id).expect("the test's id is legal").into()
}
