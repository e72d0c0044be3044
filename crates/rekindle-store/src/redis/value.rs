//! Answers of the server to plain types. An answer of another form is damage: a script of ours gave
//! it, or somebody else wrote under our keys.

use bytes::Bytes;
use redis::Value;
use rekindle_core::{Error, Result};

fn unexpected(what: &str) -> Error {
    Error::corrupt(format!("the server answered with something else than {what}"))
}

/// Bytes.
pub(super) fn bytes(value: Value) -> Result<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into_bytes().into()),
        Value::VerbatimString { text, .. } => Ok(text.into_bytes().into()),
        Value::Int(number) => Ok(number.to_string().into_bytes().into()),
        _ => Err(unexpected("text")),
    }
}

/// Text.
pub(super) fn text(value: Value) -> Result<String> {
    String::from_utf8(bytes(value)?.into()).map_err(|_| unexpected("text"))
}

/// A number, or a number as text.
pub(super) fn number(value: Value) -> Result<u64> {
    parsed(&text(value)?)
}

/// A number as text.
pub(super) fn parsed(text: &str) -> Result<u64> {
    text.parse().map_err(|_| unexpected("a number"))
}

/// A list.
pub(super) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect()),
        Value::Nil => Ok(Vec::new()),
        _ => Err(unexpected("a list")),
    }
}

/// A list of texts.
pub(super) fn texts(value: Value) -> Result<Vec<String>> {
    list(value)?.into_iter().map(text).collect()
}
