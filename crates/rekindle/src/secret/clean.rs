//! Records without secrets: what is stored of them. What records are recognised by stays: ids, keys, names,
//! kinds.

use rekindle_core::{Json, Record};
use serde_json::Value;

use super::finder::Finder;
use super::marker;
use crate::executor::graph::Visited;
use crate::executor::plan::StepResult;
use crate::message::{Message, Part};

/// The depth to which JSON inside strings is followed.
const NESTED: usize = 4;

/// The registers an engine keeps for itself.
const OWN_REGISTERS: [&str; 9] =
    ["loop", "budget", "definition", "started", "breaker", "groups", "cursor", "decided", "stopping"];

/// Returns whether a register holds a key of the memory, or what will become one.
pub(super) fn is_memory(register: &str) -> bool {
    register.starts_with("memory/")
        || register.starts_with("overlay/")
        || register.starts_with("node/") && register.contains("/output/")
}

/// A part of a record that people, models and tools said.
pub(super) enum Content<'a> {
    Json(&'a Json),
    Text(&'a str),
}

/// Looks at everything in a record that people, models and tools said.
pub(super) fn contents(record: &Record, look: &mut dyn FnMut(Content<'_>)) {
    use Content::{Json as J, Text as T};
    match record {
        Record::LogAppend(append) => append.items.iter().for_each(|item| look(J(item))),
        Record::LogSplice(splice) => splice.items.iter().for_each(|item| look(J(item))),
        Record::RegisterSet(set) => look(J(&set.value)),
        Record::EffectIntent(intent) => intent.arguments.iter().for_each(|arguments| look(J(arguments))),
        Record::EffectOutcome(outcome) => {
            outcome.value.iter().for_each(|value| look(J(value)));
            outcome.error.iter().for_each(|error| look(T(error)));
            outcome.extra.values().for_each(|value| look(J(&Json::from(value.clone()))));
        }
        Record::EffectPartial(partial) => look(J(&partial.value)),
        Record::WaitOpened(wait) => {
            look(T(&wait.prompt));
            [&wait.arguments, &wait.default, &wait.schema].into_iter().flatten().for_each(|json| look(J(json)));
        }
        Record::WaitDecision(decision) => {
            look(T(&decision.reason));
            [&decision.value, &decision.arguments].into_iter().flatten().for_each(|json| look(J(json)));
        }
        Record::WaitClosed(closed) => closed.value.iter().for_each(|value| look(J(value))),
        Record::RunEnded(ended) => look(T(&ended.reason)),
        Record::Checkpoint(checkpoint) => look(T(&checkpoint.description)),
        Record::Edit(edit) => look(T(&edit.reason)),
        Record::DriftAccepted(accepted) => look(T(&accepted.reason)),
        Record::StaleAccepted(accepted) => look(T(&accepted.reason)),
        _ => {}
    }
}

/// Takes secrets out of a record: in arguments and in the memory by marks, elsewhere by name.
pub(super) fn clean_record(finder: &Finder, record: &mut Record) {
    let json = |value: &mut Json| clean_json(finder, value);
    let marks = |value: &mut Json| mark_json(finder, value);
    let text = |text: &mut String| clean_string(finder, text);
    match record {
        Record::LogAppend(append) => append.items.iter_mut().for_each(json),
        Record::LogSplice(splice) => splice.items.iter_mut().for_each(json),
        Record::RegisterSet(set) if is_memory(set.key.as_str()) => marks(&mut set.value),
        Record::RegisterSet(set) => match own_fields(set.key.as_str()) {
            None => json(&mut set.value),
            Some(fields) => clean_fields(finder, &mut set.value, fields),
        },
        Record::EffectIntent(intent) => intent.arguments.iter_mut().for_each(marks),
        Record::EffectOutcome(outcome) => {
            outcome.value.iter_mut().for_each(json);
            outcome.error.iter_mut().for_each(text);
            outcome.extra.values_mut().for_each(|value| clean_value(finder, value));
        }
        Record::EffectPartial(partial) => json(&mut partial.value),
        Record::WaitOpened(wait) => {
            text(&mut wait.prompt);
            wait.arguments.iter_mut().for_each(marks);
            [&mut wait.default, &mut wait.schema].into_iter().flatten().for_each(json);
        }
        Record::WaitDecision(decision) => {
            text(&mut decision.reason);
            decision.value.iter_mut().for_each(json);
            decision.arguments.iter_mut().for_each(marks);
        }
        Record::WaitClosed(closed) => closed.value.iter_mut().for_each(json),
        Record::RunEnded(ended) => text(&mut ended.reason),
        Record::Checkpoint(checkpoint) => text(&mut checkpoint.description),
        Record::Edit(edit) => text(&mut edit.reason),
        Record::DriftAccepted(accepted) => text(&mut accepted.reason),
        Record::StaleAccepted(accepted) => text(&mut accepted.reason),
        _ => {}
    }
}

/// Returns whether a secret may stand in JSON: as it is written or, where characters are written as escapes, perhaps.
pub(super) fn may_hold(finder: &Finder, json: &str) -> bool {
    finder.is_in(json) || json.contains("\\u") || json.contains("\\/")
}

/// Puts marks in place of secrets.
pub(super) fn mark_json(finder: &Finder, json: &mut Json) {
    if !may_hold(finder, json.as_str()) {
        return;
    }
    match json.to_value() {
        Ok(mut value) => {
            marker::mark(finder, &mut value);
            replace(json, value);
        }
        Err(_) => *json = Json::from("[secret]"),
    }
}

pub(super) fn clean_json(finder: &Finder, json: &mut Json) {
    if !may_hold(finder, json.as_str()) {
        return;
    }
    // Of a message only what is said: what makes it a message stays.
    if let Ok(mut message) = Message::from_json(json) {
        let mut changed = false;
        message.parts.iter_mut().for_each(|part| {
            let before = part.clone();
            clean_part(finder, part);
            changed |= *part != before;
        });
        if changed {
            *json = message.to_json().unwrap_or_else(|_| Json::from("[secret]"));
        }
        return;
    }
    // Of what came of a step or a node likewise.
    if json.decode::<StepResult>().is_ok() || json.decode::<Visited>().is_ok() {
        return clean_fields(finder, json, &["output", "error"]);
    }
    match json.to_value() {
        Ok(mut value) => {
            clean_value(finder, &mut value);
            replace(json, value);
        }
        Err(_) => *json = Json::from("[secret]"),
    }
}

/// Takes a cleaned value over, if it is another: otherwise its bytes stay.
fn replace(json: &mut Json, cleaned: Value) {
    if json.to_value().ok().as_ref() != Some(&cleaned) {
        *json = Json::from(cleaned);
    }
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

fn clean_fields(finder: &Finder, json: &mut Json, fields: &[&str]) {
    if !may_hold(finder, json.as_str()) {
        return;
    }
    let Ok(Value::Object(mut object)) = json.to_value() else { return };
    for field in fields {
        if let Some(value) = object.get_mut(*field) {
            clean_value(finder, value);
        }
    }
    replace(json, Value::Object(object));
}

pub(super) fn clean_part(finder: &Finder, part: &mut Part) {
    let text = |text: &mut String| clean_string(finder, text);
    match part {
        Part::Text(said) => text(said),
        Part::Reasoning(reasoning) => text(&mut reasoning.text),
        Part::Image(reference) | Part::File(reference) => text(&mut reference.uri),
        Part::ToolCall(call) => mark_json(finder, &mut call.arguments),
        Part::ToolResult(result) => {
            clean_json(finder, &mut result.content);
            result.terminate.iter_mut().for_each(text);
        }
        Part::Unknown(_, body) => clean_json(finder, body),
    }
}

/// Takes secrets out of a value: texts, numbers and keys.
pub(super) fn clean_value(finder: &Finder, value: &mut Value) {
    clean_nested(finder, value, NESTED);
}

fn clean_nested(finder: &Finder, value: &mut Value, nested: usize) {
    match value {
        Value::String(text) => clean_text(finder, text, nested),
        Value::Number(number) => {
            if let Some(cleaned) = finder.replaced_number(&number.to_string()) {
                *value = Value::String(cleaned);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean_nested(finder, item, nested)),
        Value::Object(fields) => {
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                clean_nested(finder, &mut field, nested);
                (finder.replaced(&key).unwrap_or(key), field)
            });
            *fields = cleaned.collect();
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Takes secrets out of a text.
pub(super) fn clean_string(finder: &Finder, text: &mut String) {
    clean_text(finder, text, NESTED);
}

fn clean_text(finder: &Finder, text: &mut String, nested: usize) {
    if let Some(cleaned) = finder.replaced(text) {
        *text = cleaned;
    }
    // JSON in a text may write any character as an escape.
    let escapes = text.contains("\\u") || text.contains("\\/");
    if nested == 0 || !escapes || !text.trim_start().starts_with(['{', '[', '"']) {
        return;
    }
    // Deeper JSON than a reader accepts is no JSON to anybody.
    let Ok(inside) = serde_json::from_str::<Value>(text) else { return };
    let mut cleaned = inside.clone();
    clean_nested(finder, &mut cleaned, nested - 1);
    if cleaned != inside {
        *text = cleaned.to_string();
    }
}
