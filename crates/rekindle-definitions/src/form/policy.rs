//! What the engine must know of a tool, in files.

use std::fmt;
use std::time::Duration;

use rekindle::core::record::InDoubtPolicy;
use rekindle::plan::RetrySpec;
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, Retries};
use rekindle_tools::ToolPolicy;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::Period;

/// What the engine must know of a tool. What is left out is as the tool says itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// Whether it changes anything outside. A tool that only reads may be repeated.
    pub writes: Option<bool>,
    /// What to do with a call that was under way when its process died. Unless declared: `ask` for
    /// a tool that writes, `replay_safe` for one that only reads.
    pub in_doubt: Option<InDoubtName>,
    /// How long one try may take, e.g. `30s`.
    pub timeout: Option<Period>,
    /// How passing failures are tried again.
    pub retry: Option<RetrySpec>,
    /// How many calls of it run at once.
    pub concurrency: Option<usize>,
    /// Whether its calls wait for the calls before them, and the calls after it for them.
    pub sequential: Option<bool>,
    /// Whether a person must agree to each call.
    pub approval: Option<ApprovalSpec>,
    /// Whether a checkpoint is made before it when checkpoints are `smart`.
    pub risky: Option<bool>,
    /// The largest result, in bytes of JSON.
    pub max_result_bytes: Option<usize>,
}

/// What to do with a call that was under way when its process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtName {
    /// Run it again: it has no side effect.
    ReplaySafe,
    /// Run it again with the same idempotency key.
    Idempotent,
    /// Ask the tool whether it happened.
    Check,
    /// Ask a person.
    Ask,
    /// Fail the step.
    Never,
}

/// Whether a person must agree: `true`, `false`, or how.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[serde(untagged)]
pub enum ApprovalSpec {
    /// Yes or no.
    Plain(bool),
    /// Yes, in this way.
    Terms(ApprovalTerms),
}

/// How a person is asked to agree to a call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalTerms {
    /// What the person is asked; the call itself is shown too.
    #[serde(default)]
    pub prompt: String,
    /// How many must agree; one unless this says otherwise.
    pub approvals: Option<u32>,
    /// When to remind, e.g. `1h`.
    pub remind_after: Option<Period>,
    /// When it ends by itself, e.g. `2d`.
    pub expires_after: Option<Period>,
    /// Whether the call is made then; otherwise it is rejected.
    #[serde(default)]
    pub approve_on_expiry: bool,
}

impl PolicySpec {
    /// As tools take it.
    pub fn policy(&self) -> ToolPolicy {
        let period = |period: Option<Period>| period.map(|period| period.0);
        ToolPolicy {
            writes: self.writes,
            in_doubt: self.in_doubt.map(Into::into),
            timeout: period(self.timeout),
            retries: self.retry.as_ref().map(retries),
            concurrency: self.concurrency,
            sequential: self.sequential,
            approval: self.approval.as_ref().and_then(ApprovalSpec::approval),
            risky: self.risky,
            max_result_bytes: self.max_result_bytes,
        }
    }
}

/// As tools and models take it.
pub(crate) fn retries(spec: &RetrySpec) -> Retries {
    Retries { attempts: spec.attempts.max(1), first_pause: spec.first_pause, longest_pause: spec.longest_pause }
}

impl ApprovalSpec {
    /// As tools take it.
    fn approval(&self) -> Option<Approval> {
        let after = |period: Option<Period>| -> Option<Duration> { period.map(|period| period.0) };
        match self {
            Self::Plain(wanted) => wanted.then(Approval::default),
            Self::Terms(terms) => Some(Approval {
                prompt: terms.prompt.clone(),
                approvals: terms.approvals.unwrap_or(1),
                remind_after: after(terms.remind_after),
                expires_after: after(terms.expires_after),
                approve_on_expiry: terms.approve_on_expiry,
            }),
        }
    }
}

impl<'de> Deserialize<'de> for ApprovalSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ApprovalSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, or an object such as {prompt: \"Pay?\"}")
            }

            fn visit_bool<E: Error>(self, wanted: bool) -> Result<ApprovalSpec, E> {
                Ok(ApprovalSpec::Plain(wanted))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<ApprovalSpec, A::Error> {
                ApprovalTerms::deserialize(MapAccessDeserializer::new(fields)).map(ApprovalSpec::Terms)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl From<InDoubtName> for InDoubtPolicy {
    fn from(name: InDoubtName) -> Self {
        match name {
            InDoubtName::ReplaySafe => Self::ReplaySafe,
            InDoubtName::Idempotent => Self::Idempotent,
            InDoubtName::Check => Self::Check,
            InDoubtName::Ask => Self::Ask,
            InDoubtName::Never => Self::Never,
        }
    }
}
