//! Importers against mutated and arbitrary input; see `docs/fuzzing.md`.
//! Decoders that are private are fuzzed beside their code, in tests named `fuzzed_…`.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

mod imports;

use std::future::Future;

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
