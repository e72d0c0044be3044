//! Fuzzing of decoders as ordinary tests: mutated valid encodings and arbitrary bytes go into a
//! target, which must not panic, hang or use memory out of proportion to its input.
//!
//! ```
//! # let regressions = std::env::temp_dir();
//! rekindle_fuzz::Fuzz::new("number", regressions)
//!     .seeds(["17", "-4"])
//!     .text(|text| {
//!         let number = text.parse::<i64>().ok()?;
//!         assert_eq!(number.to_string().parse(), Ok(number));
//!         Some(())
//!     });
//! ```
//!
//! Memory is measured if the test binary installs [`Counting`] as its allocator. The environment says how long a
//! target runs; see [`Effort`]. A failing input is shrunk, kept as a regression file, and tried
//! first from then on.

mod effort;
mod input;
mod memory;
mod mutation;
mod regressions;
pub mod repair;
mod run;
mod watch;

pub use effort::Effort;
pub use memory::{Counting, peak};
pub use run::{Fuzz, Verdict};

/// Starts a target of the calling crate, with its regression files under `tests/fuzz/regressions`.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        $crate::Fuzz::new($name, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/regressions"))
    };
}
