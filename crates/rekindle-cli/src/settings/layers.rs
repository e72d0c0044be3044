//! Where configuration comes from, laid over each other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use rekindle::SecretRef;
use rekindle::core::Hash;
use rekindle_definitions::{Document, Fault, Faults, Format};
use serde_json::{Map, Value};

use super::form::Form;
use super::keys::{KEYS, Key};
use crate::cli::Global;
use crate::failure::Failure;
use crate::trust::{self, Trust};

/// Variables that are no keys of the configuration.
const OTHERS: [&str; 5] =
    ["REKINDLE_CONFIG", "REKINDLE_FENCE", "REKINDLE_IDEMPOTENCY_KEY", "REKINDLE_SESSION", "REKINDLE_TRUST"];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "${name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// All layers as one.
#[derive(Debug)]
pub struct Layers {
    /// What they come to.
    pub merged: Value,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// Those of them whose powers were trusted.
    pub trusted: Vec<PathBuf>,
    /// Variables that look like configuration and are none.
    pub strange: Vec<String>,
    origins: BTreeMap<String, Origin>,
}

/// A configuration file, and why it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// It was named.
    Said(PathBuf),
    /// It is the user's own.
    User(PathBuf),
    /// It was found here or above.
    Found(PathBuf),
}

/// The files there are: the user's, then the project's; only `chosen` if one is named.
pub fn files(chosen: Option<&Path>) -> Vec<Named> {
    if let Some(path) = chosen {
        return vec![Named::Said(path.to_owned())];
    }
    let here = std::env::current_dir().unwrap_or_default();
    let project = here.ancestors().map(|folder| folder.join(FILE)).find(|path| path.is_file());
    let project = project.map(|path| path.strip_prefix(&here).map(Path::to_owned).unwrap_or(path));
    let user = users_file().filter(|path| path.is_file());
    user.map(Named::User).into_iter().chain(project.map(Named::Found)).collect()
}

/// Every path at which a configuration is looked for.
pub fn places() -> Vec<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    users_file().into_iter().chain(here.ancestors().map(|folder| folder.join(FILE))).collect()
}

/// The name of a configuration that is found.
const FILE: &str = "rekindle.toml";

fn users_file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    folder.map(|folder| folder.join("rekindle").join(FILE))
}

impl Layers {
    /// Nothing yet.
    pub fn new() -> Self {
        let merged = Value::Object(Map::new());
        Self { merged, files: Vec::new(), trusted: Vec::new(), strange: Vec::new(), origins: BTreeMap::new() }
    }

    /// A file, if it is believed.
    pub fn add(&mut self, file: &Named, trust: &Trust) -> Result<(), Failure> {
        let (path, is_found) = match file {
            Named::Said(path) => return Ok(self.add_file(path, &Document::load(path)?)?),
            Named::User(path) => (path, false),
            Named::Found(path) => (path, true),
        };
        let found = trust::read(path).map_err(|error| crate::files::unreadable(path, error))?;
        let accepted = trust.accepts(path, Hash::of(&found.bytes));
        if let Some(exposed) = found.exposed.filter(|_| !accepted) {
            return Err(trust::exposed(path, &exposed).into());
        }
        // What was looked at is what is used: the file is not read again.
        let document = Document::parse_bytes(&path.display().to_string(), &found.bytes, Format::Toml)?;
        if is_found {
            let powers = trust::of_configuration(&document.decode::<Form>("")?, document.value(), path);
            match (powers.is_empty(), accepted) {
                (true, _) => {}
                (false, true) => self.trusted.push(path.clone()),
                (false, false) => return Err(trust::untrusted(path, &powers).into()),
            }
        }
        Ok(self.add_file(path, &document)?)
    }

    fn add_file(&mut self, path: &Path, document: &Document) -> Result<(), Faults> {
        // For its faults, with their places.
        document.decode::<Form>("")?;
        if let Value::Object(fields) = document.value() {
            self.lay(fields.clone(), &Origin::File(path.to_owned()));
        }
        self.files.push(path.to_owned());
        Ok(())
    }

    /// The variables that begin with `REKINDLE_`.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), Faults> {
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("REKINDLE_")) else { continue };
            match KEYS.iter().find(|key| key.variable() == name) {
                Some(key) => {
                    let value = value.to_str().ok_or_else(|| Fault::new(format!("${name} is not UTF-8")))?;
                    // A password may stand in its variable itself; nothing but a reference to it is kept.
                    let by_value = key.name == "store_password" && !value.starts_with('@');
                    let value = if by_value { &format!("@env:{name}") } else { value };
                    self.set(key, value, Origin::Environment(name.to_owned()))?;
                }
                None if OTHERS.contains(&name) || name.starts_with("REKINDLE_ARG_") => {}
                None => self.strange.push(name.to_owned()),
            }
        }
        Ok(())
    }

    /// What flags say.
    pub fn add_flags(&mut self, global: &Global) -> Result<(), Faults> {
        for assignment in &global.configure {
            let (name, value) = assignment
                .split_once('=')
                .ok_or_else(|| Fault::new(format!("`-c {assignment}` sets nothing")).with_hint("write -c KEY=VALUE"))?;
            let key = KEYS.iter().find(|key| key.name == name).ok_or_else(|| unknown(name))?;
            self.set(key, value, Origin::Flag("-c"))?;
        }
        let flags = [("store", &global.store, "--store"), ("namespace", &global.namespace, "--namespace")];
        for (name, value, flag) in flags {
            if let (Some(value), Some(key)) = (value, KEYS.iter().find(|key| key.name == name)) {
                self.set(key, value, Origin::Flag(flag))?;
            }
        }
        Ok(())
    }

    /// The value of a key and where it comes from.
    pub fn get(&self, name: &str) -> Option<(&Value, &Origin)> {
        let value = self.merged.pointer(&format!("/{}", name.replace('.', "/")))?;
        Some((value, self.origins.get(name)?))
    }

    /// Returns the origin of the value of a key, whose name may have dots in it.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.get(name)
    }

    /// What is set beside the keys that have one value.
    pub fn tables(&self) -> impl Iterator<Item = (String, Value, &Origin)> {
        let others = self.origins.iter().filter(|(name, _)| !KEYS.iter().any(|key| key.name == name.as_str()));
        others.map(|(name, origin)| {
            let value = self.merged.pointer(&format!("/{}", name.replace('.', "/")));
            (name.clone(), value.cloned().unwrap_or_default(), origin)
        })
    }

    fn set(&mut self, key: &Key, text: &str, origin: Origin) -> Result<(), Faults> {
        // A key ring is more than one value: it is looked at when all layers are one.
        let ring = key.name.ends_with(".id") || key.name.ends_with(".key");
        let is_text = !key.name.contains('.') && !matches!(key.default, "true" | "false");
        let scalar = match serde_json::from_str(text) {
            Ok(value @ (Value::Bool(_) | Value::Number(_))) if !is_text && !ring => value,
            _ => Value::from(text),
        };
        let nested =
            key.name.rsplit('.').fold(scalar, |inner, part| Value::Object(Map::from_iter([(part.to_owned(), inner)])));
        if key.name.ends_with(".key") && text.parse::<SecretRef>().is_err() {
            let fault = Fault::new(format!("{origin}: {} is given by reference, never by value", key.name));
            return Err(fault.with_hint(format!("write {}", crate::secrets::SCHEMES)).into());
        }
        if !ring && let Err(error) = serde_json::from_value::<Form>(nested.clone()) {
            // A secret by value is not repeated.
            let is_secret = error.to_string().contains("never by value");
            let text = if is_secret { String::new() } else { format!("`{text}` ") };
            return Err(Fault::new(format!("{origin}: {text}is no value for {}: {error}", key.name)).into());
        }
        if let Value::Object(fields) = nested {
            self.lay(fields, &origin);
        }
        Ok(())
    }

    fn lay(&mut self, fields: Map<String, Value>, origin: &Origin) {
        merge(&mut self.merged, fields, "", origin, &mut self.origins);
    }
}

/// Lays `fields` over `under`, table by table. A model is one thing: a host of one layer never gets the key of
/// another. What is never stored only grows: no layer has more stored than the one below.
fn merge(
    under: &mut Value,
    fields: Map<String, Value>,
    path: &str,
    origin: &Origin,
    origins: &mut BTreeMap<String, Origin>,
) {
    let Value::Object(under) = under else { return };
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if path.starts_with("models.") && path.matches('.').count() == 1 {
            under.remove(&name);
            let below = format!("{path}.");
            origins.retain(|known, _| *known != path && !known.starts_with(&below));
        }
        match (value, under.get_mut(&name)) {
            (value, Some(below)) if path.starts_with("redaction.") && !value.is_object() => {
                *below = added(below.take(), value);
                origins.insert(path, origin.clone());
            }
            (Value::Object(fields), Some(table @ Value::Object(_))) => merge(table, fields, &path, origin, origins),
            (Value::Object(fields), _) => {
                let mut table = Value::Object(Map::new());
                merge(&mut table, fields, &path, origin, origins);
                under.insert(name, table);
            }
            (value, _) => {
                under.insert(name, value);
                origins.insert(path, origin.clone());
            }
        }
    }
}

/// Both lists, or a pattern that matches what either does.
fn added(below: Value, value: Value) -> Value {
    match (below, value) {
        (Value::Array(mut all), Value::Array(more)) => {
            all.extend(more);
            Value::Array(all)
        }
        (Value::String(one), Value::String(other)) if one != other => Value::from(format!("(?:{one})|(?:{other})")),
        (_, value) => value,
    }
}

fn unknown(name: &str) -> Fault {
    let nearest =
        KEYS.iter().max_by(|a, b| strsim::jaro_winkler(a.name, name).total_cmp(&strsim::jaro_winkler(b.name, name)));
    let fault = Fault::new(format!("there is no key `{name}`"));
    match nearest.filter(|key| strsim::jaro_winkler(key.name, name) > 0.8) {
        Some(key) => fault.with_hint(format!("did you mean `{}`?", key.name)),
        None => fault.with_hint("`rekindle config` lists them"),
    }
}
