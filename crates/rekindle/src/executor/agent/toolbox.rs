//! The tools of an agent: which the model sees, and how many calls may run at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rekindle_core::{Error, Json, Result};

use crate::executor::call::{Entry, check_name};
use crate::tool::{Tool, ToolGroup, ToolSpec};

/// A tool and the group that must be open.
#[derive(Clone, Debug)]
struct Member {
    entry: Arc<Entry>,
    group: Option<String>,
}

/// The tools of an agent.
#[derive(Debug, Default)]
pub(super) struct Toolbox {
    entries: BTreeMap<String, Member>,
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
        let name = tool.spec().name.clone();
        let member = Member { entry: Arc::new(Entry::new(tool)?), group };
        if self.groups.contains_key(&name) || self.entries.insert(name.clone(), member).is_some() {
            return Err(twice(&name));
        }
        Ok(())
    }

    /// The tool of that name, if the model can see it.
    pub(super) fn find(&self, name: &str, open: &[String]) -> Option<&Arc<Entry>> {
        let member = self.entries.get(name)?;
        member.group.as_ref().is_none_or(|group| open.contains(group)).then_some(&member.entry)
    }

    /// The tool of that name, whether or not the model can see it.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name).map(|member| &member.entry)
    }

    /// Whether that is the name of a group.
    pub(super) fn is_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// The names of the tools in a group.
    pub(super) fn in_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a str> {
        let members = self.entries.iter().filter(move |(_, member)| member.group.as_deref() == Some(group));
        members.map(|(name, _)| name.as_str())
    }

    /// What the model is shown while those groups are open.
    pub(super) fn shown(&self, open: &[String]) -> Arc<[ToolSpec]> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(specs) = shown.get(open) {
            return Arc::clone(specs);
        }
        let closed = self.groups.iter().filter(|(name, _)| !open.contains(name)).map(|(_, spec)| spec);
        let tools = self.entries.iter().filter(|(name, _)| self.find(name, open).is_some());
        let tools = tools.map(|(_, member)| member.entry.tool.spec());
        let specs: Arc<[ToolSpec]> = tools.chain(closed).cloned().collect();
        shown.insert(open.to_vec(), Arc::clone(&specs));
        specs
    }

    /// Every tool and group with what it depends on, for the fingerprint.
    pub(super) fn prints(&self) -> impl Iterator<Item = (&str, String)> {
        let tools = self.entries.iter().map(|(name, member)| (name.as_str(), member.entry.print()));
        let text = |spec| serde_json::to_string(spec).unwrap_or_default();
        tools.chain(self.groups.iter().map(move |(name, spec)| (name.as_str(), format!("{}group", text(spec)))))
    }

    /// The same with one more tool.
    pub(super) fn with(&self, tool: Arc<dyn Tool>) -> Result<Self> {
        let mut more = Self { entries: self.entries.clone(), groups: self.groups.clone(), shown: Mutex::default() };
        more.add(tool, None)?;
        Ok(more)
    }
}

fn twice(name: &str) -> Error {
    Error::invalid(format!("there are two tools or groups named `{name}`")).hint("rename one of them")
}
