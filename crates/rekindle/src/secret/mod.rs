//! Secrets by reference: the journal knows their names, never what they are. They are tracked by value, so
//! that a secret stays one wherever it goes; see `docs/design/0017-secrets.md`.

mod clean;
mod finder;
mod forms;
mod given;
mod marker;
mod masks;
mod redactor;
mod stream;

use std::fmt;

use rekindle_core::{Error, Result};

pub use masks::Masks;

pub(crate) use given::{Given, GivenSecrets, disarm_record, missing, not_given};
pub(crate) use marker::{is_redacted, names};
pub(crate) use redactor::{Cleaned, Redactor};
pub(crate) use stream::Held;

/// The place of a secret: `@env:VAR` or `@file:path`, or any other scheme a [`SecretSource`] knows.
///
/// ```
/// use rekindle::SecretRef;
/// let reference: SecretRef = "@env:API_KEY".parse()?;
/// assert_eq!((reference.scheme(), reference.rest()), ("env", "API_KEY"));
/// assert!("hunter2".parse::<SecretRef>().is_err());
/// # Ok::<(), rekindle::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRef(String);

impl SecretRef {
    /// The part between `@` and `:`.
    pub fn scheme(&self) -> &str {
        self.0[1..].split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The part behind the colon.
    pub fn rest(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, rest)| rest)
    }

    /// The reference as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SecretRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.strip_prefix('@').and_then(|rest| rest.split_once(':'));
        match parts {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Ok(Self(text.to_owned())),
            // The text is not repeated: it may be the secret itself.
            _ => Err(Error::invalid("a secret is given by reference, never by value")
                .hint("write @env:VARIABLE or @file:path")),
        }
    }
}

/// The value of a secret. It is never shown, and what tools return is searched for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with that value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Finds secrets. The library itself reads neither the environment nor files: whoever composes
/// the program says where secrets come from.
pub trait SecretSource: fmt::Debug + Send + Sync + 'static {
    /// The value behind `reference`.
    fn resolve(&self, reference: &SecretRef) -> Result<Secret>;
}

/// Knows no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoSecrets;

impl SecretSource for NoSecrets {
    fn resolve(&self, reference: &SecretRef) -> Result<Secret> {
        let message = format!("nothing here can resolve `@{}:` references", reference.scheme());
        Err(Error::invalid(message).hint("give the engine a source with `Engine::with_secrets`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_never_repeats_what_may_be_a_secret() {
        let error = "sk-12345".parse::<SecretRef>().unwrap_err();
        assert!(!format!("{error:?}").contains("12345"));
    }
}
