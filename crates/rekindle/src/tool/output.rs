//! What a tool gives back.

use std::fmt;
use std::time::Duration;

use rekindle_core::Json;
use rekindle_core::record::{InDoubtPolicy, Usage};
use serde::Serialize;

use crate::driver::{Recorded, Tried};
use crate::wait::WaitSpec;

/// What a tool gives back: a value, and what else should come of the call.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    pub(crate) reply: Reply,
    pub(crate) terminate: Option<String>,
    pub(crate) remember: Vec<(String, Json)>,
    pub(crate) usage: Usage,
}

/// How a call ends.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// With a value.
    Value(Json),
    /// With the answer to a wait, whenever it comes.
    Wait(Box<WaitSpec>),
    /// Not yet: something else must go on first. The call is made again at the next resume.
    Suspend(String),
}

impl ToolOutput {
    /// Any JSON.
    pub fn json(value: Json) -> Self {
        Self { reply: Reply::Value(value), terminate: None, remember: Vec::new(), usage: Usage::default() }
    }

    /// Waits for a person, a signal or a time; the answer is the result of the call. The wait
    /// outlives the process.
    pub fn wait(spec: WaitSpec) -> Self {
        Self { reply: Reply::Wait(Box::new(spec)), terminate: None, remember: Vec::new(), usage: Usage::default() }
    }

    /// The call cannot end before something else does: the run stops and waits, and the call is
    /// made again when it is resumed. For tools that drive other durable work.
    pub fn suspend(reason: impl Into<String>) -> Self {
        Self { reply: Reply::Suspend(reason.into()), terminate: None, remember: Vec::new(), usage: Usage::default() }
    }

    /// Ends the turn after this call.
    #[must_use]
    pub fn and_terminate(mut self, reason: impl Into<String>) -> Self {
        self.terminate = Some(reason.into());
        self
    }

    /// Sets a key of the session's memory, together with the outcome of the call.
    #[must_use]
    pub fn and_remember(mut self, key: impl Into<String>, value: Json) -> Self {
        self.remember.push((key.into(), value));
        self
    }

    /// What the call used, beside time: it counts towards the budgets of the run.
    #[must_use]
    pub fn and_used(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }
}

/// What a function may return as the result of a tool: a [`ToolOutput`] or anything that can be
/// written as JSON.
pub trait IntoOutput {
    /// The output.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl<T: Serialize> IntoOutput for T {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        let value = Json::of(&self).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            ToolError::failed(format!("the result cannot be written as JSON: {cause}"))
        })?;
        Ok(ToolOutput::json(value))
    }
}

impl IntoOutput for ToolOutput {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

/// Why a tool gave no result. Any error turns into one with `?`; it then means that the tool
/// failed, which the model is told and may react to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    pub(crate) message: String,
    pub(crate) verdict: Verdict,
    pub(crate) usage: Usage,
}

/// What is known of a call that gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The tool says no.
    Failed,
    /// It did not happen; trying again, not before that time, may help.
    DidNotHappen(Option<Duration>),
    /// Nobody knows whether it happened.
    InDoubt,
}

impl Verdict {
    /// What that means for a try of an effect with `policy`.
    pub(crate) fn tried(self, policy: InDoubtPolicy, recorded: Recorded, error: String) -> Tried {
        let may_repeat = matches!(policy, InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent);
        match self {
            Self::Failed => Tried::Failed { recorded, error },
            Self::DidNotHappen(after) => Tried::Passing { recorded, error, after },
            Self::InDoubt if may_repeat => Tried::Passing { recorded, error, after: None },
            Self::InDoubt => Tried::InDoubt { error },
        }
    }
}

impl ToolError {
    /// The tool says no: the model is told and may react.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), verdict: Verdict::Failed, usage: Usage::default() }
    }

    /// It could not be carried out and did not happen; trying again may help.
    pub fn retry(message: impl Into<String>) -> Self {
        Self { message: message.into(), verdict: Verdict::DidNotHappen(None), usage: Usage::default() }
    }

    /// Its answer was lost: it may have happened or not. What is done then is what the tool declares
    /// for calls in doubt.
    pub fn in_doubt(message: impl Into<String>) -> Self {
        Self { message: message.into(), verdict: Verdict::InDoubt, usage: Usage::default() }
    }

    /// If it is tried again, then not before `pause` has passed.
    #[must_use]
    pub fn not_before(mut self, pause: Duration) -> Self {
        if let Verdict::DidNotHappen(after) = &mut self.verdict {
            *after = Some(pause);
        }
        self
    }

    /// What the call used all the same, beside time: it counts towards the budgets of the run.
    #[must_use]
    pub fn and_used(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        let ours = (&error as &dyn std::any::Any).downcast_ref::<rekindle_core::Error>();
        let verdict = match ours.is_some_and(|error| error.retry() == rekindle_core::Retry::Later) {
            true => Verdict::DidNotHappen(None),
            false => Verdict::Failed,
        };
        Self { message, verdict, usage: Usage::default() }
    }
}

/// Whether an earlier call happened.
#[derive(Clone, Debug)]
pub enum Checked {
    /// It happened, with this result.
    Happened(Json),
    /// It did not: it is made again.
    DidNotHappen,
    /// Nobody can tell: a person is asked.
    Unknown,
}
