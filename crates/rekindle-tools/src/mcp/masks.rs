//! Keeps the secrets that a server was given out of what it says. The engine does not know them:
//! they belong to the connection, not to a session.

use std::fmt;

use rekindle::Secret;
use serde_json::Value;

/// Secrets and what stands in their place.
pub(super) struct Masks(Vec<(Secret, String)>);

impl Masks {
    pub(super) fn new(secrets: Vec<(String, Secret)>) -> Self {
        // One of a few characters would be found everywhere.
        let secrets = secrets.into_iter().filter(|(_, secret)| secret.expose().len() >= 4);
        Self(secrets.map(|(name, secret)| (secret, format!("[secret {name}]"))).collect())
    }

    pub(super) fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (secret, name)| match text.contains(secret.expose()) {
            true => text.replace(secret.expose(), name),
            false => text,
        })
    }

    pub(super) fn value(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, field)| (self.text(name), self.value(field))).collect()
            }
            plain => plain,
        }
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Masks").field(&self.0.len()).finish()
    }
}
