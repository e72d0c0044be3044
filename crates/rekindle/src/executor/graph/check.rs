//! What can be wrong with a graph, found before anything runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rekindle_core::Result;

use super::condition::Condition;
use super::node::Node;
use super::spec::{GraphSpec, Merge, NodeSpec, Work};
use crate::executor::faults::{Faults, check_id};
use crate::executor::nesting;
use crate::executor::reference::{Reference, Template};
use crate::memory::matches_any;

/// The number of each node.
pub(super) type Index<'a> = HashMap<&'a str, usize>;

/// What is wrong with the shape of a graph: its ids, its edges, what can be reached and what can
/// meet.
pub(super) fn check_shape(spec: &GraphSpec, reducers: &HashSet<&str>) -> Result<()> {
    let mut faults = Faults::default();
    let index = index(spec, &mut faults);
    if !index.contains_key(spec.entry.as_str()) {
        faults.add("entry", format!("there is no node `{}`", spec.entry));
    }
    if spec.parallel == Some(0) {
        faults.add("parallel", "must be at least 1");
    }
    let around = Around::of(spec, &index, reducers);
    check_edges(spec, &around, &mut faults);
    for (number, node) in spec.nodes.iter().enumerate() {
        check_node(number, node, spec, &around, &mut faults);
    }
    faults.settle("the graph", &spec.name)?;
    let next = successors(spec, &index);
    check_reachable(spec, &index, &next, &mut faults);
    check_joins(spec, &index, &next, &mut faults);
    faults.settle("the graph", &spec.name)
}

/// An error if something in the graph nests too deeply; before anything else looks at it.
pub(super) fn check_nesting(spec: &mut GraphSpec) -> Result<()> {
    let mut faults = Faults::default();
    for (key, value) in &mut spec.memory {
        nesting::check(value, || format!("memory (key `{key}`)"), &mut faults);
    }
    for (number, node) in spec.nodes.iter_mut().enumerate() {
        for (field, value) in node.work.values_mut() {
            let place = || format!("nodes[{number}].{field} (node `{}`)", node.id);
            nesting::check(value, place, &mut faults);
        }
    }
    for (number, edge) in spec.edges.iter_mut().enumerate() {
        let Some(when) = &mut edge.when else { continue };
        let place = || format!("edges[{number}].when (`{}` → `{}`)", edge.from, edge.to);
        nesting::check(when, place, &mut faults);
        for value in when.values_mut() {
            nesting::check(value, place, &mut faults);
        }
    }
    faults.settle("the graph", &spec.name)
}

fn index<'a>(spec: &'a GraphSpec, faults: &mut Faults) -> Index<'a> {
    let mut index = Index::new();
    if spec.nodes.is_empty() {
        faults.add("nodes", "there are none");
    }
    for (number, node) in spec.nodes.iter().enumerate() {
        let place = || format!("nodes[{number}].id");
        if let Err(why) = check_id(&node.id) {
            faults.add(place(), why);
        }
        if let Some(first) = index.insert(&node.id, number) {
            faults.add(place(), format!("`{}` is also the id of nodes[{first}]", node.id));
        }
    }
    index
}

fn check_edges(spec: &GraphSpec, around: &Around<'_>, faults: &mut Faults) {
    let mut defaults = HashMap::new();
    for (number, edge) in spec.edges.iter().enumerate() {
        let place = |field: &str| format!("edges[{number}].{field} (`{}` → `{}`)", edge.from, edge.to);
        for (field, id) in [("from", &edge.from), ("to", &edge.to)] {
            if !around.index.contains_key(id.as_str()) {
                faults.add(place(field), format!("there is no node `{id}`"));
            }
        }
        for test in edge.when.iter().flat_map(Condition::tests) {
            if let Some(pointer) = test.at.as_ref().filter(|at| !at.is_empty() && !at.starts_with('/')) {
                faults.add(place("when"), format!("`{pointer}` is no JSON Pointer; write `/{pointer}`"));
            }
            if let Some(key) = test.memory.as_ref().filter(|key| test.exists.is_none() && !around.knows(key)) {
                faults.add(place("when"), format!("nobody writes the memory key `{key}`, and it is no input"));
            }
        }
        if edge.default && edge.when.is_some() {
            faults.add(place("default"), "a default edge has no condition");
        }
        if edge.default
            && let Some(first) = defaults.insert(&edge.from, number)
        {
            faults.add(place("default"), format!("edges[{first}] is the default of `{}` already", edge.from));
        }
    }
}

/// What a node is checked against: everything that is said elsewhere in the graph.
struct Around<'a> {
    index: &'a Index<'a>,
    reducers: &'a HashSet<&'a str>,
    /// Where strands meet.
    joins: HashSet<&'a str>,
    /// The keys of the memory that somebody gives or writes,
    known: HashSet<&'a str>,
    /// and the beginnings of keys that somebody may write.
    beginnings: BTreeSet<&'a str>,
}

impl<'a> Around<'a> {
    fn of(spec: &'a GraphSpec, index: &'a Index<'a>, reducers: &'a HashSet<&'a str>) -> Self {
        let mut known: HashSet<&str> = spec.inputs.iter().chain(spec.memory.keys()).map(String::as_str).collect();
        let mut beginnings = BTreeSet::new();
        for node in &spec.nodes {
            known.extend(node.save.keys().map(String::as_str));
            // What may be missing may be set by a person.
            known.extend(node.reads.iter().filter_map(|key| key.strip_suffix('?')));
            for key in &node.writes {
                match key.strip_suffix('*') {
                    Some(beginning) => drop(beginnings.insert(beginning)),
                    None => drop(known.insert(key.strip_suffix('?').unwrap_or(key))),
                }
            }
        }
        let joins = spec.nodes.iter().filter_map(|node| node.fan_out.as_deref()).collect();
        Self { index, reducers, joins, known, beginnings }
    }

    fn knows(&self, key: &str) -> bool {
        self.known.contains(key) || self.beginnings.iter().any(|beginning| key.starts_with(beginning))
    }
}

fn check_node(number: usize, node: &NodeSpec, spec: &GraphSpec, around: &Around<'_>, faults: &mut Faults) {
    let place = |field: &str| format!("nodes[{number}].{field} (node `{}`)", node.id);
    if node.max_visits == Some(0) || node.max_visits.is_none() && spec.max_visits == Some(0) {
        faults.add(place("max_visits"), "a node that may never be visited is of no use");
    }
    for field in &node.misplaced {
        faults.add(place(field), format!("a node of kind `{}` has none", node.work.kind()));
    }
    check_tries(node, &place, faults);
    if let Some(join) = &node.fan_out {
        match around.index.get(join.as_str()) {
            None => faults.add(place("fan_out"), format!("there is no node `{join}`")),
            Some(_) if *join == node.id => faults.add(place("fan_out"), "a node cannot be its own join"),
            Some(_) => {}
        }
    }
    for (key, pointer) in &node.save {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            faults.add(place("save"), format!("`{pointer}` for `{key}` is no JSON Pointer; write `/{pointer}`"));
        }
    }
    if !node.merge.is_empty() && !around.joins.contains(node.id.as_str()) {
        faults.add(place("merge"), "nothing meets here: no node fans out to it");
    }
    for (key, merge) in &node.merge {
        if let Merge::Reducer(name) = merge
            && !around.reducers.contains(name.as_str())
        {
            faults.add(place("merge"), format!("`{key}` wants the reducer `{name}`, which is not registered"));
        }
    }
    check_reads(node, around, &place, faults);
}

/// A timeout and retries are for nodes that make one call.
fn check_tries(node: &NodeSpec, place: &dyn Fn(&str) -> String, faults: &mut Faults) {
    let why = match &node.work {
        Work::Agent { .. } => "a node of kind `agent` has none; those of the agent's model and of its tools count",
        Work::Router { .. } => "a node of kind `router` has none: it makes no call",
        _ => return,
    };
    for (field, is_set) in [("timeout", node.timeout.is_some()), ("retry", node.retry.is_some())] {
        if is_set {
            faults.add(place(field), why);
        }
    }
}

/// Every key that is read must come from somewhere.
fn check_reads(node: &NodeSpec, around: &Around<'_>, place: &dyn Fn(&str) -> String, faults: &mut Faults) {
    let required = node.reads.iter().filter(|key| !key.ends_with(['*', '?']));
    for key in required {
        if !around.knows(key) {
            faults.add(
                place("reads"),
                format!("nobody writes `{key}`, and it is no input; if it may be missing, write `{key}?`"),
            );
        }
    }
}

fn successors(spec: &GraphSpec, index: &Index<'_>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); spec.nodes.len()];
    for edge in &spec.edges {
        if let (Some(from), Some(to)) = (index.get(edge.from.as_str()), index.get(edge.to.as_str())) {
            next[*from].push(*to);
        }
    }
    // A function may choose any node it likes, but only among those its edges name.
    next
}

fn check_reachable(spec: &GraphSpec, index: &Index<'_>, next: &[Vec<usize>], faults: &mut Faults) {
    let seen = reach(index.get(spec.entry.as_str()).copied(), next, None);
    for (number, node) in spec.nodes.iter().enumerate() {
        if !seen.contains(&number) {
            faults
                .add(format!("nodes[{number}]"), format!("node `{}` cannot be reached from `{}`", node.id, spec.entry));
        }
    }
}

/// What can be reached from `start`, without going beyond `stop`.
fn reach(start: Option<usize>, next: &[Vec<usize>], stop: Option<usize>) -> HashSet<usize> {
    let mut seen: HashSet<usize> = start.into_iter().collect();
    let mut open: Vec<usize> = seen.iter().copied().collect();
    while let Some(node) = open.pop() {
        if Some(node) != stop {
            open.extend(next[node].iter().copied().filter(|to| seen.insert(*to)));
        }
    }
    seen
}

/// Whatever is split must be able to meet again, and nothing on the way may end elsewhere.
fn check_joins(spec: &GraphSpec, index: &Index<'_>, next: &[Vec<usize>], faults: &mut Faults) {
    for (number, node) in spec.nodes.iter().enumerate() {
        let Some(join) = node.fan_out.as_ref().and_then(|join| index.get(join.as_str()).copied()) else { continue };
        let place = || format!("nodes[{number}].fan_out (node `{}`)", node.id);
        let name = &spec.nodes[join].id;
        let edges = spec.edges.iter().filter(|edge| edge.from == node.id && !edge.is_for_failure());
        let starts: BTreeSet<usize> = edges.filter_map(|edge| index.get(edge.to.as_str()).copied()).collect();
        if starts.is_empty() {
            faults.add(place(), "it has no edges to follow");
        }
        for start in starts {
            let within = reach(Some(start), next, Some(join));
            let first = &spec.nodes[start].id;
            if !within.contains(&join) {
                faults.add(place(), format!("the join `{name}` can never complete: `{first}` does not lead to it"));
                continue;
            }
            if let Some(end) = within.iter().find(|node| **node != join && next[**node].is_empty()) {
                let end = &spec.nodes[*end].id;
                faults
                    .add(place(), format!("the join `{name}` may never complete: after `{first}`, `{end}` is an end"));
            }
        }
    }
}

/// What is wrong with the references of a template: they must be of the memory, and declared.
pub(super) fn check_references(template: &Template, node: &Node) -> Result<(), String> {
    template.references().into_iter().try_for_each(|reference| check_reference(reference, node))
}

fn check_reference(reference: &Reference, node: &Node) -> Result<(), String> {
    let (root, key) = (reference.root(), reference.name());
    let Some(key) = key.filter(|_| root == "memory") else {
        return Err(format!("`{reference}` must begin with `memory.<key>`"));
    };
    let declared = matches_any(&node.spec.reads, key) || matches_any(&node.spec.writes, key);
    match declared || node.save.contains_key(key) {
        true => Ok(()),
        false => Err(format!("`{reference}` reads `{key}`, which the node does not declare; add it to its `reads`")),
    }
}

/// Where the result of a node goes: as it says, or into the one key it may write.
pub(super) fn saved(node: &NodeSpec) -> BTreeMap<String, String> {
    let is_router = matches!(node.work, Work::Router { .. });
    match (node.save.is_empty(), node.writes.as_slice()) {
        (true, [key]) if !key.ends_with('*') && !is_router => BTreeMap::from([(key.clone(), String::new())]),
        _ => node.save.clone(),
    }
}
