//! A node with everything that was prepared for it, and what it leads to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rekindle_core::{Json, Result, State};
use serde_json::Value;

use super::condition::{Condition, Facts};
use super::spec::{EdgeSpec, NodeSpec, Work};
use crate::executor::agent::Agent;
use crate::executor::call::Entry;
use crate::executor::reference::{Reference, Template, walk};
use crate::memory::{Allowed, MemoryView, matches_any};

/// A node with everything that was prepared for it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) work: Prepared,
    /// What may come next: by priority, and the default last.
    pub(super) edges: Vec<EdgeSpec>,
    /// Which part of the result goes where.
    pub(super) save: BTreeMap<String, String>,
    /// Nobody said so: it may write one key.
    pub(super) implied: bool,
    pub(super) max_visits: u64,
}

/// What a node does.
#[derive(Debug)]
pub(super) enum Prepared {
    /// Calls a tool.
    Call { entry: Arc<Entry>, arguments: Template },
    /// Has an agent work.
    Loop { agent: Agent, prompt: Template, continues: bool, asked: Vec<String> },
    /// Chooses what comes next.
    Route { choose: Option<Choose> },
}

/// A function that names the node that comes next.
#[derive(Clone)]
pub(super) struct Choose(pub(super) Arc<dyn Fn(&GraphMemory<'_>) -> String + Send + Sync>);

impl fmt::Debug for Choose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Choose")
    }
}

/// The memory, as a router sees it.
#[derive(Debug)]
pub struct GraphMemory<'a> {
    pub(super) view: &'a MemoryView,
    pub(super) state: &'a State,
}

impl GraphMemory<'_> {
    /// A key; an error if the node does not declare that it reads it, or if it is something else.
    pub fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        self.view.read(self.state, key)?.as_ref().map(Json::decode).transpose()
    }
}

impl Node {
    /// The memory as the node sees it from a strand.
    pub(super) fn memory(&self, strand: &str) -> MemoryView {
        let mut writes = self.spec.writes.clone();
        writes.extend(self.save.keys().cloned());
        let allowed = Allowed { node: self.spec.id.clone(), reads: self.spec.reads.clone(), writes };
        MemoryView::of_node(layers(strand), allowed)
    }

    /// Whether a result does not go into the one key the node may write, since the function has
    /// written it itself or gave back nothing.
    pub(super) fn keeps_to_itself(&self, key: &str, content: &Json, writes: &[(String, Json)]) -> bool {
        let function = self.implied && matches!(self.spec.work, Work::Function { .. });
        let written = writes.iter().any(|(known, _)| known == key);
        self.implied && written || function && content.as_str() == "null"
    }

    /// The keys it must find in the memory.
    pub(super) fn needs(&self) -> impl Iterator<Item = &str> {
        self.spec.reads.iter().map(String::as_str).filter(|key| !key.ends_with(['*', '?']))
    }

    /// The keys of the memory that it names: what it reads, and what the conditions of its edges look at.
    pub(super) fn looks_at(&self) -> impl Iterator<Item = &str> {
        let reads = self.spec.reads.iter().filter(|key| !key.ends_with('*'));
        let reads = reads.map(|key| key.strip_suffix('?').unwrap_or(key));
        let tests = self.edges.iter().filter_map(|edge| edge.when.as_ref()).flat_map(Condition::tests);
        reads.chain(tests.filter_map(|test| test.memory.as_deref()))
    }

    /// A template, with every reference looked up; the error names what is missing.
    pub(super) fn fill(&self, template: &Template, view: &MemoryView, state: &State) -> Result<Value, String> {
        template.fill(&mut |reference: &Reference| {
            let key = reference.name().unwrap_or_default();
            let value = view.read(state, key).map_err(|error| error.to_string())?;
            match value.map(|json| json.to_value()).transpose().map_err(|error| error.to_string())? {
                Some(value) => {
                    walk(value, reference.rest(2)).ok_or_else(|| format!("there is nothing at `{reference}`"))
                }
                None if self.may_be_missing(key) => Ok(Value::Null),
                None => Err(format!("there is nothing at `{reference}`")),
            }
        })
    }

    fn may_be_missing(&self, key: &str) -> bool {
        let optional = self.spec.reads.iter().filter(|name| name.ends_with(['*', '?'])).cloned().collect::<Vec<_>>();
        matches_any(&optional, key)
    }

    /// The edges that hold, in order; the default one if no other does.
    pub(super) fn edges_that_hold(&self, facts: &dyn Facts) -> Vec<&EdgeSpec> {
        let holds = |edge: &&EdgeSpec| match &edge.when {
            None => !facts.failed(),
            Some(when) if !when.is_about_failure() => !facts.failed() && when.holds(facts),
            Some(when) => when.holds(facts),
        };
        let found: Vec<&EdgeSpec> = self.edges.iter().filter(|edge| !edge.default).filter(holds).collect();
        match found.is_empty() && !facts.failed() {
            true => self.edges.iter().filter(|edge| edge.default).take(1).collect(),
            false => found,
        }
    }
}

/// What lies above the session's memory for a strand: what it wrote itself, and what the strands
/// it was split off from wrote.
pub(super) fn layers(strand: &str) -> Vec<String> {
    let mut layers = Vec::new();
    let mut strand = strand;
    while let Some(parent) = parent(strand) {
        layers.push(layer(strand));
        strand = parent;
    }
    layers
}

/// What a strand writes into.
pub(super) fn layer(strand: &str) -> String {
    match parent(strand) {
        Some(_) => format!("{}{strand}/", super::state::OVERLAY),
        None => crate::driver::MEMORY.to_owned(),
    }
}

/// The strand it was split off from.
pub(super) fn parent(strand: &str) -> Option<&str> {
    strand.rsplit_once('.').map(|(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strands_see_what_they_and_those_before_them_wrote() {
        assert_eq!(layers("0"), Vec::<String>::new());
        assert_eq!(layers("0.2"), ["overlay/0.2/"]);
        assert_eq!(layers("0.2.1"), ["overlay/0.2.1/", "overlay/0.2/"]);
        assert_eq!(layer("0"), "memory/");
    }
}
