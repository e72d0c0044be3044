//! Secrets by reference. What is given by value is refused without being repeated.

use std::borrow::Cow;
use std::fmt;

use rekindle::SecretRef;
use rekindle::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::document::SECRET_BY_VALUE;

/// Where a secret is: `@env:VARIABLE`, `@file:path` or `@keychain:service/account`. Never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretText(pub SecretRef);

/// A secret: `@env:VARIABLE`, `@file:path`, or the name of one of the file's `secrets`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum SecretName {
    Reference(SecretRef),
    /// Perhaps a name, perhaps a secret by value: it is not shown before it is known to be a name.
    Name(String),
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(reference) => f.write_str(reference.as_str()),
            Self::Name(_) => f.write_str("SecretName(…)"),
        }
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text)?;
        text.parse().map(Self).map_err(|_| D::Error::custom(SECRET_BY_VALUE))
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text)?;
        match text.starts_with('@') {
            true => text.parse().map(Self::Reference).map_err(|_| D::Error::custom(SECRET_BY_VALUE)),
            false => Ok(Self::Name(text)),
        }
    }
}

/// Takes text, and refuses anything else without repeating it.
struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reference to a secret")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<String, E> {
        Err(E::custom(SECRET_BY_VALUE))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<String, E> {
        Err(E::custom(SECRET_BY_VALUE))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<String, E> {
        Err(E::custom(SECRET_BY_VALUE))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<String, E> {
        Err(E::custom(SECRET_BY_VALUE))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<String, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Err(A::Error::custom(SECRET_BY_VALUE))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<String, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Err(A::Error::custom(SECRET_BY_VALUE))
    }
}

impl JsonSchema for SecretText {
    fn schema_name() -> Cow<'static, str> {
        "SecretReference".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Where a secret is: `@env:VARIABLE`, `@file:path` or `@keychain:service/account`. Never the secret itself.",
            "pattern": "^@[^:]+:.+$",
        })
    }
}

impl JsonSchema for SecretName {
    fn schema_name() -> Cow<'static, str> {
        "SecretName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A secret: `@env:VARIABLE`, `@file:path`, or the name of one of the file's `secrets`.",
        })
    }
}
