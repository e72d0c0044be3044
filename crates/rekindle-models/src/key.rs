//! The key of a provider: its value, and where it came from. The value is never shown.

use std::fmt;

use rekindle::{Result, Secret, SecretRef, SecretSource};

/// The key of a provider, and a label that says where it came from.
///
/// The label stands in errors (“the key `@env:OPENAI_API_KEY` was refused”), the value nowhere.
///
/// ```
/// use rekindle::Secret;
/// use rekindle_models::ApiKey;
///
/// let key = ApiKey::new(Secret::new("sk-123")).labelled("@env:OPENAI_API_KEY");
/// assert_eq!(format!("{key:?}"), "ApiKey(@env:OPENAI_API_KEY)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    secret: Secret,
    label: String,
}

impl ApiKey {
    /// A key without a label.
    pub fn new(secret: Secret) -> Self {
        Self { secret, label: "given to it".to_owned() }
    }

    /// The key behind `reference`, labelled with it.
    pub fn resolve(reference: &SecretRef, source: &dyn SecretSource) -> Result<Self> {
        Ok(Self::new(source.resolve(reference)?).labelled(reference.as_str()))
    }

    /// The same with a label: where it came from, never what it is.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Where it came from.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }
}

impl From<Secret> for ApiKey {
    fn from(secret: Secret) -> Self {
        Self::new(secret)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.label)
    }
}
