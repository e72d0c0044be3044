//! Secrets by reference: the journal knows where a secret is, never what it is.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use rekindle_core::{Error, Json, Record, Result};
use serde_json::Value;

use crate::event::LiveKind;

/// Where a secret is: `@env:VAR` or `@file:path`, or any other scheme a [`SecretSource`] knows.
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

/// Takes secrets that were used out of what is stored.
#[derive(Debug, Default)]
pub(crate) struct Redactor(Mutex<Vec<(String, String)>>);

impl Redactor {
    /// From now on the value of `name` never goes into a result.
    pub(crate) fn learn(&self, name: &str, secret: &Secret) {
        // As it stands inside a JSON string.
        let inside = serde_json::to_string(secret.expose()).unwrap_or_default();
        // One quote on each side is not the secret's own.
        let inside = inside.get(1..inside.len().saturating_sub(1)).unwrap_or_default().to_owned();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.len() >= 4 && !known.iter().any(|(value, _)| *value == inside) {
            known.push((inside, format!("[secret {}]", name.replace(['"', '\\'], ""))));
        }
    }

    /// `record` without the secrets learnt so far.
    pub(crate) fn clean_record(&self, record: Record) -> Record {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return record;
        }
        let text = serde_json::to_string(&record).unwrap_or_default();
        if !known.iter().any(|(value, _)| text.contains(value.as_str())) {
            return record;
        }
        let cleaned = serde_json::from_str(&text).ok().and_then(|mut value: Value| {
            clean_value(&known, &mut value);
            serde_json::from_str(&value.to_string()).ok()
        });
        cleaned.unwrap_or(record)
    }

    /// What is said, without the secrets learnt so far.
    pub(crate) fn clean_said(&self, said: LiveKind) -> LiveKind {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = |text: String| replaced(&known, &text).unwrap_or(text);
        match said {
            LiveKind::Text(said) => LiveKind::Text(text(said)),
            LiveKind::Reasoning(said) => LiveKind::Reasoning(text(said)),
            LiveKind::PartialFound(said) => LiveKind::PartialFound(text(said)),
            LiveKind::Progress { effect, value } => {
                let cleaned = replaced(&known, value.as_str()).map(Json::parse);
                LiveKind::Progress {
                    effect,
                    value: cleaned.map_or(value, |json| json.unwrap_or_else(|_| Json::null())),
                }
            }
            LiveKind::Degraded { error } => LiveKind::Degraded { error: text(error) },
            LiveKind::StoreAway { error } => LiveKind::StoreAway { error: text(error) },
            LiveKind::Notice(said) => LiveKind::Notice(text(said)),
            LiveKind::StoreBack => LiveKind::StoreBack,
        }
    }
}

/// Replaces secrets in texts, wherever they stand; never in the names of fields.
fn clean_value(known: &[(String, String)], value: &mut Value) {
    match value {
        Value::String(text) => {
            // Secrets are known as they stand inside JSON.
            let inside = Json::from(text.as_str());
            if let Some(cleaned) = replaced(known, inside.as_str()) {
                *text = serde_json::from_str(&cleaned).unwrap_or_else(|_| "[secret]".to_owned());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_value(known, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| clean_value(known, field)),
        _ => {}
    }
}

/// `text` with the names of secrets in place of their values, if there is any in it.
fn replaced(known: &[(String, String)], text: &str) -> Option<String> {
    known
        .iter()
        .any(|(value, _)| text.contains(value.as_str()))
        .then(|| known.iter().fold(text.to_owned(), |text, (value, name)| text.replace(value, name)))
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::RegisterSet;

    use super::*;

    #[test]
    fn records_are_cleaned_of_secrets() {
        let redactor = Redactor::default();
        redactor.learn("api", &Secret::new("s3cr\"et"));
        let key = rekindle_core::RegisterKey::new("k").unwrap();
        let record = RegisterSet::new(key.clone(), Json::of(&["key s3cr\"et!"]).unwrap());
        let cleaned = RegisterSet::new(key, Json::parse(r#"["key [secret api]!"]"#).unwrap());
        assert_eq!(redactor.clean_record(record.into()), cleaned.into());
        assert_eq!(format!("{:?}", Secret::new("x")), "Secret(…)");
    }

    #[test]
    fn an_error_never_repeats_what_may_be_a_secret() {
        let error = "sk-12345".parse::<SecretRef>().unwrap_err();
        assert!(!format!("{error:?}").contains("12345"));
    }
}
