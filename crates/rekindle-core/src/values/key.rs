//! Names of values.

use std::fmt;

use crate::error::{Error, Result};
use crate::id::Namespace;

/// The longest key of a value, in bytes of UTF-8: two ids and what separates them.
pub const MAX_VALUE_KEY_BYTES: usize = 1024;

/// What a value is for. Known when the program is built, never taken from input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueKind(&'static str);

impl ValueKind {
    /// Wrapped data keys, by session.
    pub const DATA_KEY: Self = Self::new("data-key");
    /// The highest heads that were seen, by session.
    pub const HIGH_WATER: Self = Self::new("high-water");

    /// Places of large values, by session.
    pub const LARGE_VALUES: Self = Self::new("large-values");
    /// The id of the store, by which its large values are told from those of others.
    pub const LARGE_VALUES_OWNER: Self = Self::new("large-values-owner");
    /// Removals that were begun, by session.
    pub const REMOVAL: Self = Self::new("removal");

    /// A kind of values: 1 to 32 lower-case letters, digits and `-`. Panics otherwise, so make it a constant.
    pub const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= 32, "a kind of values has 1 to 32 characters");
        let mut at = 0;
        while at < bytes.len() {
            assert!(matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'-'), "a kind of values is lower case");
            at += 1;
        }
        Self(name)
    }

    /// The kind as text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The full name of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueKey {
    namespace: Namespace,
    kind: ValueKind,
    key: String,
}

impl ValueKey {
    /// The value named `key`: 1 to [`MAX_VALUE_KEY_BYTES`] bytes without control characters.
    pub fn new(namespace: Namespace, kind: ValueKind, key: impl Into<String>) -> Result<Self> {
        let key = key.into();
        check(&key)?;
        Ok(Self { namespace, kind, key })
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The kind.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// An error unless `key` can be the key of a value.
pub(super) fn check(key: &str) -> Result<()> {
    match key.is_empty() || key.len() > MAX_VALUE_KEY_BYTES || key.chars().any(char::is_control) {
        true => Err(Error::invalid(format!(
            "the key of a value has 1 to {MAX_VALUE_KEY_BYTES} bytes and no control characters"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
        let key = |text: &str| ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, text);
        assert!(key("").is_err() && key("a\nb").is_err() && key(&"x".repeat(1025)).is_err());
        assert_eq!(key("../ä b").unwrap().key(), "../ä b");
    }
}
