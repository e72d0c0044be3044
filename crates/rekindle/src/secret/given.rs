//! Secrets that operators gave, by name. References that stand in sessions are never followed: who can
//! write to a store must not choose which secrets are read, or which program is started for them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rekindle_core::record::RegisterSet;
use rekindle_core::{Error, ErrorKind, Json, Record, RegisterKey, Result, State};
use serde_json::Value;

use super::clean::is_memory;
use super::marker::{self, is_same_key};
use super::{Masks, Secret, SecretRef, SecretSource};

/// A secret as an operator gave it.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// Its place.
    Reference(SecretRef),
    /// Its value: typed in, and kept by this process alone.
    Value(Secret),
}

/// The secrets a run was given.
#[derive(Clone)]
pub(crate) struct GivenSecrets {
    source: Arc<dyn SecretSource>,
    /// The last one of a name counts.
    named: Vec<(String, Given)>,
    masks: Masks,
    /// The secrets that were looked up for the memory.
    kept: Arc<Mutex<Vec<(String, Secret)>>>,
}

impl fmt::Debug for GivenSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named.iter().map(|(name, _)| name)).finish()
    }
}

impl GivenSecrets {
    pub(crate) fn new(source: Arc<dyn SecretSource>, named: Vec<(String, Given)>, masks: Masks) -> Self {
        Self { source, named, masks, kept: Arc::default() }
    }

    /// The names, and what was given for them.
    pub(crate) fn named(&self) -> &[(String, Given)] {
        &self.named
    }

    /// Returns whether a secret of that name was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Given> {
        self.named.iter().rev().find(|(known, _)| is_same_key(known, name)).map(|(_, given)| given)
    }

    /// Looks a secret up; nothing if none of that name was given. From then on it is masked.
    pub(crate) async fn look_up(&self, name: &str) -> Result<Option<Secret>> {
        let secret = match self.find(name).cloned() {
            None => return Ok(None),
            Some(Given::Value(secret)) => secret,
            Some(Given::Reference(reference)) => {
                // A keychain or a program may take its time, and the lease must be renewed meanwhile.
                let source = Arc::clone(&self.source);
                let resolved = tokio::task::spawn_blocking(move || source.resolve(&reference)).await;
                resolved.map_err(|_| {
                    let message = format!("the source of secrets failed while it looked up `{name}`");
                    Error::new(ErrorKind::StepFailed, message)
                })??
            }
        };
        self.masks.learn(name, &secret);
        Ok(Some(secret))
    }

    /// Looks up those of the names that were given, once, so that the memory can hold them.
    pub(crate) async fn keep(&self, names: &BTreeSet<String>) -> Result<()> {
        for name in names {
            if self.kept(name).is_none()
                && let Some(secret) = self.look_up(name).await?
            {
                self.lock().push((name.clone(), secret));
            }
        }
        Ok(())
    }

    /// The value a key of the memory has, if it was kept: text, or the JSON object or list that the text is.
    pub(crate) fn kept(&self, name: &str) -> Option<Value> {
        let kept = self.lock();
        let (_, secret) = kept.iter().find(|(known, _)| is_same_key(known, name))?;
        let parsed = serde_json::from_str::<Value>(secret.expose()).ok();
        let structured = parsed.filter(|value| value.is_object() || value.is_array());
        Some(structured.unwrap_or_else(|| Value::String(secret.expose().to_owned())))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, Secret)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what was kept in place of the marks in the memory of a state that only this process sees.
    pub(crate) fn fill(&self, state: &mut State) -> Result<()> {
        let mut filled = Vec::new();
        for (key, mut value) in marked(state) {
            let before = value.clone();
            marker::fill(&mut value, &|name| self.kept(name));
            if value != before {
                filled.push(RegisterSet::new(key, Json::from(value)));
            }
        }
        filled.into_iter().try_for_each(|set| state.apply(&set.into()))
    }
}

/// The names of the secrets that the memory of a state has marks of.
pub(crate) fn missing(state: &State) -> BTreeSet<String> {
    marked(state).flat_map(|(_, value)| marker::names(&value)).collect()
}

/// The registers of the memory that hold marks.
fn marked(state: &State) -> impl Iterator<Item = (RegisterKey, Value)> {
    let memory = state.registers().filter(|(key, value)| is_memory(key.as_str()) && marker::is_redacted(value));
    memory.filter_map(|(key, value)| Some((key.clone(), value.to_value().ok()?)))
}

/// A mark of a secret gets into the memory only where that secret was before, or under its own name: whoever
/// writes there could read any secret otherwise.
pub(crate) fn disarm_record(state: &State, record: &mut Record) {
    let Record::RegisterSet(set) = record else { return };
    if !is_memory(set.key.as_str()) || !marker::is_redacted(&set.value) {
        return;
    }
    let Ok(mut value) = set.value.to_value() else { return };
    let own = set.key.as_str().rsplit('/').next().unwrap_or_default();
    let layers = marked(state).filter(|(key, _)| key.as_str().rsplit('/').next() == Some(own));
    let kept: Vec<String> = layers.flat_map(|(_, value)| marker::names(&value)).collect();
    marker::disarm(&mut value, own, &|name| kept.iter().any(|known| known == name));
    set.value = Json::from(value);
}

/// The error of a run that needs a secret it was not given.
pub(crate) fn not_given(what: &str, names: &BTreeSet<String>) -> Error {
    let listed: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let hint: Vec<_> = names.iter().map(|name| format!("--secret {name}=@env:VARIABLE")).collect();
    let message =
        format!("{what} holds the secret {}, which is never stored and was not given again", listed.join(" and "));
    Error::not_found(message).hint(format!("resume with {}", hint.join(" ")))
}
