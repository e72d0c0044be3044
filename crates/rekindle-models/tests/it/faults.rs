//! What can go wrong on the way to a provider and back, for each provider, over real connections.

use std::time::Duration;

use rekindle::core::record::Usage;
use rekindle::model::ModelError;
use serde_json::json;

use crate::asking::{KEY, Provider, anthropic, ask, fails, heard, hello, model_at, openai, sse, text_of};
use crate::server::{Reply, Server};

#[tokio::test]
async fn streams_may_come_in_any_slices() {
    for provider in Provider::BOTH {
        for slice in [1, 2, 3, 5, 17, 1000] {
            let server = Server::start([Reply::sse(provider.stream()).sliced(slice)]).await;
            let (answer, pieces) = ask(&*model_at!(provider, &server.url), &hello()).await;
            let answer = answer.unwrap();
            assert_eq!(text_of(&answer), "grüße 🦀", "{provider:?} in slices of {slice}");
            assert_eq!(heard(&pieces), "grüße 🦀");
            assert_eq!(answer.usage, Usage { input_tokens: 5, output_tokens: 2, cost_micros: 0 });
            assert_eq!(answer.response.as_deref(), Some("r1"));
        }
    }
}

#[tokio::test]
async fn a_server_may_answer_whole() {
    for provider in Provider::BOTH {
        let server = Server::start([Reply::json(200, &provider.whole())]).await;
        let (answer, pieces) = ask(&*model_at!(provider, &server.url), &hello()).await;
        assert_eq!(text_of(&answer.unwrap()), "grüße 🦀");
        assert_eq!((pieces.len(), server.only().body["stream"].as_bool()), (0, Some(true)));
        let server = Server::start([Reply::json(200, &provider.whole())]).await;
        let (answer, _) = ask(&*model_at!(provider, &server.url, streaming(false)), &hello()).await;
        assert_eq!(answer.unwrap().usage.input_tokens, 5);
        assert_eq!(server.only().body.get("stream"), None);
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    for provider in Provider::BOTH {
        let reply = || Reply::sse(provider.stream()).keeping_the_connection();
        let server = Server::start([reply(), reply(), reply()]).await;
        let model = model_at!(provider, &server.url);
        for _ in 0..3 {
            assert_eq!(text_of(&ask(&*model, &hello()).await.0.unwrap()), "grüße 🦀");
        }
        assert_eq!(server.seen().len(), 3);
    }
}

#[tokio::test]
async fn a_limited_server_says_when_to_come_back() {
    for provider in Provider::BOTH {
        let body = json!({"error": {"message": "slow down", "type": "rate_limit_error"}});
        let limited = |name: &str, value: &str| Reply::json(429, &body).header(name, value);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let server = Server::start([
            limited("retry-after", "7"),
            limited("retry-after-ms", "250"),
            limited("retry-after", date).header("date", "Sun, 06 Nov 1994 08:49:07 GMT"),
            Reply::sse(provider.stream()),
        ])
        .await;
        let model = model_at!(provider, &server.url);
        for wait in [Duration::from_secs(7), Duration::from_millis(250), Duration::from_secs(30)] {
            let error = fails(&*model).await;
            assert_eq!((error.retry, error.retry_after), (true, Some(wait)));
            assert!(error.message.ends_with("answered 429 Too Many Requests: slow down"), "{error}");
        }
        assert_eq!(text_of(&ask(&*model, &hello()).await.0.unwrap()), "grüße 🦀");
        assert!(server.seen().iter().all(|seen| seen.header("idempotency-key") == Some("key-1")));
    }
}

#[tokio::test]
async fn refusals_pass_or_last() {
    let cases = [(400, false), (404, false), (408, true), (500, true), (503, true), (529, true)];
    for provider in Provider::BOTH {
        for (status, retry) in cases {
            let server = Server::start([Reply::json(status, &json!({"error": {"message": "because"}}))]).await;
            let error = fails(&*model_at!(provider, &server.url)).await;
            assert_eq!(error.retry, retry, "{error}");
            assert!(error.message.starts_with(&server.url) && error.message.ends_with("because"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_refused_key_is_named_and_not_shown() {
    for provider in Provider::BOTH {
        for status in [401, 403] {
            let body = json!({"error": {"message": format!("the key {KEY} is wrong")}});
            let server = Server::start([Reply::json(status, &body)]).await;
            let model = model_at!(provider, &server.url);
            let error = fails(&*model).await;
            assert!(!error.retry);
            assert!(error.message.contains("refused the key @env:TEST_KEY"), "{error}");
            assert!(error.message.ends_with("the key [secret] is wrong"), "{error}");
            assert!(!format!("{model:?}").contains(KEY));
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_answer() {
    for provider in Provider::BOTH {
        let stream = provider.stream();
        let half = stream.find("grü").unwrap() + 30;
        // Broken off, and ended as if all was well.
        for reply in [Reply::sse(stream.clone()).cut_after(half), Reply::sse(&stream.as_bytes()[..half])] {
            let server = Server::start([reply.sliced(9)]).await;
            let (answer, _) = ask(&*model_at!(provider, &server.url), &hello()).await;
            assert_eq!(answer.unwrap_err(), ModelError::passing(format!("the stream was cut after {half} bytes")));
        }
    }
}

#[tokio::test]
async fn nothing_is_no_answer() {
    for provider in Provider::BOTH {
        let server = Server::start([
            Reply::sse(""),
            Reply::sse(": nothing but comments\n\n"),
            Reply::new(200, "application/json", ""),
            Reply::json(200, &json!({})),
        ])
        .await;
        let model = model_at!(provider, &server.url);
        for expected in ["cut after 0 bytes", "cut after 24 bytes", "malformed JSON", "answered with nothing"] {
            let error = fails(&*model).await;
            assert!(error.retry && error.message.contains(expected), "{error}");
        }
    }
}

#[tokio::test]
async fn malformed_json_may_be_better_next_time() {
    for provider in Provider::BOTH {
        let server = Server::start([
            Reply::sse("data: {\"choices\": [\n\ndata: [DONE]\n\n"),
            Reply::new(200, "application/json", "{malformed"),
        ])
        .await;
        let model = model_at!(provider, &server.url);
        for expected in ["the stream holds malformed JSON", "answered with malformed JSON"] {
            let error = fails(&*model).await;
            assert!(error.retry && error.message.contains(expected), "{error}");
        }
    }
}

#[tokio::test]
async fn errors_within_a_stream_are_errors() {
    for provider in Provider::BOTH {
        let stream = provider.stream();
        let begun = &stream[..stream.find("\n\n").unwrap() + 2];
        let overloaded =
            json!({"type": "error", "error": {"type": "overloaded_error", "message": format!("busy {KEY}")}});
        let invalid = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
        let server = Server::start([
            Reply::sse(format!("{begun}{}", sse(&overloaded))),
            Reply::sse(format!("{begun}{}", sse(&invalid))),
        ])
        .await;
        let model = model_at!(provider, &server.url);
        assert_eq!(fails(&*model).await, ModelError::passing("the stream ended with an error: busy [secret]"));
        assert_eq!(fails(&*model).await, ModelError::fatal("the stream ended with an error: no"));
    }
}

#[tokio::test]
async fn silence_has_an_end() {
    for provider in Provider::BOTH {
        let half = provider.stream().find("grü").unwrap();
        let silent = Reply::sse(provider.stream()).hanging_after(half);
        let server = Server::start([silent]).await;
        let model = model_at!(provider, &server.url, silence_timeout(Duration::from_millis(200)));
        let error = fails(&*model).await;
        assert!(error.retry && error.message.contains("silent for 200ms"), "{error}");
        // Nothing accepts, so nothing answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let error = fails(&*model_at!(provider, &url, silence_timeout(Duration::from_millis(50)))).await;
        assert!(error.retry && error.message.ends_with("was silent for 50ms"), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_request_ends() {
    for provider in Provider::BOTH {
        let server = Server::start([Reply::sse(provider.stream()).hanging_after(0)]).await;
        let (model, request) = (model_at!(provider, &server.url), hello());
        let cancel = request.cancel.clone();
        let asking = tokio::spawn(async move { ask(&*model, &request).await.0 });
        while server.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        assert_eq!(asking.await.unwrap().unwrap_err(), ModelError::passing("the request was cancelled"));
    }
}

#[tokio::test]
async fn an_answer_has_a_limit() {
    for provider in Provider::BOTH {
        let endless = "data: ".to_owned() + &"x".repeat(5000);
        let many = sse(&json!({"type": "ping", "choices": []})).repeat(200);
        let whole = Reply::new(200, "application/json", "[".repeat(5000));
        for reply in [Reply::sse(endless), Reply::sse(many), whole] {
            let server = Server::start([reply]).await;
            let error = fails(&*model_at!(provider, &server.url, max_response_bytes(2000))).await;
            assert_eq!(error, ModelError::fatal("the answer is larger than 2000 bytes"));
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for provider in Provider::BOTH {
        for status in [301, 302, 307, 308] {
            let other = Server::start([Reply::sse(provider.stream())]).await;
            let there = format!("{}/v1", other.url);
            let server = Server::start([Reply::new(status, "text/plain", "").header("location", &there)]).await;
            let error = fails(&*model_at!(provider, &server.url)).await;
            assert!(!error.retry && error.message.contains(&format!("points elsewhere, to {there}")), "{error}");
            assert!(other.seen().is_empty());
        }
    }
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    for provider in Provider::BOTH {
        let page = |status| Reply::new(status, "text/html", "<!doctype html><title>Welcome</title>");
        let server = Server::start([page(200), page(502)]).await;
        let model = model_at!(provider, &server.url);
        let error = fails(&*model).await;
        assert!(!error.retry && error.message.ends_with("answered with a web page; is the base URL right?"), "{error}");
        let error = fails(&*model).await;
        assert!(error.retry && error.message.ends_with("a web page, not an answer of the API"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_may_come_back() {
    for provider in Provider::BOTH {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = fails(&*model_at!(provider, &format!("http://{free}"))).await;
        assert!(error.retry && error.message.starts_with(&format!("http://{free}")), "{error}");
        assert!(error.message.contains("cannot be reached"), "{error}");
        // Speaks no TLS.
        let server = Server::start([Reply::sse("")]).await;
        let error = fails(&*model_at!(provider, &server.url.replace("http:", "https:"))).await;
        assert!(error.retry && error.message.contains("cannot be reached"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_is_used_if_given() {
    for provider in Provider::BOTH {
        let proxy = Server::start([Reply::sse(provider.stream())]).await;
        let model = model_at!(provider, "http://model.invalid", proxy(&proxy.url));
        assert_eq!(text_of(&ask(&*model, &hello()).await.0.unwrap()), "grüße 🦀");
        assert!(proxy.only().line.starts_with("POST http://model.invalid/v1/"));
    }
}

#[tokio::test]
async fn a_check_says_whether_the_model_is_there() {
    let list = |id: &str| Reply::json(200, &json!({"data": [{"id": "other"}, {"id": id}]}));
    let refused = Reply::json(401, &json!({"error": {"message": "who?"}}));
    let page = Reply::new(200, "text/html", "<html>");
    let server = Server::start([list("gpt-5"), list("x"), refused, page, list("claude")]).await;
    let model = openai(&server.url).build().unwrap();
    let said = model.check().await.unwrap();
    assert_eq!(said, format!("{}/v1 answers; `gpt-5` is one of the 2 models it lists", server.url));
    assert!(model.check().await.unwrap().contains("is not one of"));
    assert!(model.check().await.unwrap_err().message.contains("refused the key @env:TEST_KEY"));
    assert!(model.check().await.unwrap_err().message.contains("is the base URL right?"));
    assert!(anthropic(&server.url).build().unwrap().check().await.unwrap().contains("is one of"));
    let lines: Vec<_> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!((lines[0].as_str(), lines[4].as_str()), ("GET /v1/models", "GET /v1/models?limit=1000"));
}
