//! A definition: a file that was read and checked, with the files it refers to. What can be known
//! without starting anything is checked here.

mod graph;
mod inputs;
mod loader;
mod models;
mod parameters;
mod powers;
mod read;
mod suits;
mod tools;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::SecretRef;
use rekindle::core::Hash;
use rekindle::graph::GraphSpec;
use rekindle::plan::PlanSpec;
use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;

use crate::build::DefinitionBuilder;
use crate::document::{Document, Format};
use crate::fault::{Faults, shown};
use crate::form::{AgentSpec, Crew, ModelSpec, RunOptionsSpec, Surroundings, ToolEntry};

pub use inputs::InputField;
pub(crate) use loader::{resolve_path, resolve_secret};
pub(crate) use models::{read_script, script_of, unknown_provider};
pub(crate) use parameters::schema_of;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An agent.
    Agent,
    /// A plan.
    Plan,
    /// A graph.
    Graph,
}

impl Kind {
    /// The name used everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Plan => "plan",
            Self::Graph => "graph",
        }
    }

    fn with_article(self) -> &'static str {
        match self {
            Self::Agent => "an agent",
            Self::Plan => "a plan",
            Self::Graph => "a graph",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Kind {
    type Err = rekindle::Error;

    fn from_str(text: &str) -> rekindle::Result<Self> {
        let kinds = [Self::Agent, Self::Plan, Self::Graph];
        kinds
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| rekindle::Error::invalid(format!("`{}` is none of agent, plan and graph", shown(text))))
    }
}

/// An agent, a plan or a graph as a file says it: read and checked, with the files it refers to, but
/// not yet built. Cheap to clone.
///
/// ```
/// use rekindle_definitions::{Definition, Format, Kind};
///
/// let text = "
/// name: guide
/// model: openai/gpt-5
/// system: You help travellers.
/// tools:
///   - name: today
///     description: What day it is.
///     command: [date, +%F]
///     writes: false
/// ";
/// let definition = Definition::parse("guide.yaml", text, Format::Yaml)?;
/// assert_eq!((definition.kind(), definition.name()), (Kind::Agent, "guide"));
/// # Ok::<(), rekindle_definitions::Faults>(())
/// ```
#[derive(Clone)]
pub struct Definition(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) document: Document,
    /// Where in the document it stands.
    pub(crate) pointer: String,
    pub(crate) path: Option<PathBuf>,
    /// What relative paths begin at.
    pub(crate) base: PathBuf,
    pub(crate) body: Body,
    pub(crate) surroundings: Surroundings,
    pub(crate) crew: Crew,
    pub(crate) options: RunOptionsSpec,
    pub(crate) tools: Vec<ReadTool>,
    /// What the model is told, from the file or beside it.
    pub(crate) system: Option<String>,
    /// Models by name, with where that is said.
    pub(crate) models: BTreeMap<String, (String, ModelSpec)>,
    /// Where secrets are, by name.
    pub(crate) secrets: BTreeMap<String, SecretRef>,
    /// What references lead to, by where they stand.
    pub(crate) children: BTreeMap<String, Definition>,
    /// Every file that was read.
    pub(crate) files: Vec<SourceFile>,
}

/// A file that a definition was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path, as it was named.
    pub path: PathBuf,
    /// The hash of the content that was read.
    pub hash: Hash,
}

/// What is written down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Agent(Box<AgentSpec>),
    Plan(Box<PlanSpec>),
    Graph(Box<GraphSpec>),
}

/// A tool, with where it stands.
#[derive(Clone, Debug)]
pub(crate) struct ReadTool {
    pub(crate) pointer: String,
    pub(crate) entry: ToolEntry,
}

impl Definition {
    /// Reads a file and those it refers to. Faults name file, line and column.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Faults> {
        loader::load(path.as_ref())
    }

    /// Reads text; `name` is what faults call it. Paths in it are relative to the working directory.
    pub fn parse(name: &str, text: &str, format: Format) -> Result<Self, Faults> {
        loader::parse(name, text, format)
    }

    /// What it holds.
    pub fn kind(&self) -> Kind {
        match self.0.body {
            Body::Agent(_) => Kind::Agent,
            Body::Plan(_) => Kind::Plan,
            Body::Graph(_) => Kind::Graph,
        }
    }

    /// The graph that is written down, if it is one.
    pub fn graph(&self) -> Option<&GraphSpec> {
        if let Body::Graph(graph) = &self.0.body { Some(graph) } else { None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match &self.0.body {
            Body::Agent(agent) => &agent.name,
            Body::Plan(plan) => &plan.name,
            Body::Graph(graph) => &graph.name,
        }
    }

    /// What it is for.
    pub fn description(&self) -> Option<&str> {
        let description = match &self.0.body {
            Body::Agent(agent) => agent.description.as_deref(),
            Body::Plan(plan) => Some(plan.description.as_str()),
            Body::Graph(graph) => Some(graph.description.as_str()),
        };
        description.filter(|text| !text.is_empty())
    }

    /// The file it was read from.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// What a run of it may be given.
    pub fn inputs(&self) -> Vec<InputField> {
        inputs::inputs(&self.0.body)
    }

    /// What a job is given so that a worker runs this with `input`; an error if a run could not begin
    /// with it. Starts nothing, and needs neither models nor secrets.
    pub fn job_input(&self, input: crate::RunInput) -> rekindle::Result<rekindle::operations::JobInput> {
        inputs::job_input(&self.0.body, input)
    }

    /// Every file that was read, its own first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.files.iter().map(|file| file.path.clone()).collect()
    }

    /// The same with the hashes of what was read.
    pub fn sources(&self) -> &[SourceFile] {
        &self.0.files
    }

    /// The references of its secrets by name, with those of everything it refers to.
    pub fn secrets(&self) -> BTreeMap<String, SecretRef> {
        let all = self.all();
        let own = all.iter().rev().flat_map(|definition| &definition.0.secrets);
        own.map(|(name, reference)| (name.clone(), reference.clone())).collect()
    }

    /// Itself and everything it refers to, each once.
    pub(crate) fn all(&self) -> Vec<&Self> {
        let (mut found, mut seen, mut next) = (Vec::new(), HashSet::new(), vec![self]);
        while let Some(definition) = next.pop() {
            if seen.insert(definition.address()) {
                found.push(definition);
                next.extend(definition.0.children.values());
            }
        }
        found
    }

    /// What makes something that runs of it.
    pub fn builder(self) -> DefinitionBuilder {
        DefinitionBuilder::new(self)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl PartialEq for Definition {
    /// Whether they say the same, however it is written and wherever it stands.
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&*self.0, &*other.0);
        one.body == other.body
            && one.surroundings == other.surroundings
            && one.crew == other.crew
            && one.options == other.options
            && one.system == other.system
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("kind", &self.kind()).field("name", &self.name()).finish_non_exhaustive()
    }
}
