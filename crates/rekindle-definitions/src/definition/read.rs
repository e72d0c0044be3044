//! Reading one definition: its parts, its tools, and what it refers to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rekindle::core::Hash;
use rekindle::graph::{EdgeSpec, GraphSpec, NodeSpec};
use rekindle::plan::{PlanSpec, StepSpec};
use rekindle::schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::loader::{Loader, resolve_secret, text_of};
use super::{Body, Definition, Inner, Kind, ReadTool, SourceFile, graph, models, tools};
use crate::document::{Document, child};
use crate::fault::{Faults, Gathered, short};
use crate::form::{AgentSpec, Crew, Head, Reference, RunOptionsSpec, Split, Surroundings};

/// Where a definition stands, and what is known of it from there.
pub(super) struct Spot<'a> {
    pub(super) document: &'a Document,
    pub(super) pointer: &'a str,
    pub(super) path: Option<&'a Path>,
    pub(super) base: &'a Path,
    /// What it must be.
    pub(super) kind: Option<Kind>,
    /// What it is called if it does not say so itself.
    pub(super) name: Option<&'a str>,
}

/// Reads what stands at `spot`; `outer` is what it stands inside.
pub(super) fn read(loader: &mut Loader, spot: &Spot<'_>, outer: Option<&Inner>) -> Result<Definition, Faults> {
    let mut faults = Gathered::default();
    let parts = parts(spot, &mut faults)?;
    let Some((body, surroundings, crew, options)) = parts else {
        let tools = spot.document.at(&child(spot.pointer, "tools")).and_then(Value::as_array).map_or(0, Vec::len);
        read_tools(spot, tools, &mut faults);
        faults.settle()?;
        return Err(spot.document.fault(spot.pointer, "this cannot be read").into());
    };
    let mut models = outer.map(|outer| outer.models.clone()).unwrap_or_default();
    let own = surroundings.models.iter();
    let place = |name: &String| child(&child(spot.pointer, "models"), name);
    models.extend(own.map(|(name, spec)| (name.clone(), (place(name), spec.clone()))));
    let mut secrets = outer.map(|outer| outer.secrets.clone()).unwrap_or_default();
    secrets.extend(surroundings.secrets.iter().map(|(name, text)| (name.clone(), resolve_secret(spot.base, &text.0))));
    let mut inner = Inner {
        document: spot.document.clone(),
        pointer: spot.pointer.to_owned(),
        path: spot.path.map(Path::to_path_buf),
        base: spot.base.to_path_buf(),
        tools: read_tools(spot, surroundings.tools.len(), &mut faults),
        body,
        surroundings,
        crew,
        options,
        system: None,
        models,
        secrets,
        children: BTreeMap::new(),
        files: own_file(spot).into_iter().collect(),
    };
    read_system(spot, &mut inner, &mut faults);
    models::check(&mut inner, &mut faults);
    tools::check(&inner, &mut faults);
    graph::check(&inner, &mut faults);
    read_children(loader, spot, &mut inner, &mut faults);
    faults.settle()?;
    Ok(Definition(Arc::new(inner)))
}

type Parts = (Body, Surroundings, Crew, RunOptionsSpec);

/// The parts of a definition; nothing if one of them is not right.
fn parts(spot: &Spot<'_>, faults: &mut Gathered) -> Result<Option<Parts>, Faults> {
    let mut split = Split::new(spot.document, spot.pointer)?;
    let fields = spot.document.at(spot.pointer);
    let has = |key: &str| fields.is_some_and(|fields| fields.get(key).is_some());
    let head: Option<Head> = split.take(faults);
    let said = head.and_then(|head| head.kind);
    if let (Some(said), Some(wanted)) = (said, spot.kind)
        && said != wanted
    {
        let message = format!("this is {}, and {} is wanted here", said.with_article(), wanted.with_article());
        return Err(spot.document.fault(&child(spot.pointer, "kind"), message).into());
    }
    let kind = said.or(spot.kind).unwrap_or(match (has("steps"), has("nodes")) {
        (true, _) => Kind::Plan,
        (_, true) => Kind::Graph,
        _ => Kind::Agent,
    });
    if let Some(name) = spot.name {
        split.or_insert("name", name);
    }
    let body = match kind {
        Kind::Agent => split.take::<AgentSpec>(faults).map(|agent| Body::Agent(Box::new(agent))),
        Kind::Plan => read_plan(spot, &mut split, faults).map(|plan| Body::Plan(Box::new(plan))),
        Kind::Graph => read_graph(spot, &mut split, faults).map(|graph| Body::Graph(Box::new(graph))),
    };
    let surroundings = split.take(faults);
    let crew = if kind == Kind::Agent { Some(Crew::default()) } else { split.take(faults) };
    let options = split.take(faults);
    split.finish(faults);
    Ok((|| Some((body?, surroundings?, crew?, options?)))())
}

fn read_plan(spot: &Spot<'_>, split: &mut Split<'_>, faults: &mut Gathered) -> Option<PlanSpec> {
    let value = split.take_value::<PlanSpec>();
    each::<StepSpec>(spot, &value, "steps", faults).then(|| split.decode(value, faults))?
}

fn read_graph(spot: &Spot<'_>, split: &mut Split<'_>, faults: &mut Gathered) -> Option<GraphSpec> {
    let value = split.take_value::<GraphSpec>();
    let nodes = each::<NodeSpec>(spot, &value, "nodes", faults);
    let edges = each::<EdgeSpec>(spot, &value, "edges", faults);
    (nodes && edges).then(|| split.decode(value, faults))?
}

/// Reads every item of a list by itself, so that all of their faults are found; whether there is
/// none.
fn each<T: DeserializeOwned>(spot: &Spot<'_>, value: &Value, list: &str, faults: &mut Gathered) -> bool {
    let items = value.get(list).and_then(Value::as_array).map_or(0, Vec::len);
    let list = child(spot.pointer, list);
    let mut good = 0;
    for at in 0..items {
        if faults.is_full() {
            return false;
        }
        good += usize::from(faults.take(spot.document.decode::<T>(&format!("{list}/{at}"))).is_some());
    }
    good == items
}

fn read_tools(spot: &Spot<'_>, tools: usize, faults: &mut Gathered) -> Vec<ReadTool> {
    let list = child(spot.pointer, "tools");
    let pointers = (0..tools).map(|at| format!("{list}/{at}"));
    pointers.filter_map(|pointer| tools::read(spot.document, pointer, faults)).collect()
}

fn read_system(spot: &Spot<'_>, inner: &mut Inner, faults: &mut Gathered) {
    let Body::Agent(agent) = &inner.body else { return };
    inner.system.clone_from(&agent.system);
    let Some(path) = &agent.system_file else { return };
    let pointer = child(spot.pointer, "system_file");
    if agent.system.is_some() {
        faults.add(spot.document.key_fault(&pointer, "`system` says it already").with_hint("give one of the two"));
        return;
    }
    if let Some((path, text)) = faults.take(text_of(spot, &pointer, path)) {
        inner.files.push(SourceFile { path, hash: Hash::of(text.as_bytes()) });
        inner.system = Some(text);
    }
}

/// The file of a definition that is not written inside another one.
fn own_file(spot: &Spot<'_>) -> Option<SourceFile> {
    let path = spot.path.filter(|_| spot.pointer.is_empty())?;
    Some(SourceFile { path: path.to_path_buf(), hash: spot.document.hash() })
}

/// What a definition refers to: its crew, and the tools that are other work.
fn read_children(loader: &mut Loader, spot: &Spot<'_>, inner: &mut Inner, faults: &mut Gathered) {
    let mut wanted: Vec<(String, Kind, String, Target)> = Vec::new();
    gather(spot, &inner.crew.agents, "agents", Kind::Agent, &mut wanted);
    gather(spot, &inner.crew.plans, "plans", Kind::Plan, &mut wanted);
    gather(spot, &inner.crew.graphs, "graphs", Kind::Graph, &mut wanted);
    for tool in &inner.tools {
        let body = &tool.entry.body;
        let at = |key: &str| child(&tool.pointer, key);
        let name = || body.name.clone();
        wanted.extend(body.agent.as_ref().map(|to| (at("agent"), Kind::Agent, name(), Target::of(to))));
        wanted.extend(body.plan.as_ref().map(|to| (at("plan"), Kind::Plan, name(), Target::of(to))));
        wanted.extend(body.graph.as_ref().map(|to| (at("graph"), Kind::Graph, name(), Target::of(to))));
    }
    for (pointer, kind, name, target) in wanted {
        let read = match target {
            Target::Path(path) => loader.reference(spot, &pointer, &path, kind),
            Target::Inline => {
                let here = Spot { pointer: &pointer, kind: Some(kind), name: Some(&name), ..*spot };
                loader.inline(&here, inner)
            }
        };
        if let Some(definition) = faults.take(read) {
            for file in definition
                .inner()
                .files
                .iter()
                .filter(|file| !inner.files.contains(file))
                .cloned()
                .collect::<Vec<SourceFile>>()
            {
                inner.files.push(file);
            }
            check_described(inner, &pointer, &name, &definition, faults);
            inner.children.insert(pointer, definition);
        }
    }
}

/// Where a reference leads.
enum Target {
    Path(String),
    Inline,
}

impl Target {
    fn of<T>(reference: &Reference<T>) -> Self {
        match reference {
            Reference::Path(path) => Self::Path(path.clone()),
            Reference::Inline(..) => Self::Inline,
        }
    }
}

fn gather<T: JsonSchema>(
    spot: &Spot<'_>,
    named: &BTreeMap<String, Reference<T>>,
    key: &str,
    kind: Kind,
    wanted: &mut Vec<(String, Kind, String, Target)>,
) {
    let map = child(spot.pointer, key);
    wanted.extend(named.iter().map(|(name, to)| (child(&map, name), kind, name.clone(), Target::of(to))));
}

/// What is a tool of something else must say what it is for; only the nodes of a graph are told by
/// their prompts.
fn check_described(inner: &Inner, pointer: &str, name: &str, of: &Definition, faults: &mut Gathered) {
    let is_crew = !inner.tools.iter().any(|tool| pointer.starts_with(&format!("{}/", tool.pointer)));
    let is_told = is_crew && matches!(inner.body, Body::Graph(_));
    let own = inner.tools.iter().find(|tool| pointer.starts_with(&format!("{}/", tool.pointer)));
    let said = own.is_some_and(|tool| tool.entry.body.description.is_some());
    if !is_told && !said && of.description().is_none() {
        let message = format!("nobody says what `{}` is for", short(name));
        let hint = format!("give the {} a `description`", of.kind());
        faults.add(inner.document.key_fault(pointer, message).with_hint(hint));
    }
}
