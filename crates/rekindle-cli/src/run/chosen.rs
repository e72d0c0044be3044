//! The choice of the definition, the model and the secrets of a run. They come from this side: the command line, the
//! configuration, and definitions whose content is trusted. A session only says which of them it was run with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rekindle::core::Hash;
use rekindle::{Engine, Error, ErrorKind, Result, SecretRef, SessionInfo, SessionKey};
use rekindle_definitions::Definition;

use super::definition::{Remembered, load};
use crate::app::App;
use crate::failure::Failure;
use crate::secrets::not_named;
use crate::trust;
use crate::ui::style;
use crate::words::next;

/// The providers whose servers are always the same.
const BUILT_IN: [&str; 4] = ["openai", "anthropic", "openrouter", "ollama"];

/// A definition with everything it is run with.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub definition: Definition,
    /// The model in place of the file's own.
    pub model: Option<String>,
    /// The places of secrets, instead of those that the file names.
    pub secrets: BTreeMap<String, SecretRef>,
}

/// The session that is gone on with.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    pub engine: &'a Engine,
    pub session: &'a SessionKey,
    /// True if a run that failed is gone on with.
    pub resumes_failed: bool,
    /// True if a change of the definition is accepted.
    pub accept_drift: bool,
}

/// A definition that was named, which is trusted from now on. That this cannot be recorded is no reason not to
/// run it.
pub fn named(app: &App, file: &Path) -> Result<Definition, Failure> {
    let definition = load(file)?;
    remember(app, || app.settings.trust().remember(&definition));
    Ok(definition)
}

/// Trusts the script of a model that was named.
pub fn named_model(app: &App, model: Option<&str>) {
    let Some(script) = model.and_then(script_of) else { return };
    // A script that cannot be read is found out by whoever needs it.
    if let Ok(found) = trust::read(&script) {
        remember(app, || app.settings.trust().add(&script, Hash::of(&found.bytes)));
    }
}

fn remember(app: &App, record: impl FnOnce() -> Result<()>) {
    if let Err(error) = record() {
        let (warn, reset) = (style::WARN, style::RESET);
        let why = crate::ui::printable(error.message());
        app.ui.remark(format!("{warn}note:{reset} {why}; to resume, name the file: --file FILE"));
    }
}

/// The definition of a session that names none on the command line: the file it remembers, if that is trusted
/// here or named by the configuration, or else the one of its agent in `[agents]`.
pub fn recorded(app: &App, session: &SessionInfo, remembered: Option<&Remembered>) -> Result<Definition, Failure> {
    let refused = match remembered.map(|remembered| trusted(app, session, &remembered.file)) {
        Some(Ok(definition)) => return Ok(definition),
        Some(Err(failure)) => Some(failure),
        None => None,
    };
    if let Some(file) = session.header.agent.as_deref().and_then(|name| app.settings.agent(name)) {
        return load(&file);
    }
    Err(refused.unwrap_or_else(|| {
        let error = Error::not_found("the session does not say which file it runs").on(&session.header.key);
        error.hint(format!("name it: {} --file FILE", next::resume(app, &session.header.key))).into()
    }))
}

/// The definition at a path that a session remembers.
fn trusted(app: &App, session: &SessionInfo, file: &Path) -> Result<Definition, Failure> {
    let trust = app.settings.trust();
    if app.settings.named_definitions().iter().any(|named| trust::key(named) == trust::key(file)) {
        return load(file);
    }
    let found = trust::read(file).map_err(|error| absent(app, session, file, error))?;
    if !trust.accepts(file, Hash::of(&found.bytes)) {
        return Err(untrusted(app, session, file, file).into());
    }
    let definition = load(file)?;
    match trust.refused(&definition) {
        Some(other) => Err(untrusted(app, session, file, &other.path).into()),
        None => Ok(definition),
    }
}

fn absent(app: &App, session: &SessionInfo, file: &Path, error: std::io::Error) -> Error {
    let key = &session.header.key;
    let hint = format!("name it: {} --file FILE", next::resume(app, key));
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::not_found(format!("the file of the session, {}, is not there any more", file.display()))
        }
        _ => crate::files::unreadable(file, error),
    }
    .on(key)
    .hint(hint)
}

/// `file` is what the session remembers, `changed` the one of its files that is not trusted.
fn untrusted(app: &App, session: &SessionInfo, file: &Path, changed: &Path) -> Error {
    let key = &session.header.key;
    let shown = trust::key(changed).display().to_string();
    let message = format!("the session names the file {shown}, whose content is not trusted here");
    let named = next::quoted(&trust::key(file).display().to_string());
    let hint =
        format!("look at it, then: rekindle trust {named}; or name it: {} --file {named}", next::resume(app, key));
    Error::new(ErrorKind::Untrusted, message).on(key).hint(hint)
}

impl Chosen {
    /// Chooses what a new session is run with. A model that was named is trusted with its script.
    pub fn new(
        app: &App,
        definition: Definition,
        model: Option<String>,
        said: &BTreeMap<String, String>,
    ) -> Result<Self> {
        named_model(app, model.as_deref());
        let secrets = operators(app, &definition, said)?;
        Ok(Self { definition, model, secrets })
    }

    /// Chooses what a session is gone on with, by what it remembers.
    pub fn again(
        app: &App,
        definition: Definition,
        remembered: &Remembered,
        said_model: Option<String>,
        said: &BTreeMap<String, String>,
    ) -> Result<Self> {
        if said_model.is_none() {
            check_model(app, remembered.model.as_deref())?;
        }
        let secrets = operators(app, &definition, said)?;
        let own = definition.secrets();
        for (name, reference) in &remembered.secrets {
            let given = secrets.contains_key(name);
            if !given && own.get(name).is_none_or(|known| known.as_str() != reference) {
                return Err(not_named(Some(name), reference));
            }
        }
        let model = match said_model {
            Some(model) => return Self::new(app, definition, Some(model), said),
            None => remembered.model.clone(),
        };
        Ok(Self { definition, model, secrets })
    }
}

/// The secrets that the configuration and the command line give to a definition.
fn operators(
    app: &App,
    definition: &Definition,
    said: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, SecretRef>> {
    let used = definition.secrets();
    let mut secrets = app.settings.secrets()?;
    secrets.retain(|name, _| used.contains_key(name));
    for (name, reference) in said {
        secrets.insert(name.clone(), reference.parse()?);
    }
    secrets.iter().for_each(|(name, reference)| app.secrets.allow(name, reference));
    Ok(secrets)
}

/// Refuses a model that only a session names, unless it is one that is known here.
fn check_model(app: &App, model: Option<&str>) -> Result<()> {
    let Some(model) = model.filter(|model| app.settings.model() != Some(model)) else { return Ok(()) };
    let known = match (model.split_once('/'), script_of(model)) {
        // The definition or the configuration says what the name means.
        (None, _) => true,
        (_, Some(script)) => {
            trust::read(&script).is_ok_and(|found| app.settings.trust().accepts(&script, Hash::of(&found.bytes)))
        }
        (Some((provider, _)), None) => BUILT_IN.contains(&provider),
    };
    if known {
        return Ok(());
    }
    let message = format!("the session was run with the model {model}, which nothing here names");
    Err(Error::new(ErrorKind::Untrusted, message).hint(format!("say it again: --model {}", next::quoted(model))))
}

/// The file of a scripted model.
fn script_of(model: &str) -> Option<PathBuf> {
    model.strip_prefix("scripted/").map(PathBuf::from)
}
