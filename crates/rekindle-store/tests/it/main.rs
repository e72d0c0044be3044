//! Behaviour of all stores and decorators: the conformance suite and what goes beyond it.

mod conformance;
mod fixtures;
