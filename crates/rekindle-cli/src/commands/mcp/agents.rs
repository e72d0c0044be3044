//! The files clients may run, by the names that stand in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rekindle::operations::JobInput;
use rekindle::{Error, Result, SessionHeader, SessionKey};
use rekindle_definitions::{Definition, RunInput};
use rekindle_mcp::{AgentInfo, Agents};
use serde_json::Value;

use crate::app::App;
use crate::failure::Failure;
use crate::run::{self, DEFINITION, Remembered};

/// Files by the names of what they hold.
pub struct AgentFiles {
    app: App,
    model: Option<String>,
    known: BTreeMap<String, (AgentInfo, PathBuf)>,
}

impl AgentFiles {
    /// Reads them; a name may stand in one file only.
    pub fn load(app: &App, files: &[PathBuf]) -> Result<Self, Failure> {
        let mut known: BTreeMap<String, (AgentInfo, PathBuf)> = BTreeMap::new();
        for file in files {
            let definition = run::named(app, file)?;
            let info = AgentInfo {
                name: definition.name().to_owned(),
                description: definition.description().map(str::to_owned),
                kind: definition.kind().as_str().to_owned(),
            };
            if let Some((_, other)) = known.get(&info.name) {
                let message = format!("{} and {} are both called `{}`", other.display(), file.display(), info.name);
                return Err(Error::invalid(message).hint("give one of them another `name`").into());
            }
            known.insert(info.name.clone(), (info, file.clone()));
        }
        Ok(Self { app: app.clone(), model: app.settings.model().map(str::to_owned), known })
    }

    /// Whether nothing can be started.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The file as it is now: it may have changed, and workers read it again too.
    fn read(&self, name: &str) -> Result<Definition> {
        let file: &Path = match self.known.get(name) {
            Some((_, file)) => file,
            None => {
                let names: Vec<&str> = self.known.keys().map(String::as_str).collect();
                return Err(Error::not_found(format!("there is no agent `{name}`"))
                    .hint(format!("these can be started: {}", names.join(", "))));
            }
        };
        Ok(Definition::load(file)?)
    }
}

impl Agents for AgentFiles {
    fn list(&self) -> Vec<AgentInfo> {
        self.known.values().map(|(info, _)| info.clone()).collect()
    }

    fn header(&self, name: &str, session: SessionKey) -> Result<SessionHeader> {
        let definition = self.read(name)?;
        // It was named when the server was started; workers are to run it as it is now. That it cannot be recorded
        // was said then.
        let _ = self.app.settings.trust().remember(&definition);
        let remembered = Remembered::new(&definition, self.model.clone(), BTreeMap::new())?;
        let mut header = SessionHeader::new(session);
        header.agent = Some(definition.name().to_owned());
        header.metadata.insert(DEFINITION.to_owned(), remembered.to_json()?);
        Ok(header)
    }

    fn input(&self, name: &str, input: Value) -> Result<JobInput> {
        let input = match input {
            Value::Null => RunInput::default(),
            Value::String(text) => RunInput::text(text),
            Value::Object(values) => RunInput::values(values),
            _ => {
                return Err(Error::invalid("the input is neither a text nor an object")
                    .hint("an agent takes a text, a plan or a graph an object"));
            }
        };
        self.read(name)?.job_input(input)
    }
}
