//! MCP servers in files.

use std::collections::BTreeMap;

use rekindle::schemars::{self, JsonSchema};
use serde::Deserialize;

use super::{Period, PolicySpec, SecretName};

/// An MCP server whose tools are used: a program that is started, or a URL.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpEntry {
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// The URL, instead of a program.
    pub url: Option<String>,
    /// Environment variables of the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Environment variables of the program that are secret.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, SecretName>")]
    pub(crate) secret_environment: BTreeMap<String, SecretName>,
    /// The directory the program is started in, relative to this file.
    pub directory: Option<String>,
    /// Headers that are sent to the URL.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Headers that are secret.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, SecretName>")]
    pub(crate) secret_headers: BTreeMap<String, SecretName>,
    /// The bearer token that is sent to the URL.
    #[schemars(with = "Option<SecretName>")]
    pub(crate) bearer: Option<SecretName>,
    /// Only these of the server's tools, by its own names.
    pub include: Option<Vec<String>>,
    /// None of these, by the server's own names.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// What the names of its tools begin with here.
    pub prefix: Option<String>,
    /// Whether what the server says of its tools (that they only read, that they may be repeated) is
    /// believed; no unless this says otherwise.
    #[serde(default)]
    pub trust_annotations: bool,
    /// How long connecting may take; `30s` unless this says otherwise.
    pub timeout: Option<Period>,
    /// What the engine must know of its tools, by the server's own names; `*` for all others.
    #[serde(default)]
    pub policies: BTreeMap<String, PolicySpec>,
}
