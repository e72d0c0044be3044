//! Building an Anthropic model.

use rekindle::{Error, Result};
use serde_json::{Map, Value};

use super::AnthropicModel;
use super::request::Body;
use crate::files::Files;
use crate::http::{Settings, shared_setters};
use crate::price::Price;

/// The version of the API this speaks.
const VERSION: &str = "2023-06-01";

/// The least tokens the API lets a model think.
const MIN_THINKING: u32 = 1024;

/// Builds an [`AnthropicModel`].
///
/// ```
/// use rekindle::Secret;
/// use rekindle_models::AnthropicModel;
///
/// let model = AnthropicModel::builder("claude-haiku-4-5")
///     .api_key(Secret::new("sk-ant-123"))
///     .header("anthropic-beta", "files-api-2025-04-14")
///     .build()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnthropicBuilder {
    settings: Settings,
    body: Body,
    extra: Map<String, Value>,
    price: Option<Price>,
    files: Files,
}

impl AnthropicBuilder {
    pub(super) fn new(model: String) -> Self {
        let mut settings = Settings::new("https://api.anthropic.com");
        settings.standing.push(("anthropic-version", VERSION));
        let body = Body { model, stream: true, max_tokens: 8192, ..Body::default() };
        Self { settings, body, extra: Map::new(), price: None, files: Files::default() }
    }

    shared_setters!();

    /// How freely it chooses its words. Not together with thinking.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.body.temperature = Some(temperature);
        self
    }

    /// The most tokens of an answer, thinking included: 8192 unless set.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.body.max_tokens = tokens;
        self
    }

    /// Lets it think, with so many tokens: at least 1024, and fewer than an answer may have.
    #[must_use]
    pub fn thinking_budget(mut self, tokens: u32) -> Self {
        self.body.thinking = Some(tokens);
        self
    }

    /// Whether answers are streamed: yes unless set.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.body.stream = streaming;
        self
    }

    /// The model, unless a setting cannot be used.
    pub fn build(self) -> Result<AnthropicModel> {
        let body = Body { extra: self.extra, ..self.body };
        if body.model.is_empty() {
            return Err(Error::invalid("the model has no name"));
        }
        if body.thinking.is_some_and(|tokens| tokens < MIN_THINKING || tokens >= body.max_tokens) {
            let message = format!("the tokens for thinking must be from {MIN_THINKING} to under {}", body.max_tokens);
            return Err(Error::invalid(message).hint("raise the most tokens of an answer with `max_output_tokens`"));
        }
        if body.thinking.is_some() && body.temperature.is_some() {
            return Err(Error::invalid("a model that thinks takes no temperature"));
        }
        let connection = self.settings.connect("x-api-key", "")?;
        let price = self.price.map(Price::checked).transpose()?;
        Ok(AnthropicModel { connection, body, price, files: self.files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(builder: AnthropicBuilder, expected: Option<&str>) {
        let error = builder.build().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let builder = || AnthropicModel::builder("m");
        check(builder(), None);
        check(builder().thinking_budget(1024), None);
        let range = "the tokens for thinking must be from 1024 to under 8192";
        check(builder().thinking_budget(1023), Some(range));
        check(builder().thinking_budget(8192), Some(range));
        check(builder().thinking_budget(2000).temperature(0.1), Some("a model that thinks takes no temperature"));
        check(builder().price(Price::per_million(-1.0, 0.0)), Some("-1 is not a price"));
        check(AnthropicModel::builder(""), Some("the model has no name"));
    }
}
