//! What a Rekindle store is tested with: the conformance suite of the [`Store`] contract, a
//! model-based test, a comparison with the rules that all stores share, a clock that stands still, and tools to build histories.
//!
//! A store of your own runs all of it with a few macros. The fixture opens the store as often as
//! it is asked to, always over the same data, as a new process would:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rekindle_core::{Clock, Store};
//! use rekindle_store::{MemoryStore, StoreOptions};
//! use rekindle_testkit::Fixture;
//!
//! # // Here the memory store stands for yours.
//! #[derive(Default)]
//! pub struct MyFixture(std::sync::OnceLock<MemoryStore>);
//!
//! #[async_trait::async_trait]
//! impl Fixture for MyFixture {
//!     async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
//!         let open = || MemoryStore::new(StoreOptions::new().with_clock(clock));
//!         Arc::new(self.0.get_or_init(open).clone())
//!     }
//! }
//!
//! rekindle_testkit::conformance!(conformance, MyFixture::default);
//! rekindle_testkit::model_test!(random_commands, MyFixture::default);
//! rekindle_testkit::differential_test!(shared_rules, MyFixture::default);
//! // If the store keeps jobs for workers:
//! rekindle_testkit::queue_conformance!(queue, MyFixture::default);
//! // If it keeps small values:
//! rekindle_testkit::values_conformance!(values, MyFixture::default);
//! # fn main() {}
//! ```
//!
//! [`Store`]: rekindle_core::Store

mod clock;
pub mod conformance;
pub mod differential;
mod dropped;
mod fixture;
mod history;
mod hooked;
pub mod model;
pub mod queue;
pub mod values;

pub use clock::ManualClock;
pub use dropped::{answer, at_every_await, cut};
pub use fixture::{CodecKind, Fixture, Harness};
pub use history::{History, checkpoint, message, register};
pub use hooked::{Call, Hook, Hooked, Stop, Stopping};
