//! Building an OpenAI-compatible model.

use rekindle::{Error, Result};
use serde_json::{Map, Value};

use super::OpenAiModel;
use super::request::{Body, Limit};
use crate::files::Files;
use crate::http::{Settings, shared_setters};
use crate::price::Price;

/// Builds an [`OpenAiModel`].
///
/// ```
/// use rekindle::Secret;
/// use rekindle_models::OpenAiModel;
///
/// let azure = OpenAiModel::builder("gpt-5")
///     .base_url("https://example.openai.azure.com/openai/deployments/gpt-5")
///     .azure("2024-10-21")
///     .api_key(Secret::new("123"))
///     .reasoning_effort("low")
///     .extra("seed", 7)
///     .build()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenAiBuilder {
    settings: Settings,
    key_header: Option<String>,
    body: Body,
    extra: Map<String, Value>,
    price: Option<Price>,
    files: Files,
}

impl OpenAiBuilder {
    pub(super) fn new(model: String) -> Self {
        Self {
            settings: Settings::new("https://api.openai.com/v1"),
            key_header: None,
            body: Body { model, stream: true, ..Body::default() },
            extra: Map::new(),
            price: None,
            files: Files::default(),
        }
    }

    shared_setters!();

    /// Sends the key alone in that header, rather than in `Authorization` behind `Bearer`.
    #[must_use]
    pub fn key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = Some(name.into());
        self
    }

    /// As Azure OpenAI wants it: the key in the header `api-key`, and the version of the API in the
    /// query. The base URL ends with `/openai/deployments/<deployment>`.
    #[must_use]
    pub fn azure(self, api_version: impl Into<String>) -> Self {
        self.key_header("api-key").query("api-version", api_version)
    }

    /// How freely it chooses its words.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.body.temperature = Some(temperature);
        self
    }

    /// The most tokens of an answer, sent as `max_completion_tokens`.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.body.limit = Some(Limit { field: "max_completion_tokens", tokens });
        self
    }

    /// The same, sent as `max_tokens`: for servers that know only the older name.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.body.limit = Some(Limit { field: "max_tokens", tokens });
        self
    }

    /// How much it thinks, e.g. `low`.
    #[must_use]
    pub fn reasoning_effort(mut self, effort: impl Into<String>) -> Self {
        self.body.reasoning_effort = Some(effort.into());
        self
    }

    /// Sends what it thought back with its earlier answers, in that field: for servers that want it,
    /// e.g. in `reasoning_content`.
    #[must_use]
    pub fn send_reasoning_as(mut self, field: impl Into<String>) -> Self {
        self.body.reasoning_field = Some(field.into());
        self
    }

    /// Whether answers are streamed: yes unless set.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.body.stream = streaming;
        self
    }

    /// The model, unless a setting cannot be used.
    pub fn build(self) -> Result<OpenAiModel> {
        if self.body.model.is_empty() {
            return Err(Error::invalid("the model has no name"));
        }
        let connection = match &self.key_header {
            None => self.settings.connect("authorization", "Bearer "),
            Some(header) => self.settings.connect(header, ""),
        }?;
        let price = self.price.map(Price::checked).transpose()?;
        Ok(OpenAiModel { connection, body: Body { extra: self.extra, ..self.body }, price, files: self.files })
    }
}
