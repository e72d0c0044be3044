//! What a run of a definition may be given.

use std::collections::BTreeMap;

use rekindle::graph::{GraphInput, GraphSpec};
use rekindle::operations::JobInput;
use rekindle::plan::PlanInput;
use rekindle::{Error, Json, Message, Result};
use serde_json::Value;

use super::Body;
use crate::built::RunInput;
use crate::document::list;

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

/// An input as a job carries it to a worker; an error if a run could not begin with it.
pub(super) fn job_input(body: &Body, input: RunInput) -> Result<JobInput> {
    let RunInput { text, values } = input;
    match body {
        Body::Agent(agent) => match (text, values.is_empty()) {
            (Some(text), true) => Ok(JobInput::Message(Message::user(text))),
            (None, true) => {
                Err(Error::invalid(format!("the agent `{}` must be told something", agent.name)).hint("give it text"))
            }
            (_, false) => Err(Error::invalid(format!("the agent `{}` takes text and no values", agent.name))
                .hint("put the values into the text")),
        },
        Body::Plan(_) => {
            let input = PlanInput { query: text, context: values.into_iter().collect() };
            Ok(JobInput::Input(Json::of(&input)?))
        }
        Body::Graph(graph) => {
            let memory = memory(graph, text, values.into_iter().collect())?;
            Ok(JobInput::Input(Json::of(&GraphInput { memory })?))
        }
    }
}

/// The memory a graph begins with: values by name, and text for the only input that is left.
fn memory(
    graph: &GraphSpec,
    text: Option<String>,
    mut memory: BTreeMap<String, Value>,
) -> Result<BTreeMap<String, Value>> {
    if let Some(text) = text {
        let open: Vec<&String> = graph.inputs.iter().filter(|key| !memory.contains_key(*key)).collect();
        let [only] = open.as_slice() else {
            let names = list(graph.inputs.iter().map(String::as_str));
            let message = format!("text does not say which input of the graph `{}` is meant", graph.name);
            return Err(Error::invalid(message).hint(format!("give values by name; its inputs are: {names}")));
        };
        memory.insert((*only).clone(), Value::String(text));
    }
    let is_there = |key: &&String| memory.contains_key(*key) || graph.memory.contains_key(*key);
    let missing: Vec<&str> = graph.inputs.iter().filter(|key| !is_there(key)).map(String::as_str).collect();
    match missing.is_empty() {
        true => Ok(memory),
        false => {
            let message = format!("the graph `{}` needs the inputs {}", graph.name, list(missing));
            Err(Error::invalid(message).hint("give them by name"))
        }
    }
}
