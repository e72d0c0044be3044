//! Whole files, for schemas: what the parts say together.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rekindle::graph::GraphSpec;
use rekindle::plan::PlanSpec;
use rekindle::schemars::generate::SchemaSettings;
use rekindle::schemars::{self, JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::surroundings::Crew;
use super::{AgentSpec, RunOptionsSpec, Surroundings};
use crate::Kind;

/// What every file may begin with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// The schema of the file, for editors. Not read.
    #[serde(rename = "$schema")]
    pub(crate) schema: Option<String>,
    /// What the file holds. Without it: a plan if there are `steps`, a graph if there are `nodes`,
    /// otherwise an agent.
    pub(crate) kind: Option<Kind>,
}

/// The file of an agent.
pub(crate) struct AgentFile;
/// The file of a plan.
pub(crate) struct PlanFile;
/// The file of a graph.
pub(crate) struct GraphFile;

impl JsonSchema for AgentFile {
    fn schema_name() -> Cow<'static, str> {
        "Agent".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let parts = [Head::json_schema(generator), RunOptionsSpec::json_schema(generator)];
        let own = [Surroundings::json_schema(generator), AgentSpec::json_schema(generator)];
        merged("An agent: a model, what it is told, and the tools it may use.", parts.into_iter().chain(own))
    }
}

impl JsonSchema for PlanFile {
    fn schema_name() -> Cow<'static, str> {
        "Plan".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let own = PlanSpec::json_schema(generator);
        around("A plan: steps that call tools, in the order their dependencies demand.", generator, own)
    }
}

impl JsonSchema for GraphFile {
    fn schema_name() -> Cow<'static, str> {
        "Graph".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let own = GraphSpec::json_schema(generator);
        around("A graph: nodes that do something, and edges that say what comes next.", generator, own)
    }
}

fn around(description: &str, generator: &mut SchemaGenerator, own: Schema) -> Schema {
    let parts = [Head::json_schema(generator), RunOptionsSpec::json_schema(generator)];
    let more = [Surroundings::json_schema(generator), Crew::json_schema(generator), own];
    merged(description, parts.into_iter().chain(more))
}

/// One object with the keys of all `parts`; the last one that has a key counts.
pub(crate) fn merged(description: &str, parts: impl IntoIterator<Item = Schema>) -> Schema {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in parts {
        let mut part = part.to_value();
        if let Some(Value::Object(keys)) = part.get_mut("properties").map(Value::take) {
            properties.extend(keys);
        }
        if let Some(Value::Array(keys)) = part.get_mut("required").map(Value::take) {
            required.extend(keys);
        }
    }
    // Where something stands inside another thing, the name may come from there.
    required.retain(|key| key != "name" || properties.contains_key("command"));
    let object = json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    Schema::try_from(object).unwrap_or_default()
}

/// The schema of files of the type `T`, complete in itself.
pub(crate) fn root_schema<T: JsonSchema>(name: &str) -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = T::json_schema(&mut generator).to_value();
    let definitions = generator.take_definitions(true);
    if let Value::Object(fields) = &mut schema {
        fields.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.insert("title".to_owned(), json!(format!("Rekindle {name}")));
        if let Some(Value::Array(required)) =
            fields.get_mut("required").filter(|required| !required.to_string().contains("\"name\""))
        {
            required.insert(0, json!("name"));
        }
        fields.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

/// The keys that types know: making a schema takes a while, and every file asks for several.
static KEYS: Mutex<BTreeMap<TypeId, Arc<[String]>>> = Mutex::new(BTreeMap::new());

/// The keys that `T` knows.
pub(crate) fn keys_of<T: JsonSchema + 'static>() -> Arc<[String]> {
    let mut known = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(known.entry(TypeId::of::<T>()).or_insert_with(new_keys_of::<T>))
}

fn new_keys_of<T: JsonSchema>() -> Arc<[String]> {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let schema = T::json_schema(&mut generator).to_value();
    schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|keys| keys.keys().cloned()).collect()
}
