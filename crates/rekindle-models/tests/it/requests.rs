//! What goes over the wire to a provider.

use rekindle::message::{Message, Part, Reference, Role, ToolCall, ToolResult};
use rekindle::model::{ModelCapabilities, ModelRequest};
use rekindle::{Json, Secret};
use rekindle_models::OpenAiModel;
use serde_json::json;

use crate::asking::{KEY, Provider, anthropic, ask, hello, model_at, openai, request, tool};
use crate::server::{Reply, Seen, Server};

/// Asks and returns what the server saw.
async fn sent(provider: Provider, request: &ModelRequest) -> Seen {
    let server = Server::start([Reply::sse(provider.stream())]).await;
    ask(&*model_at!(provider, &server.url), request).await.0.unwrap();
    server.only()
}

#[tokio::test]
async fn openai_gets_what_it_wants() {
    let seen = sent(Provider::OpenAi, &ModelRequest { tools: [tool("weather")].into(), ..hello() }).await;
    assert_eq!(seen.line, "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("idempotency-key"), Some("key-1"));
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function = json!({"name": "weather", "description": "Looks it up.", "parameters": parameters});
    let golden = json!({
        "model": "gpt-5",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": function}],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(seen.body, golden);
}

#[tokio::test]
async fn anthropic_gets_what_it_wants() {
    let seen = sent(Provider::Anthropic, &ModelRequest { tools: [tool("weather")].into(), ..hello() }).await;
    assert_eq!(seen.line, "POST /v1/messages");
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let golden = json!({
        "model": "claude",
        "max_tokens": 8192,
        "system": "be brief",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"name": "weather", "description": "Looks it up.", "input_schema": schema}],
        "stream": true,
    });
    assert_eq!(seen.body, golden);
}

#[tokio::test]
async fn azure_gets_its_key_and_version() {
    let server = Server::start([Reply::sse(Provider::OpenAi.stream()), Reply::json(200, &json!({"data": []}))]).await;
    let base = format!("{}/openai/deployments/mine", server.url);
    let builder = OpenAiModel::builder("gpt-5").base_url(base).azure("2024-10-21").api_key(Secret::new(KEY));
    let model = builder.build().unwrap();
    ask(&model, &hello()).await.0.unwrap();
    model.check().await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].line, "POST /openai/deployments/mine/chat/completions?api-version=2024-10-21");
    assert_eq!((seen[0].header("api-key"), seen[0].header("authorization")), (Some(KEY), None));
    assert_eq!(seen[1].line, "GET /openai/models?api-version=2024-10-21");
}

#[tokio::test]
async fn settings_are_sent() {
    let server = Server::start([Reply::sse(Provider::OpenAi.stream()), Reply::sse(Provider::Anthropic.stream())]).await;
    // A base URL may end with a slash.
    let model = openai(&server.url)
        .base_url(format!("{}/v1/", server.url))
        .header("x-title", "test")
        .temperature(0.5)
        .max_tokens(50)
        .extra("seed", 7)
        .extra("stream_options", json!(null));
    ask(&model.build().unwrap(), &hello()).await.0.unwrap();
    let model = anthropic(&server.url)
        .base_url(format!("{}/v1", server.url))
        .header("anthropic-beta", "new")
        .max_output_tokens(3000)
        .thinking_budget(2000);
    ask(&model.build().unwrap(), &hello()).await.0.unwrap();
    let [first, second] = server.seen().try_into().unwrap();
    assert_eq!((first.line.as_str(), first.header("x-title")), ("POST /v1/chat/completions", Some("test")));
    let body = &first.body;
    assert_eq!((&body["temperature"], &body["max_tokens"], &body["seed"]), (&json!(0.5), &json!(50), &json!(7)));
    assert_eq!(body.get("stream_options"), None);
    assert_eq!((second.line.as_str(), second.header("anthropic-beta")), ("POST /v1/messages", Some("new")));
    assert_eq!(second.body["thinking"], json!({"type": "enabled", "budget_tokens": 2000}));
}

#[tokio::test]
async fn no_key_means_no_header() {
    let server = Server::start([Reply::sse(Provider::OpenAi.stream()), Reply::json(401, &json!({}))]).await;
    let model = OpenAiModel::builder("llama").base_url(&server.url).build().unwrap();
    ask(&model, &hello()).await.0.unwrap();
    assert_eq!(server.only().header("authorization"), None);
    let error = ask(&model, &hello()).await.0.unwrap_err();
    assert!(error.message.contains("refused a request without a key"), "{error}");
}

#[tokio::test]
async fn late_results_and_a_cut_beginning_are_put_in_order() {
    let call = ToolCall::new("c1", "weather", Json::from(json!({"city": "Oslo"})));
    let conversation = [
        Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]),
        Message::user("and?"),
        Message::tool(ToolResult::new(&call, Json::from("snow"))),
    ];
    let roles = |seen: &Seen| -> Vec<String> {
        seen.body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap().to_owned()).collect()
    };
    let seen = sent(Provider::OpenAi, &request(&conversation)).await;
    assert_eq!(roles(&seen), ["system", "user", "assistant", "tool", "user"]);
    let seen = sent(Provider::Anthropic, &request(&conversation)).await;
    assert_eq!(roles(&seen), ["user", "assistant", "user"]);
    assert_eq!(seen.body["messages"][2]["content"][0]["type"], "tool_result");
}

#[tokio::test]
async fn images_are_sent_as_references_or_read() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("a.png"), b"png").unwrap();
    let image = |uri: &str| Part::Image(Reference { uri: uri.into(), media_type: None });
    let shown = Message::new(Role::User, vec![image("https://x/a.png"), image("file:a.png")]);
    for provider in Provider::BOTH {
        let server = Server::start([Reply::sse(provider.stream())]).await;
        let model = model_at!(provider, &server.url, allow_files_under(place.path()));
        ask(&*model, &request(std::slice::from_ref(&shown))).await.0.unwrap();
        let content = match provider {
            Provider::OpenAi => server.only().body["messages"][1]["content"].clone(),
            Provider::Anthropic => server.only().body["messages"][0]["content"].clone(),
        };
        let golden = match provider {
            Provider::OpenAi => json!([
                {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            ]),
            Provider::Anthropic => json!([
                {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
            ]),
        };
        assert_eq!(content, golden);
        let error =
            ask(&*model_at!(provider, &server.url), &request(std::slice::from_ref(&shown))).await.0.unwrap_err();
        assert!(!error.retry && error.message.contains("may read no files"), "{error}");
    }
}

#[test]
fn a_model_says_what_it_is() {
    for provider in Provider::BOTH {
        let model = model_at!(provider, "http://localhost");
        assert!(["gpt-5", "claude"].contains(&model.name()));
        assert_eq!(model.capabilities(), ModelCapabilities::default());
    }
    let builder = openai("http://localhost").header("x-secret", "hidden-value");
    assert!(!format!("{builder:?}").contains("hidden-value") && !format!("{builder:?}").contains(KEY));
    let error = openai("http://localhost").base_url("localhost:11434").build().unwrap_err();
    assert!(error.to_string().contains("its scheme is `localhost`, not http or https"), "{error}");
}
