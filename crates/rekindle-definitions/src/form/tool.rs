//! Tools in files.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rekindle::schemars::{self, JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::merged;
use super::{AgentFile, GraphFile, Period, PlanFile, PolicySpec, Reference, SecretName};

/// A tool: what it does, and what the engine must know of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolEntry {
    pub(crate) body: ToolBody,
    pub(crate) policy: PolicySpec,
}

/// What a tool does. Exactly one of `command`, `shell`, `http`, `agent`, `plan`, `graph` and
/// `question` says how.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolBody {
    /// Its name: letters, digits, `_` and `-`.
    pub(crate) name: String,
    /// What it does and when to use it. An agent, a plan or a graph brings its own.
    pub(crate) description: Option<String>,
    /// What it takes: a JSON Schema with `type: object` or `$ref`, or in short the parameters by
    /// name, e.g. `{city: string, days: {type: integer, optional: true}}`.
    pub(crate) parameters: Option<Map<String, Value>>,
    /// A program and its arguments. `${arguments.city}` stands for what it names.
    pub(crate) command: Option<Vec<String>>,
    /// A script of the shell. Arguments are in variables: `$REKINDLE_ARG_CITY`.
    pub(crate) shell: Option<String>,
    /// An HTTP request.
    pub(crate) http: Option<HttpSpec>,
    /// Another agent, in a session of its own.
    pub(crate) agent: Option<Reference<AgentFile>>,
    /// A plan, in a session of its own.
    pub(crate) plan: Option<Reference<PlanFile>>,
    /// A graph, in a session of its own.
    pub(crate) graph: Option<Reference<GraphFile>>,
    /// A question to a person: the run waits for the answer, which is the result.
    pub(crate) question: Option<QuestionSpec>,
    /// What of the command's output is the result; `full` unless this says otherwise.
    pub(crate) output: Option<OutputName>,
    /// The directory the command is started in, relative to this file; that of this file unless this
    /// says otherwise.
    pub(crate) directory: Option<String>,
    /// What the command reads.
    pub(crate) stdin: Option<StdinSpec>,
    /// Environment variables of the command. `${arguments.city}` stands for what it names.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    /// Environment variables of the command that are secret.
    pub(crate) secret_environment: Option<BTreeMap<String, SecretName>>,
    /// Exit codes beside 0 that are no failure.
    pub(crate) accept_exit_codes: Option<Vec<i32>>,
    /// A program that finds out whether an earlier call happened: exit code 0 and its result if it
    /// did, 1 if it did not.
    pub(crate) check_command: Option<Vec<String>>,
    /// Its version; a change is drift.
    pub(crate) version: Option<String>,
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpSpec {
    /// The method; `GET` unless this says otherwise.
    pub(crate) method: Option<String>,
    /// The URL. `${arguments.city}` may stand in its path and query.
    pub(crate) url: String,
    /// Query parameters; one whose argument is missing is left out.
    #[serde(default)]
    pub(crate) query: BTreeMap<String, String>,
    /// Headers. `${secrets.token}` stands for one of the file's `secrets`.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// What the request carries.
    pub(crate) body: Option<BodySpec>,
    /// The header that carries the idempotency key. Naming it says that the server honours it.
    pub(crate) idempotency_header: Option<String>,
    /// Headers of the answer that are part of the result.
    #[serde(default)]
    pub(crate) response_headers: Vec<String>,
    /// How many bytes of the answer are kept.
    pub(crate) response_limit: Option<usize>,
}

/// What a request carries.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BodySpec {
    /// The arguments of the call, as JSON.
    Arguments,
    /// This, as JSON. `${arguments.city}` stands for what it names.
    Json(Value),
    /// This text. `${arguments.city}` stands for what it names.
    Text(String),
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionSpec {
    /// What the person is asked. `${arguments.city}` stands for what it names.
    pub(crate) prompt: String,
    /// JSON Schema of the answer.
    pub(crate) schema: Option<Map<String, Value>>,
    /// When to remind, e.g. `1h`.
    pub(crate) remind_after: Option<Period>,
    /// When it ends by itself, e.g. `2d`.
    pub(crate) expires_after: Option<Period>,
    /// What counts as the answer then.
    pub(crate) default: Option<Value>,
}

/// What of a command's output is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputName {
    /// What it wrote, what it complained about, and its exit code.
    Full,
    /// What it wrote, as text.
    Text,
    /// What it wrote, as JSON.
    Json,
}

/// What a command reads.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StdinSpec {
    /// The arguments of the call, as JSON.
    Arguments,
    /// This text. `${arguments.city}` stands for what it names.
    Text(String),
}

impl ToolBody {
    /// The keys that say how it works, as far as they are given.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let given = [
            ("command", self.command.is_some()),
            ("shell", self.shell.is_some()),
            ("http", self.http.is_some()),
            ("agent", self.agent.is_some()),
            ("plan", self.plan.is_some()),
            ("graph", self.graph.is_some()),
            ("question", self.question.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}

impl JsonSchema for ToolEntry {
    fn schema_name() -> Cow<'static, str> {
        "Tool".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        merged(
            "A tool. Exactly one of `command`, `shell`, `http`, `agent`, `plan`, `graph` and `question` says what it does.",
            [ToolBody::json_schema(generator), PolicySpec::json_schema(generator)],
        )
    }
}
