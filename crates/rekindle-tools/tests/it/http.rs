//! Requests: what a server sees, what comes of its answers, and what is tried again.

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{Tool as _, ToolOptions};
use rekindle_tools::{HttpBody, HttpTool, HttpToolBuilder};
use serde_json::json;

use crate::kit::{SECRET, call, doubt, reads, schema};
use crate::server::{Server, answer, json as json_answer};

fn tool(names: &[&str]) -> HttpToolBuilder {
    HttpTool::builder("t", "Asks.").parameters(schema(names))
}

#[tokio::test]
async fn a_server_sees_what_was_declared() {
    let server = Server::start(|_, _| json_answer(json!({"id": 7}))).await;
    let post = tool(&["room", "tags", "note", "none"])
        .method("post")
        .url(format!("{}/rooms/${{arguments.room}}?fixed=1", server.url))
        .query("tag", "${arguments.tags}")
        .query("none", "${arguments.none}")
        .header("X-Session", "in ${session}")
        .header("X-None", "${arguments.none}")
        .header("Authorization", "Bearer ${secrets.token}")
        .body(HttpBody::Json(json!({"note": "${arguments.note}", "none": "${arguments.none}", "n": 1})))
        .build()
        .unwrap();
    let arguments = json!({"room": "../a b?x#y", "tags": ["u&v", 2], "note": "\"}, \"x\": \"$(id)"});
    assert_eq!(call(post, arguments).await, Ok(json!({"status": 200, "body": {"id": 7}})));
    let seen = &server.seen()[0];
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/rooms/..%2Fa%20b%3Fx%23y?fixed=1&tag=u%26v&tag=2")
    );
    assert_eq!(seen.header("x-session"), Some("in s"));
    assert_eq!(seen.header("x-none"), None);
    assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {SECRET}")));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(seen.header("idempotency-key").is_some_and(|key| key.len() > 8));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&seen.body).unwrap(),
        json!({"note": "\"}, \"x\": \"$(id)", "n": 1})
    );
}

#[tokio::test]
async fn values_cannot_reach_another_place() {
    let server = Server::start(|_, _| json_answer("null")).await;
    let get = |header: &str| {
        tool(&["a"]).url(format!("{}/x/${{arguments.a}}", server.url)).header("X-A", header).build().unwrap()
    };
    for value in ["..", ".", ""] {
        let failed = call(get("fixed"), json!({"a": value})).await.unwrap_err();
        assert!(failed.contains("is no segment of a path"), "{failed}");
    }
    let failed = call(get("${arguments.a}"), json!({"a": "x\r\nHost: evil.example"})).await.unwrap_err();
    assert_eq!(failed, "the value of `x-a` is none for a header");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn an_answer_becomes_json_or_text() {
    let check = async |raw: Vec<u8>, limit: usize, expected: serde_json::Value| {
        let server = Server::start(move |_, _| raw.clone()).await;
        let get = tool(&[]).url(&server.url).response_limit(limit).response_headers(["X-Page"]).build().unwrap();
        assert_eq!(call(get, json!({})).await, Ok(expected));
    };
    let kind = |kind: &str| format!("Content-Type: {kind}\r\nX-Page: 2\r\n");
    let page = json!({"x-page": "2"});
    check(
        answer("201 Created", &kind("application/problem+json; charset=utf-8"), "[1]"),
        99,
        json!({"status": 201, "body": [1], "headers": page}),
    )
    .await;
    check(
        answer("200 OK", &kind("application/json"), "{nonsense"),
        99,
        json!({"status": 200, "body": "{nonsense", "headers": page}),
    )
    .await;
    check(
        answer("200 OK", &kind("text/plain"), b"caf\xe9"),
        99,
        json!({"status": 200, "body": "caf\u{fffd}", "headers": page}),
    )
    .await;
    check(
        answer("200 OK", &kind("image/png"), b"\x89PNG\0"),
        99,
        json!({"status": 200, "body": "5 bytes that are no text (image/png)", "headers": page}),
    )
    .await;
    check(answer("200 OK", "", "äää"), 3, json!({"status": 200, "body": "ä", "headers": {}, "truncated": true})).await;
    check(
        answer("200 OK", "", "x".repeat(3_000_000)),
        10,
        json!({"status": 200, "body": "xxxxxxxxxx", "headers": {}, "truncated": true}),
    )
    .await;
    check(answer("204 No Content", "", ""), 10, json!({"status": 204, "body": "", "headers": {}})).await;
}

#[tokio::test]
async fn what_may_be_repeated_is_tried_again() {
    let check = async |method: &str, honoured: bool, status: &'static str, requests: usize| {
        let server = Server::start(move |_, before| match before {
            0 | 1 => answer(status, "", "not now"),
            _ => answer("200 OK", "", "fine"),
        })
        .await;
        let mut built = tool(&[]).method(method).url(&server.url);
        if honoured {
            built = built.idempotency_header("X-Key");
        }
        let retries = reads().retries;
        let writes = !matches!(method, "GET");
        let outcome =
            call(built.options(ToolOptions { retries, writes, ..ToolOptions::default() }).build().unwrap(), json!({}))
                .await;
        let seen = server.seen();
        assert_eq!(seen.len(), requests, "{method} {status}");
        assert_eq!(outcome.is_ok(), requests == 3, "{outcome:?}");
        if let Err(failed) = outcome {
            assert_eq!(failed, format!("`127.0.0.1` answered {status}: not now"));
        }
        if honoured {
            assert!(
                seen.iter().all(|one| one.header("x-key").is_some() && one.header("x-key") == seen[0].header("x-key"))
            );
        }
    };
    for status in ["503 Service Unavailable", "429 Too Many Requests", "408 Request Timeout"] {
        check("GET", false, status, 3).await;
        check("PUT", false, status, 3).await;
        check("DELETE", false, status, 3).await;
        check("POST", true, status, 3).await;
        check("POST", false, status, 1).await;
    }
    check("GET", false, "404 Not Found", 1).await;
    check("POST", true, "400 Bad Request", 1).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_a_write_unknown() {
    let lose =
        |after: usize| move |_: &_, before| if before < after { Vec::new() } else { answer("200 OK", "", "fine") };
    let server = Server::start(lose(1)).await;
    let get = tool(&[]).url(&server.url).options(reads()).build().unwrap();
    assert_eq!(call(get, json!({})).await.unwrap()["body"], json!("fine"));
    assert_eq!(server.seen().len(), 2);

    let server = Server::start(lose(1)).await;
    let post = tool(&[]).method("POST").url(&server.url).build().unwrap();
    let asked = doubt(std::sync::Arc::new(post), json!({})).await;
    assert!(asked.contains("gave no answer"), "{asked}");
    assert_eq!(server.seen().len(), 1);

    // Nobody listens there: nothing was sent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let options = ToolOptions { writes: true, ..reads() };
    let post = tool(&[]).method("POST").url(nobody).options(options).build().unwrap();
    let failed = call(post, json!({})).await.unwrap_err();
    assert!(failed.contains("cannot be reached") && !failed.contains("not known"), "{failed}");
}

#[tokio::test]
async fn a_redirect_is_followed_to_the_same_host_only() {
    let elsewhere = Server::start(|_, _| answer("200 OK", "", "stolen")).await;
    let there = elsewhere.url.clone();
    let server = Server::start(move |seen, _| match seen.target.as_str() {
        "/near" => answer("302 Found", "Location: /here\r\n", ""),
        "/far" => answer("307 Temporary Redirect", &format!("Location: {there}/x\r\n"), ""),
        "/loop" => answer("302 Found", "Location: /loop\r\n", ""),
        _ => answer("200 OK", "", "here"),
    })
    .await;
    let get = |path: &str| {
        let tool = tool(&[]).url(format!("{}{path}", server.url)).header("Authorization", "${secrets.token}");
        tool.options(reads()).build().unwrap()
    };
    assert_eq!(call(get("/near"), json!({})).await.unwrap()["body"], json!("here"));
    let failed = call(get("/far"), json!({})).await.unwrap_err();
    assert!(failed.contains("which is not followed"), "{failed}");
    assert!(elsewhere.seen().is_empty(), "the secret went no further");
    let before = server.seen().len();
    assert!(call(get("/loop"), json!({})).await.is_err());
    assert_eq!(server.seen().len() - before, 6, "the request and five redirects");
}

#[tokio::test]
async fn secrets_stay_out_of_results_and_failures() {
    let server = Server::start(|seen, _| match seen.target.as_str() {
        "/ok" => json_answer(json!({"you said": seen.header("x-token")})),
        _ => answer("403 Forbidden", "", format!("bad token {}", seen.header("x-token").unwrap())),
    })
    .await;
    let get = |path: &str| {
        let tool = tool(&[]).url(format!("{}{path}", server.url)).header("X-Token", "key ${secrets.token}");
        tool.build().unwrap()
    };
    assert_eq!(call(get("/ok"), json!({})).await.unwrap()["body"], json!({"you said": "key [secret token]"}));
    let failed = call(get("/no"), json!({})).await.unwrap_err();
    assert_eq!(failed, "`127.0.0.1` answered 403 Forbidden: bad token key [secret token]");
    assert!(server.seen().iter().all(|seen| seen.header("x-token").unwrap().contains(SECRET)));
    assert!(!format!("{:?}", get("/ok")).contains(SECRET));
}

#[test]
fn every_fault_of_a_declaration_is_named() {
    let check = |builder: HttpToolBuilder, expected: &str| {
        let found = builder.build().unwrap_err();
        assert!(found.message().contains(expected), "{found}");
    };
    let at = || tool(&["a"]).url("https://h.example/x");
    check(tool(&[]), "url: it must begin with http:// or https://");
    check(at().url("https://${arguments.a}/x"), "references are allowed in its path and its query only");
    check(at().url("https://h/${secrets.t}"), "allowed in headers and environment variables only");
    check(at().method("FETCH"), "`FETCH` is no method");
    check(at().header("a b", "x"), "`a b` is no name of a header");
    check(at().header("Host", "x"), "the header `host` cannot be set");
    check(at().body(HttpBody::Text("${arguments.b}".into())), "body: `${arguments.b}` is not among the parameters");
    check(at().idempotency_header(""), "`` is no name of a header");
    let both = at().method("FETCH").header("a b", "x").build().unwrap_err().message().to_owned();
    assert!(both.contains("FETCH") && both.contains("a b"), "{both}");
}

#[test]
fn options_follow_from_the_method() {
    let check = |method: &str, honoured: bool, writes: bool, policy: InDoubtPolicy| {
        let mut tool = tool(&[]).url("https://h.example").method(method);
        if honoured {
            tool = tool.idempotency_header("X-Key");
        }
        let tool = tool.build().unwrap();
        assert_eq!((tool.options().writes, tool.options().policy()), (writes, policy), "{method}");
    };
    check("GET", false, false, InDoubtPolicy::ReplaySafe);
    check("HEAD", false, false, InDoubtPolicy::ReplaySafe);
    check("PUT", false, true, InDoubtPolicy::Idempotent);
    check("DELETE", false, true, InDoubtPolicy::Idempotent);
    check("POST", false, true, InDoubtPolicy::Ask);
    check("PATCH", false, true, InDoubtPolicy::Ask);
    check("POST", true, true, InDoubtPolicy::Idempotent);
}
