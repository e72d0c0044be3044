//! Something that stands in another file, or right here.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use rekindle::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The path of a file, relative to the one that names it, or the thing itself. What stands here is
/// read later, where its place is known.
pub(crate) enum Reference<T> {
    Path(String),
    Inline(Map<String, Value>, PhantomData<fn() -> T>),
}

impl<T> Clone for Reference<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Path(path) => Self::Path(path.clone()),
            Self::Inline(fields, _) => Self::Inline(fields.clone(), PhantomData),
        }
    }
}

impl<T> PartialEq for Reference<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(one), Self::Path(other)) => one == other,
            (Self::Inline(one, _), Self::Inline(other, _)) => one == other,
            _ => false,
        }
    }
}

impl<T> fmt::Debug for Reference<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Inline(..) => f.write_str("Inline"),
        }
    }
}

impl<'de, T> Deserialize<'de> for Reference<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T> Visitor<'de> for Either<T> {
            type Value = Reference<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a file, or the object itself")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<Reference<T>, E> {
                Ok(Reference::Path(path.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Reference<T>, A::Error> {
                let fields = Map::deserialize(MapAccessDeserializer::new(fields))?;
                Ok(Reference::Inline(fields, PhantomData))
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Reference<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}OrPath", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let inline = generator.subschema_for::<T>();
        json_schema!({
            "description": "The path of a file, relative to this one, or the thing itself.",
            "anyOf": [{ "type": "string" }, inline],
        })
    }
}
