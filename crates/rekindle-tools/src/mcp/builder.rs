//! Naming an MCP server and what is known of its tools.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use rekindle::{Result, Secret};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::McpServer;
use super::masks::Masks;
use crate::checks::Faults;
use crate::policy::ToolPolicy;
use crate::process::{Start, is_variable};

/// An MCP server that was not reached yet.
#[derive(Clone, Debug)]
#[must_use]
pub struct McpServerBuilder {
    name: String,
    place: Place,
    environment: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    headers: Vec<(String, String)>,
    bearer: Option<Secret>,
    secrets: Vec<(String, Secret)>,
    filter: Filter,
    connect_timeout: Duration,
    max_tools: usize,
}

#[derive(Clone, Debug)]
enum Place {
    Command(Vec<String>),
    Url(String),
}

/// Which tools are used, how they are named, and what is said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) include: Option<BTreeSet<String>>,
    pub(super) exclude: BTreeSet<String>,
    pub(super) prefix: String,
    pub(super) default: ToolPolicy,
    pub(super) policies: BTreeMap<String, ToolPolicy>,
    pub(super) trust: bool,
}

/// What a server is reached by, checked.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) filter: Filter,
    pub(super) masks: Masks,
    pub(super) connect_timeout: Duration,
    pub(super) max_tools: usize,
}

/// Where a server is.
#[derive(Debug)]
pub(super) enum Target {
    Process(Start),
    Http { client: Client, url: String, headers: HashMap<HeaderName, HeaderValue>, bearer: Option<Secret> },
}

impl Config {
    /// Returns true if the server is a program that is started here.
    pub(super) fn is_program(&self) -> bool {
        matches!(self.target, Target::Process(_))
    }

    /// Where the server is, for people.
    pub(super) fn place(&self) -> String {
        match &self.target {
            Target::Process(start) => format!("`{}`", start.command.join(" ")),
            Target::Http { url, .. } => url.clone(),
        }
    }
}

impl McpServerBuilder {
    pub(super) fn stdio(name: String, command: Vec<String>) -> Self {
        Self::new(name, Place::Command(command))
    }

    pub(super) fn http(name: String, url: String) -> Self {
        Self::new(name, Place::Url(url))
    }

    fn new(name: String, place: Place) -> Self {
        Self {
            name,
            place,
            environment: BTreeMap::new(),
            directory: None,
            headers: Vec::new(),
            bearer: None,
            secrets: Vec::new(),
            filter: Filter::default(),
            connect_timeout: Duration::from_secs(30),
            max_tools: 1_000,
        }
    }

    /// Variables of the program; it gets no others.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.environment.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// A variable of the program that is a secret: it is kept out of errors and results.
    pub fn secret_environment(mut self, variable: impl Into<String>, secret: Secret) -> Self {
        let variable = variable.into();
        self.environment.insert(variable.clone(), secret.expose().to_owned());
        self.secrets.push((variable, secret));
        self
    }

    /// Where the program runs; without it, wherever this process does.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// A header of every request to the URL.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A header that is a secret: it is kept out of errors and results.
    pub fn secret_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        let name = name.into();
        self.headers.push((name.clone(), value.expose().to_owned()));
        self.secrets.push((name, value));
        self
    }

    /// The token for `Authorization: Bearer …`.
    pub fn bearer(mut self, token: Secret) -> Self {
        self.secrets.push(("bearer".into(), token.clone()));
        self.bearer = Some(token);
        self
    }

    /// Uses only these tools, by the server's own names. Those it does not have are an error.
    pub fn include(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.filter.include.get_or_insert_default().extend(names.into_iter().map(Into::into));
        self
    }

    /// Leaves these tools out, by the server's own names.
    pub fn exclude(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.filter.exclude.extend(names.into_iter().map(Into::into));
        self
    }

    /// What the names of its tools begin with here.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.filter.prefix = prefix.into();
        self
    }

    /// What is said of each tool unless something is said of it by name.
    pub fn default_policy(mut self, policy: ToolPolicy) -> Self {
        self.filter.default = policy;
        self
    }

    /// What is said of a tool, by the server's own name. One that the server does not have is an
    /// error: a policy with a slip in its name protects nothing.
    pub fn policy(mut self, tool: impl Into<String>, policy: ToolPolicy) -> Self {
        self.filter.policies.insert(tool.into(), policy);
        self
    }

    /// Believes what the server says of its tools, where nothing is said here: `readOnlyHint` means
    /// that a tool reads, `idempotentHint` that it may be repeated. Otherwise every tool of which
    /// nothing is said here writes, and a person is asked about a call in doubt: a server that is
    /// wrong, or lies, must not be the reason that something is done twice.
    pub fn trust_annotations(mut self, trust: bool) -> Self {
        self.filter.trust = trust;
        self
    }

    /// How long it may take until the server answers `initialize`, or lists its tools; 30 seconds
    /// unless more is said.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The most tools a server may have; 1,000 unless more is said.
    pub fn max_tools(mut self, tools: usize) -> Self {
        self.max_tools = tools;
        self
    }

    /// Starts or reaches the server. An error names it, and what it said last.
    pub async fn connect(self) -> Result<McpServer> {
        let mut faults = Faults::default();
        let target = self.target(&mut faults);
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        faults.check(self.filter.prefix.chars().all(legal), || {
            format!("the prefix `{}` is none for a tool: use letters, digits, `_` and `-`", self.filter.prefix)
        });
        faults.into_result("MCP server", &self.name)?;
        let target = match target {
            Ready::Process(start) => Target::Process(start),
            Ready::Http(headers, url) => {
                Target::Http { client: crate::http::client()?, url, headers, bearer: self.bearer }
            }
        };
        McpServer::connect(Config {
            name: self.name,
            target,
            filter: self.filter,
            masks: Masks::new(self.secrets),
            connect_timeout: self.connect_timeout,
            max_tools: self.max_tools,
        })
        .await
    }

    fn target(&self, faults: &mut Faults) -> Ready {
        match &self.place {
            Place::Command(command) => {
                faults.check(command.first().is_some_and(|program| !program.is_empty()), || {
                    "there is no program".to_owned()
                });
                faults.check(self.headers.is_empty() && self.bearer.is_none(), || {
                    "a program takes no headers; use variables".to_owned()
                });
                for name in self.environment.keys() {
                    faults.check(is_variable(name), || format!("`{name}` is no name of a variable"));
                }
                let (command, environment) = (command.clone(), self.environment.clone());
                Ready::Process(Start { command, environment, directory: self.directory.clone() })
            }
            Place::Url(url) => {
                let read = url.parse::<Url>().ok();
                let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.password().is_none();
                faults.check(read.as_ref().is_some_and(is_http), || {
                    format!("`{url}` is no http:// or https:// URL without a password in it")
                });
                faults.check(self.environment.is_empty() && self.directory.is_none(), || {
                    "a URL takes neither variables nor a directory; use headers".to_owned()
                });
                Ready::Http(headers(faults, &self.headers), url.clone())
            }
        }
    }
}

/// A target before there is a client for it.
enum Ready {
    Process(Start),
    Http(HashMap<HeaderName, HeaderValue>, String),
}

fn headers(faults: &mut Faults, headers: &[(String, String)]) -> HashMap<HeaderName, HeaderValue> {
    let mut read = HashMap::new();
    for (name, value) in headers {
        // Values stay out of the error: they may be secrets.
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                read.insert(name, value);
            }
            _ => faults.add(format!("`{name}` or its value is none for a header")),
        }
    }
    read
}
