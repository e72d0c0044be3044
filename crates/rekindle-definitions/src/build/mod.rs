//! From what is written to what runs: models, tools, MCP servers, agents, plans and graphs.

mod adjusted;
mod agent;
mod crew;
mod mcp;
mod model;
mod preview;
mod question;
mod semantic;
mod tool;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rekindle::{Error, Result as Outcome, RunOptions, Secret, SecretRef, SecretSource};
use rekindle_tools::{McpServer, Protected};

use crate::built::Built;
use crate::definition::Definition;
use crate::fault::Faults;
use crate::form::{ModelSpec, RunOptionsSpec};
pub use preview::Preview;
pub(crate) use work::Work;

type Adjust = Box<dyn FnOnce(&mut RunOptions) + Send>;

/// Makes something that runs of a [`Definition`]: it gets its models, starts MCP servers and looks
/// for the programs of its tools.
pub struct DefinitionBuilder {
    definition: Definition,
    secrets: Arc<dyn SecretSource>,
    overriding: BTreeMap<String, SecretRef>,
    environment: Vec<(String, String)>,
    model: Option<String>,
    models: BTreeMap<String, ModelSpec>,
    defaults: RunOptionsSpec,
    adjust: Vec<Adjust>,
    protected: Vec<PathBuf>,
}

impl DefinitionBuilder {
    pub(crate) fn new(definition: Definition) -> Self {
        Self {
            definition,
            secrets: Arc::new(NoSecrets),
            overriding: BTreeMap::new(),
            environment: Vec::new(),
            model: None,
            models: BTreeMap::new(),
            defaults: RunOptionsSpec::default(),
            adjust: Vec::new(),
            protected: Vec::new(),
        }
    }

    /// Where the keys of models and the secrets of MCP servers come from. What tools use while they
    /// run comes from the engine.
    #[must_use]
    pub fn secrets(mut self, source: Arc<dyn SecretSource>) -> Self {
        self.secrets = source;
        self
    }

    /// Where the secret `name` of the file is, whatever the file says.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, reference: SecretRef) -> Self {
        self.overriding.insert(name.into(), reference);
        self
    }

    /// What commands and MCP servers have in their environment. Without it they have nothing but
    /// what the file gives them.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// The model of every agent in it, whatever the files say.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Models by names that files may use; a file's own names come first.
    #[must_use]
    pub fn models(mut self, aliases: BTreeMap<String, ModelSpec>) -> Self {
        self.models.extend(aliases);
        self
    }

    /// How runs behave where the files do not say so.
    #[must_use]
    pub fn defaults(mut self, options: RunOptionsSpec) -> Self {
        self.defaults = options;
        self
    }

    /// The last word on how runs behave, whatever the file says.
    #[must_use]
    pub fn adjust(mut self, with: impl FnOnce(&mut RunOptions) + Send + 'static) -> Self {
        self.adjust.push(Box::new(with));
        self
    }

    /// Paths that file tools do not write, beside the files of the definition.
    #[must_use]
    pub fn protect(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.protected.extend(paths);
        self
    }

    /// Builds it. If anything is wrong, what was started is ended.
    pub async fn build(self) -> Result<Built, Faults> {
        self.build_in(false).await.map(|(built, _)| built)
    }

    /// Builds it, with its MCP servers or without.
    async fn build_in(self, preview: bool) -> Result<(Built, Definition), Faults> {
        let own = self.definition.sources().iter().map(|file| file.path.clone());
        let mut shop = Shop {
            preview,
            protected: Protected::new(own.chain(self.protected)),
            secrets: self.secrets,
            environment: self.environment,
            model: self.model,
            models: self.models,
            defaults: self.defaults,
            adjust: self.adjust,
            found: self.overriding.clone(),
            overriding: self.overriding,
            model_names: Vec::new(),
            servers: Vec::new(),
            done: HashMap::new(),
        };
        match work::build(&mut shop, &self.definition, None, true).await {
            Ok(work) => Ok((Built::new(work, shop.found, shop.model_names, shop.servers), self.definition)),
            Err(faults) => {
                for server in &shop.servers {
                    server.shutdown().await;
                }
                Err(faults)
            }
        }
    }
}

impl fmt::Debug for DefinitionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefinitionBuilder").field("definition", &self.definition).finish_non_exhaustive()
    }
}

/// What building needs, and what it leaves behind.
pub(crate) struct Shop {
    /// True if nothing may be started.
    preview: bool,
    /// The paths that file tools do not write.
    protected: Protected,
    secrets: Arc<dyn SecretSource>,
    overriding: BTreeMap<String, SecretRef>,
    environment: Vec<(String, String)>,
    model: Option<String>,
    models: BTreeMap<String, ModelSpec>,
    defaults: RunOptionsSpec,
    adjust: Vec<Adjust>,
    /// Every secret that runs need, by name.
    found: BTreeMap<String, SecretRef>,
    model_names: Vec<String>,
    servers: Vec<McpServer>,
    /// What was built before, by its definition and its name.
    done: HashMap<(usize, String), Work>,
}

/// Knows no secrets.
#[derive(Debug)]
struct NoSecrets;

impl SecretSource for NoSecrets {
    fn resolve(&self, reference: &SecretRef) -> Outcome<Secret> {
        Err(Error::invalid(format!("nothing here can resolve `@{}:` references", reference.scheme()))
            .hint("give the builder a source with `DefinitionBuilder::secrets`"))
    }
}
