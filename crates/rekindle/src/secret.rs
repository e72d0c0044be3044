//! Secrets by reference: the journal knows where a secret is, never what it is.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use rekindle_core::{Error, Json, Record, Result};
use serde_json::Value;

use crate::event::LiveKind;
use crate::executor::graph::Visited;
use crate::executor::plan::StepResult;
use crate::message::{Message, Part};

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
        clean_payload(&known, record)
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

/// The registers an engine keeps for itself.
const OWN_REGISTERS: [&str; 8] = ["loop", "budget", "definition", "breaker", "groups", "cursor", "decided", "stopping"];

/// A record with the secrets taken out of what people, models and tools said. What records are
/// recognised by stays: ids, keys, names, kinds.
fn clean_payload(known: &[(String, String)], mut record: Record) -> Record {
    let json = |value: &mut Json| clean_json(known, value);
    let text = |text: &mut String| {
        if let Some(cleaned) = clean_text(known, text) {
            *text = cleaned;
        }
    };
    match &mut record {
        Record::LogAppend(append) => append.items.iter_mut().for_each(json),
        Record::LogSplice(splice) => splice.items.iter_mut().for_each(json),
        Record::RegisterSet(set) => match own_fields(set.key.as_str()) {
            None => json(&mut set.value),
            Some(fields) => clean_fields(known, &mut set.value, fields),
        },
        Record::EffectIntent(intent) => intent.arguments.iter_mut().for_each(json),
        Record::EffectOutcome(outcome) => {
            outcome.value.iter_mut().for_each(json);
            outcome.error.iter_mut().for_each(text);
            outcome.extra.values_mut().for_each(|value| clean_value(known, value));
        }
        Record::EffectPartial(partial) => json(&mut partial.value),
        Record::WaitOpened(wait) => {
            text(&mut wait.prompt);
            [&mut wait.arguments, &mut wait.default].into_iter().flatten().for_each(json);
        }
        Record::WaitDecision(decision) => {
            text(&mut decision.reason);
            [&mut decision.value, &mut decision.arguments].into_iter().flatten().for_each(json);
        }
        Record::WaitClosed(closed) => closed.value.iter_mut().for_each(json),
        Record::RunEnded(ended) => text(&mut ended.reason),
        Record::Checkpoint(checkpoint) => text(&mut checkpoint.description),
        _ => {}
    }
    record
}

fn clean_json(known: &[(String, String)], json: &mut Json) {
    if !known.iter().any(|(value, _)| json.as_str().contains(value.as_str())) {
        return;
    }
    // Of a message only what is said: what makes it a message stays.
    if let Ok(mut message) = Message::from_json(json) {
        message.parts.iter_mut().for_each(|part| clean_part(known, part));
        *json = message.to_json().unwrap_or_else(|_| Json::from("[secret]"));
        return;
    }
    // Of what came of a step or a node likewise.
    if json.decode::<StepResult>().is_ok() || json.decode::<Visited>().is_ok() {
        return clean_fields(known, json, &["output", "error"]);
    }
    *json = match json.to_value() {
        Ok(mut value) => {
            clean_value(known, &mut value);
            Json::from(value)
        }
        Err(_) => Json::from("[secret]"),
    };
}

/// The fields of a register of the engine's own that hold what others said; nothing if all of it may.
fn own_fields(key: &str) -> Option<&'static [&'static str]> {
    let (kind, name) = key.split_once('/').unwrap_or((key, ""));
    let of_loop = name.rsplit('/').next().filter(|_| kind == "node" && !name.contains("/output/"));
    match (kind, of_loop) {
        ("plan", None) => Some(&["query", "last_error"]),
        ("step" | "strand", None) => Some(&["error"]),
        ("graph" | "visits" | "metrics" | "secret", None) => Some(&[]),
        (_, Some(register)) if OWN_REGISTERS.contains(&register) => Some(&[]),
        _ if OWN_REGISTERS.contains(&key) => Some(&[]),
        _ => None,
    }
}

fn clean_fields(known: &[(String, String)], json: &mut Json, fields: &[&str]) {
    if !known.iter().any(|(value, _)| json.as_str().contains(value.as_str())) {
        return;
    }
    let Ok(Value::Object(mut object)) = json.to_value() else { return };
    for field in fields {
        if let Some(value) = object.get_mut(*field) {
            clean_value(known, value);
        }
    }
    *json = Json::from(Value::Object(object));
}

fn clean_part(known: &[(String, String)], part: &mut Part) {
    let text = |text: &mut String| {
        if let Some(cleaned) = clean_text(known, text) {
            *text = cleaned;
        }
    };
    match part {
        Part::Text(said) => text(said),
        Part::Reasoning(reasoning) => text(&mut reasoning.text),
        Part::Image(reference) | Part::File(reference) => text(&mut reference.uri),
        Part::ToolCall(call) => clean_json(known, &mut call.arguments),
        Part::ToolResult(result) => {
            clean_json(known, &mut result.content);
            result.terminate.iter_mut().for_each(text);
        }
        Part::Unknown(_, body) => clean_json(known, body),
    }
}

fn clean_value(known: &[(String, String)], value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(cleaned) = clean_text(known, text) {
                *text = cleaned;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_value(known, item)),
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                clean_value(known, &mut field);
                (clean_text(known, &key).unwrap_or(key), field)
            });
            *fields = cleaned.collect();
        }
        _ => {}
    }
}

/// A text without secrets, if there is any in it. They are known as they stand inside JSON.
fn clean_text(known: &[(String, String)], text: &str) -> Option<String> {
    let cleaned = replaced(known, Json::from(text).as_str())?;
    Some(serde_json::from_str(&cleaned).unwrap_or_else(|_| "[secret]".to_owned()))
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
    fn what_executors_keep_for_themselves_stays_as_it_is() {
        let redactor = Redactor::default();
        redactor.learn("pw", &Secret::new("admin"));
        let check = |key: &str, value: serde_json::Value, expected: serde_json::Value| {
            let set = |value| RegisterSet::new(rekindle_core::RegisterKey::new(key).unwrap(), Json::from(value)).into();
            assert_eq!(redactor.clean_record(set(value)), set(expected), "{key}");
        };
        let json = |text: &str| serde_json::from_str(text).unwrap();
        check(
            "strand/0",
            json(r#"{"node":"admin","error":"admin"}"#),
            json(r#"{"node":"admin","error":"[secret pw]"}"#),
        );
        check("plan", json(r#"{"turn":1,"query":"admin"}"#), json(r#"{"turn":1,"query":"[secret pw]"}"#));
        check("node/admin/loop", json(r#"{"ended":"admin"}"#), json(r#"{"ended":"admin"}"#));
        check("memory/who", json(r#""admin""#), json(r#""[secret pw]""#));
        check("node/a.1/output/who", json(r#""admin""#), json(r#""[secret pw]""#));
        let result = json(r#"{"step_id":"admin","output":{"a":"admin"},"completed_at":1,"duration_ms":2}"#);
        let cleaned = json(r#"{"step_id":"admin","output":{"a":"[secret pw]"},"completed_at":1,"duration_ms":2}"#);
        check("anything", result, cleaned);
    }

    #[test]
    fn an_error_never_repeats_what_may_be_a_secret() {
        let error = "sk-12345".parse::<SecretRef>().unwrap_err();
        assert!(!format!("{error:?}").contains("12345"));
    }
}
