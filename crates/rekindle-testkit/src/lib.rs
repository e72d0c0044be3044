//! Tools to test Rekindle stores.
