//! The form of `rekindle.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rekindle::graph::CheckpointConfig;
use rekindle_definitions::{ModelSpec, RunOptionsSpec, SecretText};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The configuration of Rekindle on the command line.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Form {
    /// Where sessions are: `sqlite:./rekindle.db`, `file:./dir`, `memory:`, `postgres://…`, `redis://…`,
    /// `s3://…`, `gs://…`, `az://…` or `objects:./dir`. A relative path is meant from where this file is.
    pub store: Option<String>,
    /// The password of that store's server: `@env:VARIABLE`, `@file:path`, `@keychain:service/account` or
    /// `@command:…`.
    pub store_password: Option<SecretText>,
    /// Where values go that are too large for the store: `s3://…`, `gs://…`, `az://…` or `objects:./dir`.
    /// Every process that uses the store needs the same.
    pub large_values: Option<String>,
    /// From which size on values go there, e.g. `256KiB`.
    #[serde(deserialize_with = "size")]
    #[schemars(with = "Option<String>")]
    pub large_values_from: Option<u64>,
    /// Time for which a request that the server of a store or bucket does not answer is made again, e.g. `6s`; `0s`: never.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "Option<String>")]
    pub retry_for: Option<Duration>,
    /// Largest number of attempts at such a request.
    pub retry_attempts: Option<std::num::NonZeroU32>,
    /// Whether marks of the highest heads are kept beside a `sqlite:` or `file:` store (in `<path>-marks`), so
    /// that a store that was set back to an older state is noticed. Every process that uses the store needs the
    /// same.
    pub marks: Option<bool>,
    /// Where marks of any store are kept too, up to a second behind: `s3://…`, `gs://…`, `az://…`, `objects:./dir`,
    /// `file:./dir` or `sqlite:./marks.db`. It belongs to one store alone.
    pub anchor: Option<String>,
    /// Where archives are: `s3://…`, `gs://…`, `az://…` or `objects:./dir`.
    pub archive: Option<String>,
    /// Whose sessions are meant.
    pub namespace: Option<String>,
    /// Who is on record for what is done by hand.
    pub author: Option<String>,
    /// The model for every agent, whatever its file says.
    pub model: Option<String>,
    /// Longest interval between looks of a run for messages and commands while none come, e.g. `5s`.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "Option<String>")]
    pub idle_poll: Option<Duration>,
    /// How long after a process dies until another may take its sessions over, e.g. `15s`.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "Option<String>")]
    pub lease: Option<Duration>,
    /// When checkpoints are made and how long they are kept.
    pub checkpoints: Checkpoints,
    /// How runs behave unless their file says otherwise.
    pub run: RunOptionsSpec,
    /// Models by short names, for `model: NAME` in files.
    pub models: BTreeMap<String, ModelSpec>,
    /// The files that run the sessions of agents, plans and graphs, by their names: for sessions whose own file
    /// is not here or not trusted. A relative path is meant from where this file is.
    pub agents: BTreeMap<String, PathBuf>,
    /// The places of secrets, by the names that agents' files and sessions use, e.g. `api_key = "@env:API_KEY"`: in
    /// place of what those say.
    pub secrets: BTreeMap<String, SecretText>,
    /// What commands and MCP servers are given.
    pub tools: Tools,
    /// What is served over HTTP, and to whom.
    pub server: Server,
    /// What MCP clients may do.
    pub mcp: Mcp,
    /// What is never stored.
    pub redaction: Redaction,
    /// Encrypts everything that is stored.
    pub encryption: Option<Encryption>,
    /// Signs everything that is stored.
    pub signing: Option<Keys>,
}

/// When checkpoints are made and how long they are kept.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoints {
    /// Whether checkpoints are made by themselves. The journal is written either way.
    pub enabled: Option<bool>,
    /// Whether each step of a plan and each turn of an agent is marked.
    pub auto_checkpoint: Option<bool>,
    /// How many are kept for each branch when a run ends.
    pub max_checkpoints_per_session: Option<usize>,
    /// How old those may be that are kept beyond that.
    pub prune_after_days: Option<u64>,
    /// Whether what is stored is compressed.
    pub compress_state: Option<bool>,
    /// When graphs make checkpoints.
    pub graph: Option<CheckpointConfig>,
}

/// What commands and MCP servers are given.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// The names of further variables of the environment that are passed on.
    pub environment: Vec<String>,
}

/// What is served over HTTP, and to whom.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Where the token is that clients must know: `@env:VARIABLE`, `@file:path`,
    /// `@keychain:service/account` or `@command:…`.
    pub token: Option<SecretText>,
    /// The places of further tokens, by the names that are on record for what is done with them.
    pub tokens: BTreeMap<String, SecretText>,
    /// Further names the server is called by, behind a proxy.
    pub hosts: Vec<String>,
    /// The origins of pages that may ask, e.g. `https://app.example.com`.
    pub origins: Vec<String>,
}

/// What MCP clients may do.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// The files they may run. A relative path is meant from where this file is.
    pub agents: Vec<PathBuf>,
}

/// What is never stored.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redaction {
    /// Keys whose values are left out, beside those that always are.
    pub exclude: Vec<String>,
    /// Regular expressions of texts that are left out, by name.
    pub patterns: BTreeMap<String, String>,
}

/// A key that encrypts, or a program that keeps it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Encryption {
    /// Where the key is: `@env:VARIABLE`, `@file:path`, `@keychain:service/account` or `@command:…`;
    /// 64 hexadecimal digits.
    #[serde(default)]
    pub key: Option<SecretText>,
    /// The key's id, by which it is found again after a change; `default` unless this says otherwise.
    #[serde(default)]
    pub id: Option<String>,
    /// Earlier keys by their ids, for reading.
    #[serde(default)]
    pub old: BTreeMap<String, SecretText>,
    /// A program that wraps and unwraps the keys of sessions, with its arguments: the main key stays with it.
    #[serde(default)]
    pub service: Vec<String>,
}

/// A key and the ones before it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Where the key is: `@env:VARIABLE`, `@file:path`, `@keychain:service/account` or `@command:…`;
    /// 64 hexadecimal digits.
    pub key: SecretText,
    /// The key's id, by which it is found again after a change; `default` unless this says otherwise.
    #[serde(default)]
    pub id: Option<String>,
    /// Earlier keys by their ids, for reading.
    #[serde(default)]
    pub old: BTreeMap<String, SecretText>,
}

/// A time as people write it.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| crate::ui::duration::parse(&text)).transpose().map_err(D::Error::custom)
}

/// A size as people write it: `256KiB`, `1MB`, or bytes.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Option::<Size>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Size::Text(text)) => parse_size(&text).map(Some).map_err(D::Error::custom),
    }
}

/// The bytes that e.g. `256KiB` stands for.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write for example 256KiB, 1MB or a number of bytes");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1_000,
        "kib" => 1 << 10,
        "mb" | "m" => 1_000_000,
        "mib" => 1 << 20,
        "gb" | "g" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("256KB", 256_000), ("256KiB", 262_144), ("1 MB", 1_000_000), ("4096", 4_096), ("2MiB", 2 << 20)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "KB", "-1", "1XB", "99999999999999999999", "18446744073709551615KiB", "1.5MB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fuzzed_sizes() {
        rekindle_fuzz::fuzz!("cli-size").seeds(["256KB", "256KiB", "1 MB", "4096", "2MiB"]).text(parse_size);
    }

    #[test]
    fn fuzzed_configurations() {
        let seed = "store = \"sqlite:./a.db\"\nnamespace = \"n\"\nlease = \"30s\"\n[encryption]\nkey = \"@env:K\"\nid = \"a\"\n[encryption.old]\nb = \"@file:k\"\n";
        let words = [
            "[models.x]\n",
            "[[",
            "\"@env:A\"",
            "\nlarge_values = ",
            "\u{0}",
            "= 99999999999999999999",
            "= 1979-05-27T07:32:00Z",
        ];
        rekindle_fuzz::fuzz!("cli-configuration").seeds([seed]).words(words).memory(4 << 20, 1_000).text(|text| {
            let document =
                rekindle_definitions::Document::parse("rekindle.toml", text, rekindle_definitions::Format::Toml);
            let read = document.and_then(|document| document.decode::<super::Form>("").map(drop));
            if let Err(faults) = &read {
                for fault in faults {
                    assert!(!fault.message.is_empty() && !fault.render().is_empty());
                }
            }
            read
        });
    }
}
