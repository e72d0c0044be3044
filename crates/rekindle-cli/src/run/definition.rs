//! Which file a session runs, and making an executor of it. A session remembers its file, so that
//! it can be resumed by its id alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::{Engine, Error, Json, Result, SessionKey};
use rekindle_definitions::{Built, Definition};
use serde::{Deserialize, Serialize};

use super::options::BuildArguments;
use crate::app::App;
use crate::failure::Failure;
use crate::secrets::SystemSecrets;
use crate::words::next::quoted;

/// The key of the session's metadata under which its file is remembered.
pub const DEFINITION: &str = "definition";

/// What a session remembers of how it was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The file.
    pub file: PathBuf,
    /// The model that was given in place of the file's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where secrets are that were given in place of the file's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

impl Remembered {
    /// What is to be remembered of `definition`.
    pub fn new(definition: &Definition, model: Option<String>, secrets: BTreeMap<String, String>) -> Result<Self> {
        let path = definition.path().unwrap_or(Path::new(""));
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if file.to_str().is_none() {
            return Err(Error::invalid("the path of the file is not UTF-8, so the session could not remember it"));
        }
        Ok(Self { file, model, secrets })
    }

    /// As a value of the session's metadata.
    pub fn to_json(&self) -> Result<Json> {
        Json::of(self)
    }

    /// What `session` remembers; an error that says what to do if it is nothing.
    pub async fn of(engine: &Engine, session: &SessionKey) -> Result<Self> {
        let info = engine.journal().open(session).await?;
        info.check_header()?;
        let found = info.header.metadata.get(DEFINITION).and_then(|value| value.decode::<Self>().ok());
        if found.is_none() {
            // What nobody can read says nothing either, and that is worth more to know.
            engine.journal().load(session, None).await?;
        }
        found.ok_or_else(|| {
            let hint = match &info.header.parent {
                Some(parent) => format!("another session runs it: rekindle resume {}", quoted(parent.id.as_str())),
                None => format!("name it: rekindle resume {} --file FILE", quoted(session.id.as_str())),
            };
            Error::not_found("the session does not say which file it runs").on(session).hint(hint)
        })
    }
}

/// Reads a file.
pub fn load(path: &Path) -> Result<Definition, Failure> {
    Ok(Definition::load(path)?)
}

/// Makes what a file describes.
pub async fn built(
    app: &App,
    definition: Definition,
    remembered: &Remembered,
    arguments: &BuildArguments,
) -> Result<Built, Failure> {
    let mut builder = definition
        .builder()
        .secrets(Arc::new(SystemSecrets))
        .environment(app.settings.passed_environment())
        .models(app.settings.models().clone())
        .defaults(app.settings.run_defaults());
    if let Some(model) = &remembered.model {
        builder = builder.model(model);
    }
    for (name, reference) in &remembered.secrets {
        builder = builder.secret(name, reference.parse()?);
    }
    let adjust = app.settings.adjustment();
    let flags = arguments.adjustment();
    builder = builder.adjust(move |options| {
        adjust(options);
        flags(options);
    });
    Ok(builder.build().await?)
}
