//! The models against aimock, a server of others that plays both providers.

use std::time::Duration;

use rekindle::message::{Message, Part, Role, ToolResult};
use rekindle::model::{Delta, ModelRequest, StopReason};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Retries, tool};
use rekindle::{Agent, Engine, Json};
use serde_json::{Value, json};

use crate::aimock::AimockServer;
use crate::asking::{self, Provider, anthropic, ask, fails, heard, hello, model_at, openai, request, text_of};

fn fixtures() -> Value {
    let weather = |city: &str| json!({"name": "weather", "arguments": {"city": city}});
    json!([
        {
            "match": {"userMessage": "think"},
            "response": {"content": "42, of course", "reasoning": "six by nine", "reasoningSignature": "signed"},
        },
        {
            "match": {"userMessage": "weather", "hasToolResult": false},
            "response": {"content": "one moment", "toolCalls": [weather("Oslo"), weather("Rome")]},
        },
        {
            "match": {"userMessage": "weather", "hasToolResult": true},
            "response": {"content": "Oslo has snow, Rome has sun."},
        },
        {"match": {"userMessage": "long"}, "response": {"content": "on and on", "finishReason": "length"}},
        {"match": {"userMessage": "cut"}, "truncateAfterChunks": 3, "response": {"content": "this is never said whole"}},
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "hello there, grüße! 🦀", "usage": {
                "prompt_tokens": 9, "completion_tokens": 4, "input_tokens": 9, "output_tokens": 4,
            }},
        },
    ])
}

#[tokio::test]
async fn answers_are_streamed() {
    let Some(server) = AimockServer::start(&fixtures()) else { return };
    for provider in Provider::BOTH {
        let model = model_at!(provider, &server.url());
        let (answer, pieces) = ask(&*model, &hello()).await;
        let answer = answer.unwrap();
        assert_eq!(text_of(&answer), "hello there, grüße! 🦀");
        assert_eq!(heard(&pieces), text_of(&answer));
        assert!(pieces.len() > 3, "{pieces:?}");
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (9, 4), "{provider:?}");
        assert!(answer.response.is_some());
        let (answer, _) = ask(&*model, &request(&[Message::user("a long story")])).await;
        assert_eq!(answer.unwrap().stop, StopReason::Length);
        let whole = model_at!(provider, &server.url(), streaming(false));
        assert_eq!(text_of(&ask(&*whole, &hello()).await.0.unwrap()), "hello there, grüße! 🦀");
    }
    let journal = server.journal();
    let first = |path: &str| journal.iter().find(|entry| entry["path"] == path).unwrap()["body"].clone();
    assert_eq!(first("/v1/chat/completions")["messages"][0], json!({"role": "system", "content": "be brief"}));
    assert_eq!(first("/v1/messages")["model"], "claude");
}

#[tokio::test]
async fn thoughts_are_kept() {
    let Some(server) = AimockServer::start(&fixtures()) else { return };
    for provider in Provider::BOTH {
        let question = [Message::user("think")];
        let (answer, pieces) = ask(&*model_at!(provider, &server.url()), &request(&question)).await;
        let answer = answer.unwrap();
        let Part::Reasoning(thought) = &answer.parts[0] else { panic!("{answer:?}") };
        assert_eq!(thought.text, "six by nine");
        assert_eq!(thought.signature.is_some(), matches!(provider, Provider::Anthropic));
        let thoughts = pieces.iter().map(|piece| if let Delta::Reasoning(text) = piece { text } else { "" });
        assert_eq!(thoughts.collect::<String>(), "six by nine");
        assert_eq!(text_of(&answer), "42, of course");
    }
}

#[tokio::test]
async fn tools_are_called_in_parallel() {
    let Some(server) = AimockServer::start(&fixtures()) else { return };
    for provider in Provider::BOTH {
        let model = model_at!(provider, &server.url());
        let mut conversation = vec![Message::user("what is the weather?")];
        let asked = |conversation: &[Message]| ModelRequest {
            tools: [asking::tool("weather")].into(),
            ..request(conversation)
        };
        let answer = ask(&*model, &asked(&conversation)).await.0.unwrap();
        let answer = Message::new(Role::Assistant, answer.parts);
        let calls: Vec<_> = answer.calls().cloned().collect();
        let cities: Vec<_> = calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(cities, [r#"{"city":"Oslo"}"#, r#"{"city":"Rome"}"#]);
        assert_ne!(calls[0].id, calls[1].id);
        conversation.push(answer);
        conversation.extend(calls.iter().map(|call| Message::tool(ToolResult::new(call, Json::from("mild")))));
        let (answer, _) = ask(&*model, &asked(&conversation)).await;
        assert_eq!(text_of(&answer.unwrap()), "Oslo has snow, Rome has sun.");
    }
}

#[tokio::test]
async fn faults_pass() {
    let Some(server) = AimockServer::start(&fixtures()) else { return };
    for provider in Provider::BOTH {
        let model = model_at!(provider, &server.url());
        for status in [429, 500, 529] {
            server.fail_next(status, "not now");
            let error = fails(&*model).await;
            assert!(error.retry && error.message.contains("not now"), "{error}");
            assert_eq!(error.retry_after.is_some(), status == 429);
        }
        let faults = ["dropRate", "malformedRate", "disconnectRate", "rateLimitRate"];
        for fault in faults {
            server.set_chaos(&json!({fault: 1}));
            let error = fails(&*model).await;
            assert!(error.retry, "{fault}: {error}");
        }
        server.set_chaos(&json!({}));
        let error = ask(&*model, &request(&[Message::user("cut")])).await.0.unwrap_err();
        assert!(error.retry, "{error}");
        assert_eq!(text_of(&ask(&*model, &hello()).await.0.unwrap()), "hello there, grüße! 🦀");
    }
}

#[tokio::test]
async fn what_is_unknown_lasts() {
    let Some(server) = AimockServer::start(&fixtures()) else { return };
    server.fail_next(401, "no such key");
    let error = fails(&openai(&server.url()).build().unwrap()).await;
    assert!(!error.retry && error.message.contains("refused the key @env:TEST_KEY"), "{error}");
    server.fail_next(400, "no such field");
    let error = fails(&anthropic(&server.url()).build().unwrap()).await;
    assert!(!error.retry && error.message.ends_with("no such field"), "{error}");
    let said = openai(&server.url()).build().unwrap().check().await.unwrap();
    assert!(said.contains("`gpt-5` is not one of the"), "{said}");
}

#[derive(serde::Deserialize, JsonSchema)]
struct City {
    city: String,
}

/// What an agent meets: a limit, a stream that is cut, and a server that is busy.
fn adversities() -> Value {
    let limited =
        json!({"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 0});
    let mut all = json!([
        {"match": {"userMessage": "weather", "hasToolResult": false, "sequenceIndex": 0}, "response": limited},
        {
            "match": {"userMessage": "weather", "hasToolResult": true, "sequenceIndex": 0},
            "truncateAfterChunks": 3,
            "response": {"content": "Oslo has snow, and then"},
        },
    ]);
    all.as_array_mut().unwrap().extend(fixtures().as_array().unwrap().clone());
    all
}

#[tokio::test]
async fn an_agent_runs_through_faults() {
    for provider in Provider::BOTH {
        let Some(server) = AimockServer::start(&adversities()) else { return };
        let weather =
            tool("weather", "The weather in a city.", async |_, city: City| Ok(format!("{}: mild", city.city)));
        // What the engine waited for, the test would wait for.
        let retries = Retries { attempts: 3, first_pause: Duration::ZERO, longest_pause: Duration::ZERO };
        let agent = Agent::builder("guide", Shared(model_at!(provider, &server.url())))
            .system("be brief")
            .tool(weather)
            .model_retries(retries)
            .build()
            .unwrap();
        server.fail_next(503, "busy");
        let session = Engine::memory().unwrap().create("trip").await.unwrap();
        let report = agent.run_once("what is the weather?", &session).await.unwrap();
        assert_eq!(report.text(), "Oslo has snow, Rome has sun.");
        let journal = server.journal();
        let statuses: Vec<_> = journal.iter().map(|entry| entry["response"]["status"].as_u64().unwrap()).collect();
        assert_eq!(statuses, [503, 429, 200, 200, 200]);
        let last = journal[4]["body"].to_string();
        assert!(last.contains("Oslo: mild") && last.contains("Rome: mild"), "{last}");
        // The same for every try at an answer.
        let keys: Vec<_> = journal.iter().map(|entry| entry["headers"]["idempotency-key"].clone()).collect();
        assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3] && keys[3] == keys[4], "{keys:?}");
    }
}

/// A model behind a pointer.
#[derive(Debug)]
struct Shared(std::sync::Arc<dyn rekindle::model::Model>);

#[rekindle::async_trait]
impl rekindle::model::Model for Shared {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> rekindle::model::ModelCapabilities {
        self.0.capabilities()
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        deltas: &rekindle::model::Deltas,
    ) -> Result<rekindle::model::Answer, rekindle::model::ModelError> {
        self.0.answer(request, deltas).await
    }
}
