//! What a Rekindle store is tested with: the conformance suite of the [`Store`] contract, a
//! model-based test, a clock that stands still, and tools to build histories.
//!
//! A store of your own runs the whole suite with one macro:
//!
//! ```ignore
//! rekindle_testkit::conformance!(my_store, || MyFixture::new());
//! ```
//!
//! where the fixture implements [`Fixture`]: it opens the store as often as it is asked to,
//! always over the same data, as a new process would.
//!
//! [`Store`]: rekindle_core::Store

mod clock;
pub mod conformance;
mod fixture;
mod history;
pub mod model;

pub use clock::ManualClock;
pub use fixture::{CodecKind, Fixture, Harness};
pub use history::{History, checkpoint, message, register};
