//! Changes of values: what is asked, and the rule that every store shares.

use bytes::Bytes;

use super::ValueKey;
use crate::error::{Error, Result};

/// The most bytes of a value.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// What a change expects to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there.
    Anything,
    /// Exactly this; nothing means that there is no value.
    Is(Option<Bytes>),
}

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which value.
    pub key: ValueKey,
    /// What must be there.
    pub expected: Expected,
    /// What is to be there; nothing deletes the value.
    pub value: Option<Bytes>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The value is as the change wants it.
    Done,
    /// Something else than expected is there: this.
    Differs(Option<Bytes>),
}

/// What a store does with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write it.
    Write,
    /// Nothing: the value is as wanted.
    Keep,
    /// Nothing: something else than expected is there.
    Refuse,
}

impl Change {
    /// Sets a value, whatever is there.
    pub fn set(key: ValueKey, value: impl Into<Bytes>) -> Self {
        Self { key, expected: Expected::Anything, value: Some(value.into()) }
    }

    /// Deletes a value, whatever is there.
    pub fn delete(key: ValueKey) -> Self {
        Self { key, expected: Expected::Anything, value: None }
    }

    /// Only if there is exactly this now; nothing means no value.
    #[must_use]
    pub fn if_is(mut self, expected: Option<Bytes>) -> Self {
        self.expected = Expected::Is(expected);
        self
    }

    /// An error if the value is too large.
    pub fn check(&self) -> Result<()> {
        let bytes = self.value.as_ref().map_or(0, Bytes::len);
        match bytes > MAX_VALUE_BYTES {
            true => Err(Error::limit("bytes of a value", bytes as u64, MAX_VALUE_BYTES as u64).during("change value")),
            false => Ok(()),
        }
    }

    /// Decides about this change, given what is there.
    pub fn decide(&self, current: Option<&[u8]>) -> Decision {
        if self.value.as_deref() == current {
            return Decision::Keep;
        }
        match &self.expected {
            Expected::Anything => Decision::Write,
            Expected::Is(expected) if expected.as_deref() == current => Decision::Write,
            Expected::Is(_) => Decision::Refuse,
        }
    }
}
