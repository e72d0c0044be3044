//! The secrets of one run: those that operators gave, and values that stood under excluded keys. The first
//! are hidden from models and tools, too; the second are theirs, and hidden from what is stored and shown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rekindle_core::codec::Redaction;
use rekindle_core::{Error, Json, Record};
use serde_json::Value;

use super::Secret;
use super::clean::{self, Content};
use super::finder::Finder;
use super::masks::{Known, Masks};
use crate::event::LiveKind;
use crate::message::{Message, Part};

/// The shortest value under an excluded key that is followed: `none` or `test` is no secret.
const SHORTEST: usize = 6;

/// The most values under excluded keys that are followed; the oldest is forgotten first, and still taken out where
/// it stands under such a key.
const MOST: usize = 128;

/// The most values that one record can bring.
const MOST_OF_RECORD: usize = 32;

/// Takes secrets out of what a run stores and says.
#[derive(Debug)]
pub(crate) struct Redactor {
    masks: Masks,
    redaction: Redaction,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    known: Known,
    /// Finds everything: what was given, and what was found.
    all: Option<Arc<Finder>>,
    /// The version of the masks it was made from.
    version: u64,
    stale: bool,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Found(…)")
    }
}

/// A record as the run sees it and, if that is another, as it is stored.
pub(crate) struct Cleaned {
    pub(crate) applied: Record,
    pub(crate) stored: Option<Record>,
}

impl Redactor {
    /// Hides what `masks` know, and what stands under keys that `redaction` excludes.
    pub(crate) fn new(masks: Masks, redaction: Redaction) -> Self {
        Self { masks, redaction, found: Mutex::default() }
    }

    /// From now on the value of `name` is hidden from everything, models and tools included.
    pub(crate) fn learn(&self, name: &str, secret: &Secret) {
        self.masks.learn(name, secret);
    }

    /// Takes note of the values under excluded keys, before any of the records is stored.
    pub(crate) fn learn_from(&self, records: &[Record]) {
        for record in records {
            let mut values = Vec::new();
            if let Record::RegisterSet(set) = record
                && let Some(key) = self.redaction.excluded_register(set.key.as_str())
            {
                values.push((key.to_owned(), set.value.clone()));
            }
            clean::contents(record, &mut |content| {
                if let Content::Json(json) = content {
                    values.extend(self.redaction.excluded_values(json));
                }
            });
            for (key, value) in values {
                self.learn_value(&key, &value);
            }
        }
    }

    /// Takes note of everything that stands in a value.
    pub(crate) fn learn_value(&self, key: &str, value: &Json) {
        let mut leaves = Vec::new();
        if !super::is_redacted(value)
            && let Ok(value) = value.to_value()
        {
            collect(&value, &mut leaves);
        }
        if leaves.is_empty() {
            return;
        }
        let mut found = self.lock();
        for leaf in leaves {
            let given = self.masks.with_known(|known| known.secrets().any(|(_, value)| value == leaf));
            if !given {
                found.stale |= found.known.learn(key, &leaf, MOST);
            }
        }
    }

    /// Records without secrets, as they are seen by the run and as they are stored.
    pub(crate) fn clean(&self, records: Vec<Record>) -> Vec<Cleaned> {
        let (given, all) = (self.masks.finder(), self.all());
        records.into_iter().map(|record| cleaned(given.as_deref(), all.as_deref(), record)).collect()
    }

    /// Arguments as they are stored.
    pub(crate) fn arguments(&self, arguments: &Json) -> Json {
        let mut stored = arguments.clone();
        if let Some(finder) = self.all() {
            clean::mark_json(&finder, &mut stored);
        }
        self.redaction.value(&stored).unwrap_or(stored)
    }

    /// A text without secrets.
    pub(crate) fn text(&self, mut text: String) -> String {
        if let Some(finder) = self.all() {
            clean::clean_string(&finder, &mut text);
        }
        text
    }

    /// Returns what was said, without secrets.
    pub(crate) fn message(&self, mut message: Message) -> Message {
        if let Some(finder) = self.all() {
            message.parts.iter_mut().for_each(|part| clean::clean_part(&finder, part));
        }
        message
    }

    /// Takes the secrets that were given out of what a model answered: it was never told any, so a call has no use for
    /// one that it repeats.
    pub(crate) fn answer(&self, parts: &mut [Part]) {
        let Some(finder) = self.masks.finder() else { return };
        for part in parts {
            match part {
                Part::ToolCall(call) => clean::clean_json(&finder, &mut call.arguments),
                other => clean::clean_part(&finder, other),
            }
        }
    }

    /// A value whose texts hold no secrets; its shape stays.
    pub(crate) fn texts(&self, json: Json) -> Json {
        match (self.all().filter(|finder| clean::may_hold(finder, json.as_str())), json.to_value()) {
            (Some(finder), Ok(mut value)) => {
                clean_texts(&finder, &mut value);
                Json::from(value)
            }
            _ => json,
        }
    }

    /// An error that says no secrets. What led to it is left out if it does.
    pub(crate) fn error(&self, error: Error) -> Error {
        let Some(finder) = self.all() else { return error };
        let mut sources = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let says = sources.any(|error| finder.is_in(&error.to_string())) || finder.is_in(error.next_step());
        match says {
            true => {
                let (message, hint) = (self.text(error.message().to_owned()), self.text(error.next_step().to_owned()));
                Error::new(error.kind().clone(), message).hint(hint)
            }
            false => error,
        }
    }

    /// A value without secrets.
    pub(crate) fn json(&self, json: Json) -> Json {
        match (self.all(), json.to_value()) {
            (Some(finder), Ok(mut value)) => {
                clean::clean_value(&finder, &mut value);
                Json::from(value)
            }
            _ => json,
        }
    }

    /// Returns what is said, without secrets.
    pub(crate) fn clean_said(&self, said: LiveKind) -> LiveKind {
        if self.all().is_none() {
            return said;
        }
        let text = |text: String| self.text(text);
        match said {
            LiveKind::Text(said) => LiveKind::Text(text(said)),
            LiveKind::Reasoning(said) => LiveKind::Reasoning(text(said)),
            LiveKind::PartialFound(said) => LiveKind::PartialFound(text(said)),
            LiveKind::Progress { effect, value } => LiveKind::Progress { effect, value: self.json(value) },
            LiveKind::Degraded { error } => LiveKind::Degraded { error: text(error) },
            LiveKind::StoreAway { error } => LiveKind::StoreAway { error: text(error) },
            LiveKind::Notice(said) => LiveKind::Notice(text(said)),
            LiveKind::StoreBack => LiveKind::StoreBack,
        }
    }

    /// Finds every secret of the run; nothing if there is none.
    pub(crate) fn all(&self) -> Option<Arc<Finder>> {
        let mut found = self.lock();
        if found.known.is_empty() {
            drop(found);
            return self.masks.finder();
        }
        let version = self.masks.version();
        if std::mem::take(&mut found.stale) || found.version != version {
            found.version = version;
            let finder = self.masks.with_known(|given| Finder::new(given.secrets().chain(found.known.secrets())));
            found.all = finder.map(Arc::new);
        }
        found.all.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cleaned(given: Option<&Finder>, all: Option<&Finder>, mut record: Record) -> Cleaned {
    let Some(all) = all.filter(|finder| is_in(finder, &record)) else {
        return Cleaned { applied: record, stored: None };
    };
    let mut stored = record.clone();
    clean::clean_record(all, &mut stored);
    // What the run reads again to make a call: it must be the secret itself.
    let is_live = match &record {
        Record::RegisterSet(set) => clean::is_memory(set.key.as_str()),
        Record::EffectIntent(_) => true,
        _ => false,
    };
    match (&record, given) {
        // Shown to people as it is in the state.
        (Record::WaitOpened(_) | Record::WaitDecision(_), _) => return Cleaned { applied: stored, stored: None },
        (_, Some(given)) if !is_live => clean::clean_record(given, &mut record),
        _ => {}
    }
    Cleaned { applied: record, stored: Some(stored) }
}

fn clean_texts(finder: &Finder, value: &mut Value) {
    match value {
        Value::String(text) => clean::clean_string(finder, text),
        Value::Array(items) => items.iter_mut().for_each(|item| clean_texts(finder, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| clean_texts(finder, field)),
        _ => {}
    }
}

fn is_in(finder: &Finder, record: &Record) -> bool {
    let mut found = false;
    clean::contents(record, &mut |content| {
        found |= match content {
            Content::Json(json) => clean::may_hold(finder, json.as_str()),
            Content::Text(text) => finder.is_in(text) || text.contains('\\'),
        }
    });
    found
}

/// The texts and numbers in a value that may be secrets.
fn collect(value: &Value, leaves: &mut Vec<String>) {
    if leaves.len() >= MOST_OF_RECORD {
        return;
    }
    match value {
        Value::String(text) if text.len() >= SHORTEST => leaves.push(text.clone()),
        Value::Number(number) if number.to_string().len() >= SHORTEST => leaves.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, leaves)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, leaves)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rekindle_core::RegisterKey;
    use rekindle_core::record::{LogAppend, RegisterSet};
    use serde_json::json;

    use super::*;

    fn set(key: &str, value: Value) -> Record {
        RegisterSet::new(RegisterKey::new(key).unwrap(), Json::from(value)).into()
    }

    fn given(name: &str, secret: &str) -> Redactor {
        let redactor = Redactor::new(Masks::default(), Redaction::default());
        redactor.learn(name, &Secret::new(secret));
        redactor
    }

    /// The form in which a record is stored.
    fn stored(redactor: &Redactor, record: Record) -> Record {
        redactor.learn_from(std::slice::from_ref(&record));
        let cleaned = redactor.clean(vec![record]).pop().unwrap();
        cleaned.stored.unwrap_or(cleaned.applied)
    }

    #[test]
    fn records_are_cleaned_of_secrets() {
        let redactor = given("api", "s3cr\"et");
        let check = |value: Value, expected: Value| assert_eq!(stored(&redactor, set("k", value)), set("k", expected));
        check(json!(["key s3cr\"et!"]), json!(["key [secret api]!"]));
        check(json!({"s3cr\"et": 1}), json!({"[secret api]": 1}));
        check(json!("{\"a\":\"s3cr\\\"et\"}"), json!("{\"a\":\"[secret api]\"}"));
        check(json!("[\"\\u0073\\u0033cr\\u0022et\"]"), json!("[\"[secret api]\"]"));
        let escaped = RegisterSet::new(RegisterKey::new("k").unwrap(), Json::parse(r#""\u00733cr\u0022et""#).unwrap());
        assert_eq!(stored(&redactor, escaped.into()), set("k", json!("[secret api]")));
        let number = given("pin", "123456");
        assert_eq!(stored(&number, set("k", json!([123456, 1]))), set("k", json!(["[secret pin]", 1])));
        assert_eq!(format!("{:?}", Secret::new("x")), "Secret(…)");
    }

    #[test]
    fn what_executors_keep_for_themselves_stays_as_it_is() {
        let redactor = given("pw", "admin");
        let check = |key: &str, value: Value, expected: Value| {
            assert_eq!(stored(&redactor, set(key, value)), set(key, expected), "{key}");
        };
        check("strand/0", json!({"node":"admin","error":"admin"}), json!({"node":"admin","error":"[secret pw]"}));
        check("plan", json!({"turn":1,"query":"admin"}), json!({"turn":1,"query":"[secret pw]"}));
        check("node/admin/loop", json!({"ended":"admin"}), json!({"ended":"admin"}));
        check("memory/who", json!("admin"), json!({"$redacted":"pw"}));
        check("node/a.1/output/who", json!("admin"), json!({"$redacted":"pw"}));
        let result = json!({"step_id":"admin","output":{"a":"admin"},"completed_at":1,"duration_ms":2});
        let cleaned = json!({"step_id":"admin","output":{"a":"[secret pw]"},"completed_at":1,"duration_ms":2});
        check("anything", result, cleaned);
    }

    #[test]
    fn a_value_under_an_excluded_key_is_followed_by_value() {
        let redactor = Redactor::new(Masks::default(), Redaction::default());
        let key = json!({"api_key": "sk-1234567890"});
        let log = |item: Value| -> Record {
            LogAppend::new(rekindle_core::LogName::new("notes").unwrap(), vec![Json::from(item)]).into()
        };
        let records = vec![log(json!("it is sk-1234567890")), log(key)];
        redactor.learn_from(&records);
        let cleaned = redactor.clean(records);
        // The run itself goes on with it.
        assert_eq!(cleaned[0].applied, log(json!("it is sk-1234567890")));
        assert_eq!(cleaned[0].stored, Some(log(json!("it is [secret api_key]"))));
        // A word that is no secret is not followed.
        let harmless = Redactor::new(Masks::default(), Redaction::default());
        harmless.learn_from(&[log(json!({"api_key": "none", "credentials": {"$redacted": "credentials"}}))]);
        assert!(harmless.all().is_none());
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let redactor = Redactor::new(Masks::default(), Redaction::default());
        for number in 0..MOST * 2 {
            redactor.learn_value("api_key", &Json::from(format!("secret-number-{number}").as_str()));
        }
        assert_eq!(redactor.lock().known.secrets().count(), MOST);
        let many: Vec<String> = (0..1_000).map(|number| format!("another-{number}")).collect();
        redactor.learn_value("api_key", &Json::of(&many).unwrap());
        assert_eq!(redactor.lock().known.secrets().count(), MOST);
    }
}
