//! What a scripted model remembers of a request.

use rekindle::model::{ModelError, ModelRequest};

use super::request;

/// What a scripted model was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// Which try it was, from 1.
    pub attempt: u32,
    /// How many messages were sent.
    pub messages: usize,
    /// The last message: its text and the results of tools in it.
    pub last: String,
    /// The names of the tools.
    pub tools: Vec<String>,
    /// The provider's id of the last answer.
    pub previous: Option<String>,
    /// What was said before the answer was cut off.
    pub partial: Option<String>,
    /// The same for every try at one answer.
    pub idempotency_key: String,
    /// Whether it was answered; false for a failure, a cancelled request and one under way.
    pub answered: bool,
}

impl Asked {
    pub(crate) fn of(request: &ModelRequest) -> Result<Self, ModelError> {
        Ok(Self {
            attempt: request.attempt,
            messages: request.view.len(),
            last: request::last_text(&request.view)?,
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            previous: request.previous.clone(),
            partial: request.partial.clone(),
            idempotency_key: request.idempotency_key.clone(),
            answered: false,
        })
    }
}
