//! Requests to models, and what comes of them.

use rekindle::message::{Message, Part};
use rekindle::model::{Answer, Delta, Deltas, Model, ModelError, ModelRequest};
use rekindle::reduction::View;
use rekindle::tool::ToolSpec;
use rekindle::{Json, Secret};
use rekindle_models::{AnthropicBuilder, AnthropicModel, ApiKey, OpenAiBuilder, OpenAiModel};
use serde_json::{Value, json};

/// The key in all tests: it must show up nowhere but in its header.
pub const KEY: &str = "sk-very-secret-0123456789";

pub fn request(messages: &[Message]) -> ModelRequest {
    ModelRequest {
        system: Some("be brief".into()),
        view: View::of(messages.iter().map(|message| message.to_json().unwrap()).collect()),
        tools: [].into(),
        previous: None,
        partial: None,
        attempt: 1,
        idempotency_key: "key-1".to_owned(),
        cancel: Default::default(),
    }
}

pub fn hello() -> ModelRequest {
    request(&[Message::user("hello")])
}

pub fn tool(name: &str) -> ToolSpec {
    let parameters = Json::from(json!({"type": "object", "properties": {"city": {"type": "string"}}}));
    ToolSpec { name: name.into(), description: "Looks it up.".into(), parameters, version: None }
}

pub async fn ask(model: &dyn Model, request: &ModelRequest) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let (deltas, mut pieces) = Deltas::channel();
    let listening = async {
        let mut streamed = Vec::new();
        while let Some(piece) = pieces.recv().await {
            streamed.push(piece);
        }
        streamed
    };
    let asking = async {
        let answer = model.answer(request, &deltas).await;
        drop(deltas);
        answer
    };
    tokio::join!(asking, listening)
}

pub async fn fails(model: &dyn Model) -> ModelError {
    ask(model, &hello()).await.0.unwrap_err()
}

pub fn text_of(answer: &Answer) -> String {
    answer.parts.iter().filter_map(Part::as_text).collect()
}

/// The texts of what was streamed, one after the other.
pub fn heard(pieces: &[Delta]) -> String {
    pieces.iter().map(|piece| if let Delta::Text(text) = piece { text.as_str() } else { "" }).collect()
}

fn key() -> ApiKey {
    ApiKey::new(Secret::new(KEY)).labelled("@env:TEST_KEY")
}

pub fn openai(url: &str) -> OpenAiBuilder {
    OpenAiModel::builder("gpt-5").base_url(format!("{url}/v1")).api_key(key())
}

pub fn anthropic(url: &str) -> AnthropicBuilder {
    AnthropicModel::builder("claude").base_url(url).api_key(key())
}

/// A provider as the tests of faults see it.
#[derive(Clone, Copy, Debug)]
pub enum Provider {
    OpenAi,
    Anthropic,
}

/// Sets the same on either builder.
macro_rules! model_at {
    ($provider:expr, $url:expr $(, $setter:ident($value:expr))*) => {{
        let model: std::sync::Arc<dyn rekindle::model::Model> = match $provider {
            $crate::asking::Provider::OpenAi => {
                std::sync::Arc::new($crate::asking::openai($url)$(.$setter($value))*.build().unwrap())
            }
            $crate::asking::Provider::Anthropic => {
                std::sync::Arc::new($crate::asking::anthropic($url)$(.$setter($value))*.build().unwrap())
            }
        };
        model
    }};
}
pub(crate) use model_at;

impl Provider {
    pub const BOTH: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// A stream that says `grüße 🦀`.
    pub fn stream(self) -> String {
        let events = match self {
            Self::OpenAi => vec![
                json!({"id": "r1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "grü"}}]}),
                json!({"id": "r1", "choices": [{"index": 0, "delta": {"content": "ße 🦀"}, "finish_reason": "stop"}]}),
                json!({"id": "r1", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
            ],
            Self::Anthropic => vec![
                json!({"type": "message_start", "message": {"id": "r1", "usage": {"input_tokens": 5, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "ping"}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "grü"}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ße 🦀"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
                json!({"type": "message_stop"}),
            ],
        };
        let end = if matches!(self, Self::OpenAi) { "data: [DONE]\n\n" } else { "" };
        events.iter().map(sse).collect::<String>() + end
    }

    /// The same as one body.
    pub fn whole(self) -> Value {
        match self {
            Self::OpenAi => json!({
                "id": "r1",
                "choices": [{"message": {"role": "assistant", "content": "grüße 🦀"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2},
            }),
            Self::Anthropic => json!({
                "id": "r1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "grüße 🦀"}],
                "usage": {"input_tokens": 5, "output_tokens": 2},
            }),
        }
    }
}

/// One event.
pub fn sse(data: &Value) -> String {
    let name = data["type"].as_str().map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {data}\n\n")
}
