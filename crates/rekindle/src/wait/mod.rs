//! Waits: durable pauses for a person, a signal or a time; how they are opened, decided and
//! closed. What is here is pure: the driver records it.

mod decide;

use std::time::Duration;

use rekindle_core::record::{WaitCloseReason, WaitClosed, WaitKind, WaitOpened};
use rekindle_core::{Hash, Json, Record, Result, Timestamp, WaitId, WaitState};

use crate::tool::Schema;

pub use decide::Verdict;
pub(crate) use decide::{check_answer, is_due, shown_digest, verdict};

/// What to wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitSpec {
    /// What kind of wait it is.
    pub kind: WaitKind,
    /// What to show a person, or the signal's name.
    pub prompt: String,
    /// JSON Schema of the answer; for an approval, of the arguments.
    pub schema: Option<Json>,
    /// What is shown beside the prompt: for an approval, exactly what is approved.
    pub arguments: Option<Json>,
    /// How many must agree to an approval.
    pub approvals: u32,
    /// When to remind, after it was opened.
    pub remind_after: Option<Duration>,
    /// When it ends by itself, after it was opened.
    pub expires_after: Option<Duration>,
    /// What counts as the answer then.
    pub default: Option<Json>,
}

impl WaitSpec {
    fn new(kind: WaitKind, prompt: impl Into<String>) -> Self {
        Self {
            kind,
            prompt: prompt.into(),
            schema: None,
            arguments: None,
            approvals: 1,
            remind_after: None,
            expires_after: None,
            default: None,
        }
    }

    /// A question to a person. Any answer will do unless a schema is given.
    pub fn question(prompt: impl Into<String>) -> Self {
        Self::new(WaitKind::Question, prompt)
    }

    /// A yes or no to exactly these arguments.
    pub fn approval(prompt: impl Into<String>, arguments: Json) -> Self {
        Self { arguments: Some(arguments), ..Self::new(WaitKind::Approval, prompt) }
    }

    /// A signal from outside.
    pub fn signal(name: impl Into<String>) -> Self {
        Self::new(WaitKind::Signal, name)
    }

    /// A time from now.
    pub fn timer(after: Duration) -> Self {
        Self { expires_after: Some(after), default: Some(Json::null()), ..Self::new(WaitKind::Timer, "") }
    }

    /// JSON Schema of the answer.
    #[must_use]
    pub fn with_schema(mut self, schema: Json) -> Self {
        self.schema = Some(schema);
        self
    }

    /// When it ends by itself, and what counts as the answer then.
    #[must_use]
    pub fn expiring(mut self, after: Duration, default: Option<Json>) -> Self {
        self.expires_after = Some(after);
        self.default = default;
        self
    }

    /// When to remind.
    #[must_use]
    pub fn reminding(mut self, after: Duration) -> Self {
        self.remind_after = Some(after);
        self
    }

    /// How many must agree.
    #[must_use]
    pub fn with_approvals(mut self, approvals: u32) -> Self {
        self.approvals = approvals.max(1);
        self
    }

    /// The record that opens it now.
    pub(crate) fn open(&self, wait: WaitId, now: Timestamp) -> Result<WaitOpened> {
        self.schema.as_ref().map(Schema::new).transpose()?;
        Ok(WaitOpened {
            prompt: self.prompt.clone(),
            digest: self.arguments.as_ref().map(digest).transpose()?,
            arguments: self.arguments.clone(),
            schema: self.schema.clone(),
            approvals: self.approvals.max(1),
            remind_at: self.remind_after.map(|after| now.plus(after)),
            expires_at: self.expires_after.map(|after| now.plus(after)),
            default: self.default.clone(),
            ..WaitOpened::new(wait, self.kind)
        })
    }
}

/// The record that ends a wait whose answer nobody needs any more.
pub(crate) fn cancelled(wait: &WaitState) -> Record {
    WaitClosed::new(wait.opened.wait.clone(), WaitCloseReason::Cancelled, None).into()
}

/// The digest of arguments: of their canonical JSON, so that neither spaces nor the order of keys
/// matter.
///
/// ```
/// use rekindle::Json;
/// let digest = |text| rekindle::wait::digest(&Json::parse(text).unwrap()).unwrap();
/// assert_eq!(digest(r#"{"a": 1, "b": 2}"#), digest(r#"{"b":2,"a":1.0}"#));
/// assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":2}"#));
/// ```
pub fn digest(arguments: &Json) -> Result<Hash> {
    let value = arguments.to_value()?;
    let canonical = serde_json_canonicalizer::to_vec(&value)
        .map_err(|error| rekindle_core::Error::invalid("the arguments have no canonical form").because(error))?;
    Ok(Hash::of(&canonical))
}
