//! Models behind the chat completions of OpenAI, which many servers speak.

mod answer;
mod builder;
mod calls;
mod request;

use async_trait::async_trait;
use rekindle::message::Message;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};

use crate::files::Files;
use crate::http::{Connection, read_answer};
use crate::price::Price;
use answer::Assembled;
pub use builder::OpenAiBuilder;
use request::Body;

/// A model behind OpenAI-compatible chat completions: OpenAI, Azure OpenAI, Ollama, vLLM, llama.cpp,
/// OpenRouter and many more.
///
/// ```
/// use rekindle::Secret;
/// use rekindle_models::{ApiKey, OpenAiModel, Price};
///
/// let key = ApiKey::new(Secret::new("sk-123")).labelled("@env:OPENAI_API_KEY");
/// let model = OpenAiModel::builder("gpt-5").api_key(key).price(Price::per_million(1.25, 10.0)).build()?;
///
/// let local = OpenAiModel::builder("llama3.2").base_url("http://localhost:11434/v1").build()?;
/// # Ok::<(), rekindle::Error>(())
/// ```
///
/// # What it does
/// * It asks once; asking again after a passing failure is up to the engine.
/// * Late results of tools are sent where the server expects them, and a conversation that begins
///   with an answer of the model gets a short message of a user ahead of it.
/// * It streams unless told otherwise. A server that answers whole all the same is understood.
/// * `reasoning_content` or `reasoning` of an answer is kept as reasoning, and a refusal as text.
/// * Calls of tools have ids that no other call of the conversation has, whatever the server sends.
/// * Usage is what the server tells: nothing, if it tells none. A server that does not take the
///   question for it gets `.extra("stream_options", ())`.
#[derive(Clone, Debug)]
pub struct OpenAiModel {
    connection: Connection,
    body: Body,
    price: Option<Price>,
    files: Files,
}

impl OpenAiModel {
    /// A model of that name at `https://api.openai.com/v1`.
    pub fn builder(name: impl Into<String>) -> OpenAiBuilder {
        OpenAiBuilder::new(name.into())
    }

    /// Asks the server for its models: says in a sentence that it answers, takes the key and knows
    /// the model, or what is wrong.
    pub async fn check(&self) -> Result<String, ModelError> {
        let base = self.connection.base();
        // The list of Azure stands above its deployments.
        let base = base.split_once("/deployments/").map_or(base, |(base, _)| base);
        self.connection.check(base, "/models", &self.body.model).await
    }

    async fn ask(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        let messages = crate::request::messages(request, &self.files).await?;
        let body = self.body.of(&messages, &request.tools)?;
        let response = self.connection.post("/chat/completions", request, &body).await?;
        let mut assembled = Assembled::default();
        read_answer(&self.connection, response, &mut assembled, deltas).await?;
        let used = messages.iter().flat_map(Message::calls).map(|call| call.id.clone()).collect();
        assembled.into_answer(&request.idempotency_key, used, self.price)
    }
}

#[async_trait]
impl Model for OpenAiModel {
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
