//! Plain values under keys that are never stored: refused, so that nothing is dropped silently.

use rekindle_core::{Error, Json, Record, Result};

use crate::engine::Engine;
use crate::secret::is_redacted;

/// An error if a value that is to be stored holds one under an excluded key.
pub(super) fn refuse(engine: &Engine, what: &str, json: &Json) -> Result<()> {
    let found = engine.journal().codec().redaction().excluded_values(json);
    match found.first() {
        Some((key, _)) => Err(by_value(what, key)),
        None => Ok(()),
    }
}

/// The same for a record that changes a state by hand.
pub(super) fn refuse_record(engine: &Engine, record: &Record) -> Result<()> {
    if let Record::RegisterSet(set) = record {
        let redaction = engine.journal().codec().redaction();
        let is_plain = !is_redacted(&set.value) && set.value.as_str() != "null";
        if let Some(key) = redaction.excluded_register(set.key.as_str()).filter(|_| is_plain) {
            return Err(by_value("the change", key));
        }
    }
    let items = match record {
        Record::RegisterSet(set) => std::slice::from_ref(&set.value),
        Record::LogAppend(append) => &append.items,
        Record::LogSplice(splice) => &splice.items,
        _ => &[],
    };
    items.iter().try_for_each(|item| refuse(engine, "the change", item))
}

fn by_value(what: &str, key: &str) -> Error {
    let message = format!("{what} holds `{key}` by value, and the values of such keys are never stored");
    Error::invalid(message).hint(format!(
        "give it by reference to what runs the session: rekindle resume SESSION --secret {key}=@env:VARIABLE, or \
         {key} = \"@env:VARIABLE\" under [secrets] of the worker's rekindle.toml"
    ))
}
