//! What is different between two points, as records, and what of a point must not be stored.

use std::collections::{BTreeMap, BTreeSet};

use rekindle::core::codec::Redaction;
use rekindle::core::record::{LogAppend, LogSplice, RegisterSet, RegisterUnset};
use rekindle::core::{LogName, Record, RegisterKey};
use rekindle::{Json, Result, State};
use serde_json::Value;

/// About how many bytes of items one record holds.
const CHUNK: usize = 1 << 20;

/// The records that make a log what it is to be, and from which item on it had to be replaced.
pub(super) fn log(state: &State, name: &str, items: &[Json]) -> Result<(Vec<Record>, Option<usize>)> {
    let name = LogName::new(name)?;
    let old = state.log(&name);
    let same = old.iter().zip(items).take_while(|(old, new)| old == new).count();
    let mut chunks = chunks(&items[same..]);
    let mut records: Vec<Record> = Vec::new();
    let replaced = (same < old.len()).then_some(same);
    if let Some(at) = replaced {
        let first = chunks.next().unwrap_or_default();
        records.push(LogSplice::new(name.clone(), at as u64, (old.len() - at) as u64, first.to_vec()).into());
    }
    records.extend(chunks.map(|chunk| LogAppend::new(name.clone(), chunk.to_vec()).into()));
    Ok((records, replaced))
}

/// The items in stretches of about [`CHUNK`] bytes.
fn chunks(mut items: &[Json]) -> impl Iterator<Item = &[Json]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&Json| {
            bytes += item.as_str().len();
            bytes <= CHUNK
        };
        let count = items.iter().take_while(fits).count().max(1).min(items.len());
        let (chunk, rest) = items.split_at(count);
        items = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// The records that make the registers what they are to be.
pub(super) fn registers(state: &State, registers: &BTreeMap<String, Json>) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for (key, value) in registers {
        let legal = RegisterKey::new(key)?;
        if state.register(key) != Some(value) {
            records.push(RegisterSet::new(legal, value.clone()).into());
        }
    }
    let gone = state.registers().filter(|(key, _)| !registers.contains_key(key.as_str()));
    records.extend(gone.map(|(key, _)| RegisterUnset::new(key.clone()).into()));
    Ok(records)
}

/// Registers without what must not be stored. The parts of their names count as keys too.
pub(super) fn redact_registers(
    redaction: &Redaction,
    registers: &mut BTreeMap<String, Json>,
    names: &mut BTreeSet<String>,
) -> Result<()> {
    for (key, value) in registers {
        match key.split('/').find(|part| redaction.excludes(part)) {
            Some(name) => {
                *value = Json::from(serde_json::json!({ "$redacted": name }));
                names.insert(name.to_owned());
            }
            None => redact(redaction, value, names)?,
        }
    }
    Ok(())
}

/// A value without what must not be stored; the keys it stood under are noted.
pub(super) fn redact(redaction: &Redaction, value: &mut Json, names: &mut BTreeSet<String>) -> Result<()> {
    let cleaned = redaction.value(value)?;
    if cleaned == *value && !value.as_str().contains("$redacted") {
        return Ok(());
    }
    let before = names.len();
    collect(&cleaned.to_value()?, names);
    if names.len() == before && cleaned != *value {
        names.insert("(inside a text)".into());
    }
    *value = cleaned;
    Ok(())
}

/// The names of what was taken out. The tree came out of a parser that limits its depth.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Object(object) => {
            names.extend(object.get("$redacted").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|item| collect(item, names));
        }
        _ => {}
    }
}
