//! A plan as it is written down: what files hold and what the builder makes.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::executor::duration;
use crate::tool::Retries;

/// A plan: steps that call tools, in the order their dependencies demand.
///
/// ```
/// use rekindle::plan::PlanSpec;
/// let plan: PlanSpec = serde_json::from_str(r#"{
///     "name": "report",
///     "steps": [
///         {"id": "fetch", "action": "download", "parameters": {"url": "${context.url}"}},
///         {"id": "write", "action": "write_file", "dependencies": ["fetch"],
///          "parameters": {"text": "${steps.fetch.output.body}"}, "timeout": "30s"}
///     ]
/// }"#).unwrap();
/// assert_eq!(plan.steps[1].dependencies, ["fetch"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The request it answers, unless a run brings its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// The working memory its runs begin with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// Its steps.
    pub steps: Vec<StepSpec>,
    /// How many steps run at once; eight unless this says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<usize>,
    /// Whether nothing more is started once a required step has failed. Otherwise whatever does
    /// not depend on it still runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
}

/// A step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name in the plan: letters, digits, `_` and `-`.
    pub id: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The tool it calls.
    pub action: String,
    /// What the tool is given. `${steps.<id>.output…}`, `${context.<key>…}` and `${query}` stand
    /// for what they name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The steps that must be completed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// How passing failures are tried again, unless the tool's own way will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long one try may take, e.g. `30s`, unless the tool's own limit will do.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Duration>,
    /// Whether the plan can succeed without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Whether a checkpoint is made before it when checkpoints are `smart`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub risky: bool,
}

/// How passing failures are tried again: with exponential backoff and jitter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// How many tries in all.
    pub attempts: u32,
    /// The pause before the second try; doubled before each further one.
    #[serde(default = "first_pause", with = "duration")]
    #[schemars(with = "String")]
    pub first_pause: Duration,
    /// The longest pause.
    #[serde(default = "longest_pause", with = "duration")]
    #[schemars(with = "String")]
    pub longest_pause: Duration,
}

fn first_pause() -> Duration {
    Retries::default().first_pause
}

fn longest_pause() -> Duration {
    Retries::default().longest_pause
}

impl RetrySpec {
    /// So many tries, with the usual pauses.
    pub fn attempts(attempts: u32) -> Self {
        Retries { attempts, ..Retries::default() }.into()
    }

    pub(crate) fn retries(&self) -> Retries {
        Retries { attempts: self.attempts.max(1), first_pause: self.first_pause, longest_pause: self.longest_pause }
    }
}

impl From<Retries> for RetrySpec {
    fn from(retries: Retries) -> Self {
        Self { attempts: retries.attempts, first_pause: retries.first_pause, longest_pause: retries.longest_pause }
    }
}

impl StepSpec {
    /// A step that calls `action`.
    ///
    /// ```
    /// use rekindle::plan::StepSpec;
    /// use std::time::Duration;
    ///
    /// let step = StepSpec::new("write", "write_file")
    ///     .after(["fetch"])
    ///     .with("text", "${steps.fetch.output.body}")
    ///     .timeout(Duration::from_secs(30));
    /// # let _ = step;
    /// ```
    pub fn new(id: impl Into<String>, action: impl Into<String>) -> Self {
        Self { id: id.into(), action: action.into(), ..Self::default() }
    }

    /// What it is for.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Depends on `steps` as well.
    #[must_use]
    pub fn after<I>(mut self, steps: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.dependencies.extend(steps.into_iter().map(Into::into));
        self
    }

    /// Gives the tool one more parameter.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.into(), value.into());
        self
    }

    /// How passing failures are tried again.
    #[must_use]
    pub fn retry(mut self, retries: impl Into<RetrySpec>) -> Self {
        self.retry = Some(retries.into());
        self
    }

    /// How long one try may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The plan can succeed without it.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// A checkpoint is made before it when checkpoints are `smart`.
    #[must_use]
    pub fn risky(mut self) -> Self {
        self.risky = true;
        self
    }
}

impl PlanSpec {
    /// The JSON Schema of plans in files.
    pub fn schema() -> Value {
        schemars::schema_for!(Self).to_value()
    }
}
