//! Models behind the Messages API of Anthropic.

mod answer;
mod block;
mod builder;
mod request;

use async_trait::async_trait;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};

use crate::files::Files;
use crate::http::{Connection, read_answer};
use crate::price::Price;
use answer::Assembled;
pub use builder::AnthropicBuilder;
use request::Body;

/// A model behind the Messages API of Anthropic.
///
/// ```
/// use rekindle::Secret;
/// use rekindle_models::{AnthropicModel, ApiKey, Price};
///
/// let key = ApiKey::new(Secret::new("sk-ant-123")).labelled("@env:ANTHROPIC_API_KEY");
/// let model = AnthropicModel::builder("claude-sonnet-4-5")
///     .api_key(key)
///     .max_output_tokens(16_000)
///     .thinking_budget(4_000)
///     .price(Price::per_million(3.0, 15.0).cached_input(0.3).cache_write(3.75))
///     .build()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
///
/// # What it does
/// * It asks once; asking again after a passing failure is up to the engine.
/// * Messages are put into the order the API wants: results of tools right behind their calls, turns
///   of users and model by turns, a user first and last.
/// * Thinking is kept with its signature and sent back; what is redacted or otherwise unknown here is
///   kept as it came and sent back too.
/// * Tokens from and for the provider's cache count as input; [`Price`] tells them apart.
/// * The prompt is cached if asked for: `.extra("cache_control", json!({"type": "ephemeral"}))`.
#[derive(Clone, Debug)]
pub struct AnthropicModel {
    connection: Connection,
    body: Body,
    price: Option<Price>,
    files: Files,
}

impl AnthropicModel {
    /// A model of that name at `https://api.anthropic.com`.
    pub fn builder(name: impl Into<String>) -> AnthropicBuilder {
        AnthropicBuilder::new(name.into())
    }

    /// Asks the server for its models: says in a sentence that it answers, takes the key and knows
    /// the model, or what is wrong.
    pub async fn check(&self) -> Result<String, ModelError> {
        self.connection.check(self.connection.base(), &self.path("/models?limit=1000"), &self.body.model).await
    }

    /// A path below the base URL, which people write with the version and without it.
    fn path(&self, rest: &str) -> String {
        if self.connection.base().ends_with("/v1") { rest.to_owned() } else { format!("/v1{rest}") }
    }

    async fn ask(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        let messages = crate::request::messages(request, &self.files).await?;
        let body = self.body.of(messages, &request.tools)?;
        let response = self.connection.post(&self.path("/messages"), request, &body).await?;
        let mut assembled = Assembled::default();
        read_answer(&self.connection, response, &mut assembled, deltas).await?;
        Ok(assembled.into_answer(self.price))
    }
}

#[async_trait]
impl Model for AnthropicModel {
    fn name(&self) -> &str {
        &self.body.model
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    fn secrets(&self) -> Vec<(String, rekindle::Secret)> {
        self.connection.secrets()
    }

    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => Err(ModelError::passing("the request was cancelled")),
            answer = self.ask(request, deltas) => answer,
        }
    }
}
