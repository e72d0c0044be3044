//! One object of a file that several types share: each takes the keys it knows, and what nobody
//! knows is a fault.

use rekindle::schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::keys_of;
use crate::document::{Document, child, did_you_mean, list, path_of};
use crate::fault::{Faults, Gathered, short};

/// How many faults of one object are told.
const MOST_FAULTS: usize = 20;

/// The keys of an object that nobody has taken yet.
pub(crate) struct Split<'a> {
    document: &'a Document,
    pointer: &'a str,
    fields: Map<String, Value>,
    known: Vec<String>,
}

impl<'a> Split<'a> {
    /// Of the object at `pointer`.
    pub(crate) fn new(document: &'a Document, pointer: &'a str) -> Result<Self, Faults> {
        let fields = document.decode::<Map<String, Value>>(pointer)?;
        Ok(Self { document, pointer, fields, known: Vec::new() })
    }

    /// Sets a key if it is not there.
    pub(crate) fn or_insert(&mut self, key: &str, value: &str) {
        self.fields.entry(key).or_insert_with(|| Value::String(value.to_owned()));
    }

    /// What `T` knows.
    pub(crate) fn take<T: DeserializeOwned + JsonSchema + 'static>(&mut self, faults: &mut Gathered) -> Option<T> {
        let value = self.take_value::<T>();
        self.decode(value, faults)
    }

    /// Decodes a part of the object. If a field of it is not right, the others are looked at without
    /// it, so that all faults are found.
    pub(crate) fn decode<T: DeserializeOwned>(&self, mut value: Value, faults: &mut Gathered) -> Option<T> {
        let mut good = true;
        for _ in 0..MOST_FAULTS {
            let error = match self.document.decode_value::<T>(value.clone(), self.pointer) {
                Ok(read) => return Some(read).filter(|_| good),
                Err(error) => error,
            };
            let path = error.iter().next().map(|fault| fault.path.clone()).unwrap_or_default();
            let inside = path.strip_prefix(&path_of(self.pointer)).unwrap_or_default().trim_start_matches('.');
            let field = inside.split(['.', '[']).next().unwrap_or_default();
            let removed = value.as_object_mut().and_then(|fields| fields.remove(field)).is_some();
            // Without a field to leave out this is the last fault; that one is missing which was left
            // out before is none.
            if removed || good {
                faults.add_all(error);
            }
            if !removed {
                return None;
            }
            good = false;
        }
        None
    }

    /// The same, not yet decoded.
    pub(crate) fn take_value<T: JsonSchema + 'static>(&mut self) -> Value {
        let keys = keys_of::<T>();
        let taken = keys.iter().filter_map(|key| self.fields.remove_entry(key)).collect();
        self.known.extend(keys.iter().cloned());
        Value::Object(taken)
    }

    /// Whatever is left is unknown.
    pub(crate) fn finish(mut self, faults: &mut Gathered) {
        self.known.sort();
        let known = || self.known.iter().map(String::as_str).filter(|key| *key != "$schema");
        for name in self.fields.keys().take(MOST_FAULTS) {
            let at = child(self.pointer, name);
            let hint = did_you_mean(name, known()).unwrap_or_else(|| format!("the keys here are {}", list(known())));
            faults.add(self.document.key_fault(&at, format!("unknown key `{}`", short(name))).with_hint(hint));
        }
    }
}
