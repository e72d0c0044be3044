//! What a model is to the engine: something that answers a view of a conversation, whole or
//! streaming. Providers live in other crates; this is the contract they keep.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_core::Json;
use rekindle_core::record::Usage;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::message::{Message, Part, Role, ToolCall};
use crate::reduction::View;
use crate::secret::Secret;
use crate::tool::ToolSpec;

/// A model.
///
/// [`convert`](crate::message::convert) turns messages into the shapes of providers and back.
///
/// ```
/// use rekindle::async_trait;
/// use rekindle::message::convert::to_openai;
/// use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
///
/// #[derive(Debug)]
/// struct Parrot;
///
/// #[async_trait]
/// impl Model for Parrot {
///     fn name(&self) -> &str { "parrot" }
///
///     fn capabilities(&self) -> ModelCapabilities { ModelCapabilities::default() }
///
///     async fn answer(&self, request: &ModelRequest, _: &Deltas) -> Result<Answer, ModelError> {
///         let messages = request.view.messages().collect::<rekindle::Result<Vec<_>>>()?;
///         let _body = to_openai(&messages); // what a provider would be sent
///         Ok(Answer::text(messages.last().map(|message| message.text()).unwrap_or_default()))
///     }
/// }
/// ```
///
/// # Contract
/// * An answer is returned whole or not at all: a stream that was cut is an error.
/// * Everything streamed through [`Deltas`] is part of the answer, in order.
/// * Calling it again is safe: the engine records an answer before it acts on it, and asks again
///   only if it has none.
/// * It stops soon after the request's `cancel` token fires; if it does not, it is dropped.
#[async_trait]
pub trait Model: fmt::Debug + Send + Sync + 'static {
    /// Its name, e.g. `gpt-5`. Part of an agent's fingerprint.
    fn name(&self) -> &str;

    /// What it can do beyond answering.
    fn capabilities(&self) -> ModelCapabilities;

    /// The secrets it uses, named: its key. They are masked in whatever is stored and said, also if it says them
    /// itself.
    fn secrets(&self) -> Vec<(String, Secret)> {
        Vec::new()
    }

    /// Answers.
    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError>;
}

/// What a model can do beyond answering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCapabilities {
    /// The provider keeps the conversation: it is sent only what it lacks, with the id of its
    /// last answer in [`ModelRequest::previous`].
    pub keeps_history: bool,
    /// It can go on from a cut-off answer given in [`ModelRequest::partial`].
    pub continues_partial: bool,
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// What the author of the agent says.
    pub system: Option<Arc<str>>,
    /// The conversation, as much of it as is sent.
    pub view: View,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
    /// The provider's id of its last answer, if it keeps the conversation.
    pub previous: Option<String>,
    /// What it had said when it was cut off, if it can go on from there. Its answer is what
    /// follows.
    pub partial: Option<String>,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// The same for every try at this answer.
    pub idempotency_key: String,
    /// Fires when the answer is no longer wanted.
    pub cancel: CancellationToken,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It was done, or wants tools called.
    #[default]
    End,
    /// It reached its limit of tokens.
    Length,
    /// A filter stopped it.
    Filtered,
}

/// What a model answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// What it said.
    pub parts: Vec<Part>,
    /// What it used.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: StopReason,
    /// The provider's id of this answer.
    pub response: Option<String>,
}

impl Answer {
    /// An answer of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())], ..Self::default() }
    }

    /// An answer that calls a tool.
    pub fn call(id: impl Into<String>, tool: impl Into<String>, arguments: Json) -> Self {
        Self { parts: vec![Part::ToolCall(ToolCall::new(id, tool, arguments))], ..Self::default() }
    }

    /// The message that goes into the log.
    pub(crate) fn into_message(self) -> Message {
        Message { response: self.response, ..Message::new(Role::Assistant, self.parts) }
    }
}

/// A piece of an answer under way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// More text.
    Text(String),
    /// More thought.
    Reasoning(String),
}

/// Takes the pieces of an answer while it is made.
#[derive(Clone, Debug)]
pub struct Deltas(mpsc::Sender<Delta>);

impl Deltas {
    /// A channel for pieces; whoever holds the other end sees them as they come.
    pub fn channel() -> (Self, mpsc::Receiver<Delta>) {
        let (sender, receiver) = mpsc::channel(64);
        (Self(sender), receiver)
    }

    /// More text.
    pub async fn text(&self, text: impl Into<String>) {
        // Nobody listens any more: the answer itself still counts.
        let _ = self.0.send(Delta::Text(text.into())).await;
    }

    /// More thought.
    pub async fn reasoning(&self, text: impl Into<String>) {
        let _ = self.0.send(Delta::Reasoning(text.into())).await;
    }
}

/// Why a model gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// What happened.
    pub message: String,
    /// Whether asking again may help.
    pub retry: bool,
    /// How long the provider wants to be left alone first.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// Asking again gives the same: a bad request, a bad key.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: false, retry_after: None }
    }

    /// Asking again may help: overload, a cut stream.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: true, retry_after: None }
    }

    /// The same, but not before `after`.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ModelError {}

impl From<rekindle_core::Error> for ModelError {
    /// Something in the request or the answer is not what it should be: asking again gives the same.
    fn from(error: rekindle_core::Error) -> Self {
        Self::fatal(error.to_string())
    }
}
