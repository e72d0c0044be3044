//! Messages and references to secrets against mutated and arbitrary input; see `docs/fuzzing.md`.
//! Decoders that are private are fuzzed beside their code, in tests named `fuzzed_…`.
#![allow(clippy::unwrap_used)]

mod messages;

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;
