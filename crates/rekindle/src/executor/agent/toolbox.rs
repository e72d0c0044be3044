//! The tools of an agent: which the model sees, and how many calls may run at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rekindle_core::{Error, Json, Result};
use tokio::sync::Semaphore;

use crate::tool::{Schema, Tool, ToolGroup, ToolSpec};

/// A tool with what was prepared for it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) schema: Schema,
    pub(super) permits: Option<Arc<Semaphore>>,
    /// The group that must be open.
    pub(super) group: Option<String>,
}

/// The tools of an agent.
#[derive(Debug, Default)]
pub(super) struct Toolbox {
    entries: BTreeMap<String, Arc<Entry>>,
    groups: BTreeMap<String, ToolSpec>,
    /// What the model is shown, by the groups that are open.
    shown: Mutex<BTreeMap<Vec<String>, Arc<[ToolSpec]>>>,
}

impl Toolbox {
    pub(super) fn new(tools: Vec<Arc<dyn Tool>>, groups: Vec<ToolGroup>) -> Result<Self> {
        let mut toolbox = Self::default();
        for tool in tools {
            toolbox.add(tool, None)?;
        }
        for group in groups {
            let parameters = Json::parse(r#"{"type":"object","properties":{}}"#)?;
            let names: Vec<_> = group.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
            let description = format!("{} Opens these tools: {}.", group.description, names.join(", "));
            let spec = ToolSpec { name: group.name.clone(), description, parameters, version: None };
            check_name(&spec.name)?;
            if toolbox.entries.contains_key(&spec.name) || toolbox.groups.insert(group.name.clone(), spec).is_some() {
                return Err(twice(&group.name));
            }
            for tool in group.tools {
                toolbox.add(tool, Some(group.name.clone()))?;
            }
        }
        Ok(toolbox)
    }

    fn add(&mut self, tool: Arc<dyn Tool>, group: Option<String>) -> Result<()> {
        let spec = tool.spec();
        let name = spec.name.clone();
        check_name(&name)?;
        check_object(spec)?;
        let schema = Schema::new(&spec.parameters)
            .map_err(|error| Error::invalid(format!("tool `{name}`: {}", error.message())))?;
        let permits = tool.options().concurrency.map(|calls| Arc::new(Semaphore::new(calls.max(1))));
        let entry = Arc::new(Entry { tool, schema, permits, group });
        if self.groups.contains_key(&name) || self.entries.insert(name.clone(), entry).is_some() {
            return Err(twice(&name));
        }
        Ok(())
    }

    /// The tool of that name, if the model can see it.
    pub(super) fn find(&self, name: &str, open: &[String]) -> Option<&Arc<Entry>> {
        let entry = self.entries.get(name)?;
        entry.group.as_ref().is_none_or(|group| open.contains(group)).then_some(entry)
    }

    /// The tool of that name, whether or not the model can see it.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// Whether that is the name of a group.
    pub(super) fn is_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// The names of the tools in a group.
    pub(super) fn in_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a str> {
        let entries = self.entries.iter().filter(move |(_, entry)| entry.group.as_deref() == Some(group));
        entries.map(|(name, _)| name.as_str())
    }

    /// What the model is shown while those groups are open.
    pub(super) fn shown(&self, open: &[String]) -> Arc<[ToolSpec]> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(specs) = shown.get(open) {
            return Arc::clone(specs);
        }
        let closed = self.groups.iter().filter(|(name, _)| !open.contains(name)).map(|(_, spec)| spec);
        let tools = self.entries.iter().filter(|(name, _)| self.find(name, open).is_some());
        let tools = tools.map(|(_, entry)| entry.tool.spec());
        let specs: Arc<[ToolSpec]> = tools.chain(closed).cloned().collect();
        shown.insert(open.to_vec(), Arc::clone(&specs));
        specs
    }

    /// Every tool and group, for the fingerprint.
    pub(super) fn specs(&self) -> impl Iterator<Item = (&ToolSpec, String)> {
        let tools =
            self.entries.values().map(|entry| (entry.tool.spec(), format!("{:?}", entry.tool.options().policy())));
        tools.chain(self.groups.values().map(|spec| (spec, "group".to_owned())))
    }
}

/// Arguments are always an object: that is what models send.
fn check_object(spec: &ToolSpec) -> Result<()> {
    let kind = spec.parameters.to_value()?.get("type").and_then(|kind| kind.as_str().map(str::to_owned));
    match kind.as_deref() {
        None | Some("object") => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "tool `{}` takes {other} for its arguments, and models send an object",
            spec.name
        ))
        .hint("take a struct; for a tool without arguments, one without fields: `struct Nothing {}`")),
    }
}

/// What every provider takes as the name of a tool.
fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        let message = format!("`{name}` is not a name for a tool");
        return Err(Error::invalid(message).hint("use up to 64 letters, digits, `_` and `-`"));
    }
    Ok(())
}

fn twice(name: &str) -> Error {
    Error::invalid(format!("there are two tools or groups named `{name}`")).hint("rename one of them")
}
