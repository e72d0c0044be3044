//! What a run of a definition may be given.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Body;

/// Something a run may be given.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InputField {
    /// Its name; `text` for what an agent is told.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Whether a run cannot begin without it.
    pub required: bool,
    /// What it is if a run is not given it.
    pub default: Option<Value>,
}

impl InputField {
    fn new(name: &str, required: bool) -> Self {
        Self { name: name.to_owned(), description: None, required, default: None }
    }

    fn described(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }
}

pub(super) fn inputs(body: &Body) -> Vec<InputField> {
    match body {
        Body::Agent(_) => vec![InputField::new("text", true).described("What the agent is told.")],
        Body::Plan(plan) => {
            let query = InputField::new("query", false).described("The request the plan answers.");
            let default = (!plan.query.is_empty()).then(|| Value::String(plan.query.clone()));
            let query = InputField { default, ..query };
            std::iter::once(query).chain(kept(&plan.context, &[])).collect()
        }
        Body::Graph(graph) => {
            let declared = graph.inputs.iter().map(|name| {
                let default = graph.memory.get(name).cloned();
                InputField { default: default.clone(), ..InputField::new(name, default.is_none()) }
            });
            declared.chain(kept(&graph.memory, &graph.inputs)).collect()
        }
    }
}

/// What runs begin with, as something they may be given instead.
fn kept<'a>(values: &'a BTreeMap<String, Value>, but: &'a [String]) -> impl Iterator<Item = InputField> + 'a {
    let others = values.iter().filter(|(name, _)| !but.contains(name));
    others.map(|(name, value)| InputField { default: Some(value.clone()), ..InputField::new(name, false) })
}
