//! The configuration: `rekindle.toml` of the user and of the project, then the environment, then
//! flags; what comes later wins, key by key.

mod form;
mod keys;
mod layers;
mod remote;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle::codec::{Codec, KeyRing};
use rekindle::graph::CheckpointConfig;
use rekindle::retention::{Policy, Rule};
use rekindle::{Error, Frequency, Result, RunOptions, Secret, SecretRef, SecretSource as _};
use rekindle_definitions::{Faults, RunOptionsSpec, SecretText};
use rekindle_store::{StoreOptions, shown_url};
use serde::Deserialize as _;
use serde_json::Value;

use crate::cli::Global;
use crate::key_service::CommandKeys;
use crate::secrets::SystemSecrets;
use form::{Checkpoints, Encryption, Form, Keys};

pub use keys::{KEYS, Key};
pub use layers::Origin;
pub use remote::is_remote;

/// The store, unless something says otherwise.
const DEFAULT_STORE: &str = "sqlite:./rekindle.db";

/// The level at which frames are compressed.
const COMPRESSION: i32 = 1;

/// The effective configuration.
#[derive(Debug)]
pub struct Settings {
    form: Form,
    layers: layers::Layers,
}

/// A key of the configuration as it is now.
#[derive(Debug, serde::Serialize)]
pub struct Effective {
    /// Its name, e.g. `run.durability`.
    pub key: String,
    /// Its value; nothing if it has none.
    pub value: Value,
    /// Where the value comes from.
    pub origin: String,
    /// What it is for.
    pub about: String,
}

/// The JSON Schema of `rekindle.toml`.
pub fn schema() -> Value {
    schemars::schema_for!(Form).to_value()
}

impl Settings {
    /// Reads files, environment and flags.
    pub fn load(global: &Global) -> Result<Self, Faults> {
        let mut layers = layers::Layers::new();
        for path in layers::files(global.config.as_deref()) {
            layers.add_file(&path)?;
        }
        layers.add_environment(std::env::vars_os())?;
        layers.add_flags(global)?;
        let form = Form::deserialize(&layers.merged).map_err(|error| {
            // Each layer was checked on its own: what is left is a combination.
            Faults::one(rekindle_definitions::Fault::new(format!("the configuration is not right: {error}")))
        })?;
        Ok(Self { form, layers })
    }

    /// Every key, its value and where that comes from.
    pub fn effective(&self) -> Vec<Effective> {
        let known = KEYS.iter().map(|key| {
            let found = self.layers.get(key.name);
            Effective {
                key: key.name.to_owned(),
                value: found.map_or_else(|| key.default.into(), |(value, _)| shown(key.name, value.clone())),
                origin: found.map_or_else(|| "default".to_owned(), |(_, origin)| origin.to_string()),
                about: key.about.to_owned(),
            }
        });
        let tables = self.layers.tables().map(|(name, value, origin)| Effective {
            value: shown(&name, value),
            key: name,
            origin: origin.to_string(),
            about: String::new(),
        });
        known.chain(tables).collect()
    }

    /// The configuration files that were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.layers.files
    }

    /// Variables of the environment that look like configuration and are none.
    pub fn strange_variables(&self) -> &[String] {
        &self.layers.strange
    }

    /// Where sessions are.
    pub fn store_url(&self) -> String {
        let url = self.form.store.as_deref().unwrap_or(DEFAULT_STORE);
        match self.layers.get("store") {
            Some((_, Origin::File(file))) => beside(url, file),
            _ => url.to_owned(),
        }
    }

    /// Where archives are.
    pub fn archive_url(&self) -> Option<String> {
        self.place("archive", self.form.archive.as_deref()?)
    }

    /// How a bucket is opened: with what its service is told beside the URL.
    pub fn bucket_options(&self, url: &str, create: bool) -> StoreOptions {
        let settings = remote::service_settings(url, |name| std::env::var(name).ok());
        let options = StoreOptions::new().with_create(create);
        settings.into_iter().fold(options, |options, (name, value)| options.with_setting(name, value))
    }

    /// How a store is opened. The password, the anchor and the place of large values are those of the
    /// usual store, and no other hears of them.
    pub fn store_options(&self, url: &str, create: bool) -> Result<StoreOptions> {
        let mut options = self.bucket_options(url, create);
        if let Some(marks) = self.form.marks {
            options = options.with_setting("marks", marks.to_string());
        }
        if url != self.store_url() {
            return Ok(options);
        }
        if let Some(place) = self.form.anchor.as_deref().and_then(|place| self.place("anchor", place)) {
            for (name, value) in remote::service_settings(&place, |name| std::env::var(name).ok()) {
                options = options.with_setting(format!("anchor_{name}"), value);
            }
            options = options.with_setting("anchor", place);
        }
        if let Some(reference) = self.form.store_password.as_ref().filter(|_| remote::takes_password(url)) {
            let reference = match self.layers.get("store_password") {
                Some((_, Origin::File(file))) => secret_beside(&reference.0, file)?,
                _ => reference.0.clone(),
            };
            options = options.with_setting("password", SystemSecrets.resolve(&reference)?.expose());
        }
        if let Some(place) = self.form.large_values.as_deref().and_then(|place| self.place("large_values", place)) {
            for (name, value) in remote::service_settings(&place, |name| std::env::var(name).ok()) {
                options = options.with_setting(format!("large_values_{name}"), value);
            }
            options = options.with_setting("large_values", place);
            if let Some(bytes) = self.form.large_values_from {
                options = options.with_setting("large_values_from", bytes.to_string());
            }
        }
        Ok(options)
    }

    /// A URL, relative to the file it stands in.
    fn place(&self, key: &str, url: &str) -> Option<String> {
        Some(match self.layers.get(key)? {
            (_, Origin::File(file)) => beside(url, file),
            _ => url.to_owned(),
        })
    }

    /// Whose sessions are meant.
    pub fn namespace(&self) -> Option<&str> {
        self.form.namespace.as_deref()
    }

    /// Who does what is done.
    pub fn author(&self) -> String {
        let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
        self.form.author.clone().or_else(user).unwrap_or_else(|| "cli".to_owned())
    }

    /// The model for every agent, whatever its file says.
    pub fn model(&self) -> Option<&str> {
        self.form.model.as_deref()
    }

    /// Models by short names.
    pub fn models(&self) -> &std::collections::BTreeMap<String, rekindle_definitions::ModelSpec> {
        &self.form.models
    }

    /// How long a lease lasts.
    pub fn lease(&self) -> Option<Duration> {
        self.form.lease
    }

    /// When graphs make checkpoints.
    pub fn graph_checkpoints(&self) -> Option<&CheckpointConfig> {
        self.form.checkpoints.graph.as_ref()
    }

    /// How runs behave unless their file says otherwise.
    pub fn run_defaults(&self) -> RunOptionsSpec {
        self.form.run.clone()
    }

    /// The names of variables that commands and MCP servers are given.
    pub fn passed_environment(&self) -> Vec<(String, String)> {
        let usual = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "SHELL"];
        let own = self.form.tools.environment.iter().map(String::as_str);
        usual.into_iter().chain(own).filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
    }

    /// The token that clients over HTTP must know: that of `said`, or else that of the configuration.
    pub fn server_token(&self, said: Option<SecretRef>) -> Result<Option<Secret>> {
        let configured = match (&self.form.server.token, self.layers.get("server.token")) {
            (Some(reference), Some((_, Origin::File(file)))) => Some(secret_beside(&reference.0, file)?),
            (reference, _) => reference.as_ref().map(|reference| reference.0.clone()),
        };
        said.or(configured).map(|reference| SystemSecrets.resolve(&reference)).transpose()
    }

    /// The names a server is called by, and the origins whose pages may ask.
    pub fn server_names(&self) -> (&[String], &[String]) {
        (&self.form.server.hosts, &self.form.server.origins)
    }

    /// The files MCP clients may run.
    pub fn mcp_agents(&self) -> Vec<PathBuf> {
        let folder = match self.layers.get("mcp.agents") {
            Some((_, Origin::File(file))) => file.parent().unwrap_or(Path::new("")),
            _ => Path::new(""),
        };
        self.form.mcp.agents.iter().map(|file| folder.join(file)).collect()
    }

    /// What the keys of `[checkpoints]` mean for a run.
    pub fn adjustment(&self) -> impl FnOnce(&mut RunOptions) + Send + 'static {
        let checkpoints = self.form.checkpoints.clone();
        move |options| adjust(&checkpoints, options)
    }

    /// The codec with compression, redaction and keys.
    pub fn codec(&self, mut codec: Codec, compress_from: usize) -> Result<Codec> {
        codec = match self.form.checkpoints.compress_state {
            Some(false) => codec.without_compression(),
            _ => codec.with_compression(compress_from, COMPRESSION),
        };
        let redaction = &self.form.redaction;
        if !redaction.exclude.is_empty() || !redaction.patterns.is_empty() {
            let mut rules = codec.redaction().clone().with_keys(redaction.exclude.iter().map(String::as_str));
            for (name, pattern) in &redaction.patterns {
                rules = rules.with_pattern(name, pattern)?;
            }
            codec = codec.with_redaction(rules);
        }
        if let Some(keys) = &self.form.signing {
            codec = codec.with_signing(self.ring(keys, "signing")?);
        }
        if let Some(encryption) = &self.form.encryption {
            codec = self.encrypting(codec, encryption)?;
        }
        Ok(codec)
    }

    fn encrypting(&self, codec: Codec, encryption: &Encryption) -> Result<Codec> {
        let Encryption { key, id, old, service } = encryption.clone();
        let codec = match key {
            Some(key) => codec.with_encryption(self.ring(&Keys { key, id, old }, "encryption")?),
            None if service.is_empty() => {
                return Err(Error::invalid("encryption is configured without a key")
                    .hint("set `encryption.key`, or `encryption.service`; see docs/configuration.md"));
            }
            None => codec,
        };
        match service.split_first() {
            Some((program, arguments)) => {
                Ok(codec.with_key_service(Arc::new(CommandKeys::new(program.clone(), arguments.to_vec()))))
            }
            None => Ok(codec),
        }
    }

    fn ring(&self, keys: &Keys, what: &str) -> Result<KeyRing> {
        let current = self.key(&keys.key, what, "key")?;
        let mut ring = KeyRing::new(keys.id.as_deref().unwrap_or("default"), current)?;
        for (id, reference) in &keys.old {
            ring = ring.with_old(id, self.key(reference, what, &format!("old.{id}"))?)?;
        }
        Ok(ring)
    }

    /// 32 bytes as 64 hexadecimal digits, from wherever the reference says.
    fn key(&self, reference: &SecretText, what: &str, name: &str) -> Result<[u8; 32]> {
        let reference = match self.layers.get(&format!("{what}.{name}")) {
            Some((_, Origin::File(file))) => secret_beside(&reference.0, file)?,
            _ => reference.0.clone(),
        };
        let secret = SystemSecrets.resolve(&reference)?;
        digits(secret.expose().trim()).ok_or_else(|| {
            Error::invalid(format!("the {what} key {} is not 64 hexadecimal digits", reference.as_str()))
                .hint("make one with: openssl rand -hex 32")
        })
    }
}

/// The keys of `[checkpoints]`, as a run understands them.
fn adjust(checkpoints: &Checkpoints, options: &mut RunOptions) {
    if checkpoints.enabled == Some(false) || checkpoints.auto_checkpoint == Some(false) {
        options.checkpoints = Frequency::Manual;
        let quiet = CheckpointConfig { on_node_start: false, on_node_complete: false, ..CheckpointConfig::default() };
        options.checkpoint_config.get_or_insert(quiet);
    }
    if options.retention.is_none() {
        let last = checkpoints.max_checkpoints_per_session.map(Rule::LastN);
        let age =
            checkpoints.prune_after_days.map(|days| Rule::MaxAge(Duration::from_secs(days.saturating_mul(86_400))));
        let rules: Vec<Rule> = last.into_iter().chain(age).collect();
        options.retention = (!rules.is_empty()).then(|| Policy::new(rules));
    }
}

/// A value as it may be seen: headers and fields of requests may hold a key, and so may a URL.
fn shown(name: &str, value: Value) -> Value {
    if matches!(name, "store" | "archive" | "large_values") {
        return value.as_str().map(|url| shown_url(url).into()).unwrap_or(value);
    }
    let hidden = name.contains(".headers.") || name.contains(".extra.");
    let in_url = value.as_str().is_some_and(|text| text.contains("://") && text.contains(['@', '?']));
    if hidden || in_url { "[not shown]".into() } else { value }
}

/// A relative path in a store URL is meant from where its file is.
fn beside(url: &str, file: &Path) -> String {
    let Some((scheme @ ("sqlite" | "file" | "objects"), path)) = url.split_once(':') else { return url.to_owned() };
    let path = path.strip_prefix("//").unwrap_or(path);
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => format!("{scheme}:{}", folder.join(path).display()),
        None => url.to_owned(),
    }
}

/// A secret's file is meant from where the file is that names it.
fn secret_beside(reference: &SecretRef, file: &Path) -> Result<SecretRef> {
    match (reference.scheme(), file.parent()) {
        ("file", Some(folder)) => format!("@file:{}", folder.join(reference.rest()).display()).parse(),
        _ => Ok(reference.clone()),
    }
}

/// The bytes that 64 hexadecimal digits stand for.
fn digits(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[number * 2..number * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}
