//! The configuration: `rekindle.toml` of the user and of the project, then the environment, then
//! flags; what comes later wins, key by key.

mod form;
mod keys;
mod layers;
mod remote;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle::core::codec::{Codec, KeyRing, Redaction};
use rekindle::core::retention::{Policy, Rule};
use rekindle::graph::CheckpointConfig;
use rekindle::{Error, Frequency, Result, RunOptions, Secret, SecretRef, SecretSource as _};
use rekindle_definitions::{Faults, RunOptionsSpec, SecretText};
use rekindle_store::{StoreOptions, shown_url};
use serde::Deserialize as _;
use serde_json::Value;

use crate::cli::Global;
use crate::failure::Failure;
use crate::key_service::CommandKeys;
use crate::secrets::SystemSecrets;
use crate::trust::{self, Trust};
pub use form::Form;
use form::{Checkpoints, Encryption, Keys};

pub use form::parse_size;
pub use keys::{KEYS, Key};
pub use layers::Origin;
pub use remote::is_remote;

/// The age that what is known of a session may have, on stores where each look is a request.
const STALENESS: Duration = Duration::from_millis(500);

/// The store, unless something says otherwise.
const DEFAULT_STORE: &str = "sqlite:./rekindle.db";

/// The level at which frames are compressed.
const COMPRESSION: i32 = 1;

/// The shortest lease within which requests to a bucket are repeated for as long as they are by default.
const REPEATS_FIT: Duration = Duration::from_secs(15);

/// The effective configuration.
#[derive(Debug)]
pub struct Settings {
    form: Form,
    layers: layers::Layers,
    trust: Trust,
    refused: Vec<Error>,
}

/// The treatment of a file that was found and is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nothing is done without it: who counts on it, for encryption perhaps, must know.
    Fail,
    /// It is left out.
    LeaveOut,
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
    pub fn load(global: &Global, on_refused: Refused) -> Result<Self, Failure> {
        let mut layers = layers::Layers::new();
        let trust = Trust::new(global.trust);
        let mut refused = Vec::new();
        for file in layers::files(global.config.as_deref()) {
            match layers.add(&file, &trust) {
                Err(Failure::Error(error)) if on_refused == Refused::LeaveOut => refused.push(error),
                added => added?,
            }
        }
        layers.add_environment(std::env::vars_os())?;
        layers.add_flags(global)?;
        let form = Form::deserialize(&layers.merged).map_err(|error| {
            // Each layer was checked on its own: what is left is a combination.
            Faults::one(rekindle_definitions::Fault::new(format!("the configuration is not right: {error}")))
        })?;
        Ok(Self { form, layers, trust, refused })
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

    /// Returns what is trusted.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns whether a file that was found has powers that were trusted.
    pub fn is_trusted(&self, file: &Path) -> bool {
        self.layers.trusted.iter().any(|trusted| trusted == file)
    }

    /// The files that were found and left out, and why.
    pub fn refused(&self) -> &[Error] {
        &self.refused
    }

    /// The configuration that would be found here.
    pub fn nearest() -> Option<PathBuf> {
        layers::files(None).into_iter().find_map(|file| match file {
            layers::Named::Found(path) => Some(path),
            _ => None,
        })
    }

    /// The paths that no tool may write: configuration, stores, and what is trusted.
    pub fn protected(&self) -> Vec<PathBuf> {
        let mut paths = layers::places();
        paths.extend(self.layers.files.iter().cloned());
        let places = [self.place_of("large_values"), self.place_of("anchor"), self.archive_url()];
        for url in places.into_iter().flatten().chain([self.store_url()]) {
            paths.extend(trust::paths_of_store(&url));
        }
        paths.extend(self.trust.ledger().folder().map(Path::to_owned));
        paths
    }

    /// Returns the places of the secrets that are given to agents by name.
    pub fn secrets(&self) -> Result<std::collections::BTreeMap<String, SecretRef>> {
        let all = self.form.secrets.iter().map(|(name, reference)| {
            let reference = match self.layers.origin(&format!("secrets.{name}")) {
                Some(Origin::File(file)) => secret_beside(&reference.0, file)?,
                _ => reference.0.clone(),
            };
            crate::secrets::check(&reference)?;
            Ok((name.clone(), reference))
        });
        all.collect()
    }

    /// The file that runs the sessions of an agent, a plan or a graph.
    pub fn agent(&self, name: &str) -> Option<PathBuf> {
        let path = self.form.agents.get(name)?;
        let folder = match self.layers.origin(&format!("agents.{name}")) {
            Some(Origin::File(file)) => file.parent().unwrap_or(Path::new("")),
            _ => Path::new(""),
        };
        Some(folder.join(path))
    }

    /// Every definition that the configuration names.
    pub fn named_definitions(&self) -> Vec<PathBuf> {
        let agents = self.form.agents.keys().filter_map(|name| self.agent(name));
        agents.chain(self.mcp_agents()).collect()
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

    /// Returns the place of large values.
    pub fn large_values_url(&self) -> Option<String> {
        self.place("large_values", self.form.large_values.as_deref()?)
    }

    /// How a bucket is opened: with what its service is told beside the URL.
    pub fn bucket_options(&self, url: &str, create: bool) -> StoreOptions {
        let options = StoreOptions::new().with_create(create).with_staleness(STALENESS);
        self.with_service(options, "", url)
    }

    /// Adds what a service is told beside its URL: its variables, and how often requests are made again.
    fn with_service(&self, options: StoreOptions, prefix: &str, url: &str) -> StoreOptions {
        let variables = remote::service_settings(url, |name| std::env::var(name).ok());
        // A request is not repeated for longer than the owner of a lease surely is its owner.
        let fits = || Some(self.form.lease.filter(|lease| *lease < REPEATS_FIT)? * 2 / 5);
        let total = self.form.retry_for.or_else(fits).map(|total| format!("{}ms", total.as_millis()));
        let attempts = self.form.retry_attempts.map(|attempts| attempts.to_string());
        let repeats = [("retry_for", total), ("retry_attempts", attempts)].into_iter();
        let unsaid = |name: &str| remote::is_remote(url) && !url.contains(&format!("{name}="));
        let repeats = repeats.filter_map(|(name, value)| Some((name.to_owned(), value.filter(|_| unsaid(name))?)));
        variables
            .into_iter()
            .chain(repeats)
            .fold(options, |options, (name, value)| options.with_setting(format!("{prefix}{name}"), value))
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
            options = self.with_service(options, "anchor_", &place).with_setting("anchor", place);
        }
        if let Some(reference) = self.form.store_password.as_ref().filter(|_| remote::takes_password(url)) {
            let reference = match self.layers.get("store_password") {
                Some((_, Origin::File(file))) => secret_beside(&reference.0, file)?,
                _ => reference.0.clone(),
            };
            options = options.with_setting("password", SystemSecrets.resolve(&reference)?.expose());
        }
        if let Some(place) = self.form.large_values.as_deref().and_then(|place| self.place("large_values", place)) {
            options = self.with_service(options, "large_values_", &place).with_setting("large_values", place);
            if let Some(bytes) = self.form.large_values_from {
                options = options.with_setting("large_values_from", bytes.to_string());
            }
        }
        Ok(options)
    }

    /// Returns the options to look into a store without a secret and without any other server; nothing if it needs one.
    pub fn options_without_secrets(&self, url: &str) -> Option<StoreOptions> {
        let password = self.form.store_password.is_some() || shown_url(url) != url;
        if is_remote(url) && (password || !remote::takes_password(url)) {
            return None;
        }
        let options = StoreOptions::new().with_create(false).with_read_only(true).with_staleness(STALENESS);
        Some(match self.form.marks {
            Some(marks) => options.with_setting("marks", marks.to_string()),
            None => options,
        })
    }

    fn place_of(&self, key: &str) -> Option<String> {
        let url = self.layers.get(key).and_then(|(value, _)| value.as_str())?;
        self.place(key, url)
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

    /// Returns the longest interval between looks of a run for what was sent to it.
    pub fn idle_poll(&self) -> Option<Duration> {
        self.form.idle_poll
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

    /// The tokens that clients over HTTP may show, by name: that of `said` alone, or else those of the
    /// configuration.
    pub fn server_tokens(&self, said: Option<SecretRef>) -> Result<Vec<(String, Secret)>> {
        let server = &self.form.server;
        let named =
            server.tokens.iter().map(|(name, reference)| (name.clone(), format!("server.tokens.{name}"), reference));
        let single = server.token.iter().map(|reference| ("token".to_owned(), "server.token".to_owned(), reference));
        let mut references = Vec::new();
        for (name, key, reference) in single.chain(named) {
            if references.iter().any(|(known, _)| *known == name) {
                return Err(Error::invalid("`server.tokens.token` and `server.token` have one name")
                    .hint("give the token in `server.tokens` another name"));
            }
            let reference = match self.layers.get(&key) {
                Some((_, Origin::File(file))) => secret_beside(&reference.0, file)?,
                _ => reference.0.clone(),
            };
            references.push((name, reference));
        }
        if let Some(said) = said {
            references = vec![("token".to_owned(), said)];
        }
        references.into_iter().map(|(name, reference)| Ok((name, SystemSecrets.resolve(&reference)?))).collect()
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

    /// The keys whose values are never stored.
    pub fn excluded(&self) -> Redaction {
        Redaction::default().with_keys(self.form.redaction.exclude.iter().map(String::as_str))
    }

    /// The codec with compression, redaction and keys.
    pub fn codec(&self, mut codec: Codec, compress_from: usize) -> Result<Codec> {
        codec = match self.form.checkpoints.compress_state {
            Some(false) => codec.without_compression(),
            _ => codec.with_compression(compress_from, COMPRESSION),
        };
        let redaction = &self.form.redaction;
        if !redaction.exclude.is_empty() || !redaction.patterns.is_empty() {
            let mut rules = self.excluded();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_keys() {
        rekindle_fuzz::fuzz!("cli-key").seeds(["00".repeat(32), "fF".repeat(32)]).text(|text| {
            let bytes = digits(text)?;
            let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, text.to_ascii_lowercase());
            Some(())
        });
    }
}
