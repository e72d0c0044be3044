//! Which file a session runs, and making an executor of it. A session remembers its file, so that
//! it can be resumed by its id alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::{Engine, Error, Json, Result, SessionHeader, SessionInfo, SessionKey, Status};
use rekindle_definitions::{Built, Definition, DefinitionBuilder};
use serde::{Deserialize, Serialize};

use super::chosen::{Before, Chosen};
use super::options::BuildArguments;
use crate::app::App;
use crate::failure::Failure;
use crate::secrets::{SystemSecrets, masks};
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "named_references")]
    pub secrets: BTreeMap<String, String>,
}

/// References as a list of `NAME=@REFERENCE`: a field that is called as a secret is would not be stored.
mod named_references {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(all: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(|(name, reference)| format!("{name}={reference}")))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, String>, D::Error> {
        let pair = |name: &str, reference: &Value| Some((name.to_owned(), reference.as_str()?.to_owned()));
        Ok(match Value::deserialize(deserializer)? {
            Value::Array(items) => {
                let texts = items.iter().filter_map(Value::as_str).filter_map(|text| text.split_once('='));
                texts.map(|(name, reference)| (name.to_owned(), reference.to_owned())).collect()
            }
            // Earlier versions had an object here.
            Value::Object(fields) => fields.iter().filter_map(|(name, reference)| pair(name, reference)).collect(),
            _ => BTreeMap::new(),
        })
    }
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

    /// Returns what a session remembers, if anything.
    pub fn in_header(session: &SessionInfo) -> Option<Self> {
        session.header.metadata.get(DEFINITION).and_then(|value| value.decode().ok())
    }

    /// What `session` remembers; an error that says what to do if it is nothing.
    pub async fn of(engine: &Engine, session: &SessionKey) -> Result<Self> {
        let info = engine.journal().open(session).await?;
        info.check_header()?;
        let found = Self::in_header(&info);
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

/// Takes the secrets that are known here out of what a session is called.
pub fn mask(header: &mut SessionHeader) {
    let texts = header.title.iter_mut().chain(&mut header.tags);
    texts.for_each(|text| *text = masks().text(text).into_owned());
}

/// Reads a file.
pub fn load(path: &Path) -> Result<Definition, Failure> {
    Ok(Definition::load(path)?)
}

/// Makes what a file describes. If it changed since an unfinished run, that is found out before anything in it
/// is started.
pub async fn built(
    app: &App,
    chosen: &Chosen,
    arguments: &BuildArguments,
    before: Option<Before<'_>>,
) -> Result<Built, Failure> {
    if let Some(before) = before.filter(|before| !before.accept_drift) {
        check_drift(app, chosen, arguments, &before).await?;
    }
    let built = builder(app, chosen, arguments).build().await?;
    built.secrets().iter().for_each(|(name, reference)| app.secrets.allow(name, reference));
    Ok(built)
}

async fn check_drift(
    app: &App,
    chosen: &Chosen,
    arguments: &BuildArguments,
    before: &Before<'_>,
) -> Result<(), Failure> {
    let state = before.engine.journal().load(before.session, None).await?.state;
    let status = state.status().seen(false);
    if !status.is_unfinished() && (status != Status::Failed || !before.resumes_failed) {
        return Ok(());
    }
    let preview = builder(app, chosen, arguments).preview().await;
    Ok(preview.check(&state).map_err(|error| error.on(before.session))?)
}

fn builder(app: &App, chosen: &Chosen, arguments: &BuildArguments) -> DefinitionBuilder {
    let mut builder = chosen
        .definition
        .clone()
        .builder()
        .secrets(Arc::new(SystemSecrets))
        .environment(app.settings.passed_environment())
        .models(app.settings.models().clone())
        .defaults(app.settings.run_defaults())
        .protect(app.settings.protected());
    if let Some(model) = &chosen.model {
        builder = builder.model(model);
    }
    for (name, reference) in &chosen.secrets {
        builder = builder.secret(name, reference.clone());
    }
    let adjust = app.settings.adjustment();
    let flags = arguments.adjustment();
    builder.adjust(move |options| {
        adjust(options);
        flags(options);
    })
}
