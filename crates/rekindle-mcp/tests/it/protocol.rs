//! Both revisions of the protocol.

use serde_json::json;

use crate::kit::{Client, World};

#[tokio::test]
async fn the_older_revision_is_agreed_on_first() {
    let world = World::new();
    let mut client = Client::connect(world.server());
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "lines", "version": "1"},
    });
    let result = client.request("initialize", params).await["result"].clone();
    assert_eq!((&result["protocolVersion"], &result["serverInfo"]["name"]), (&json!("2025-11-25"), &json!("rekindle")));
    let capabilities = &result["capabilities"];
    assert!(capabilities["tools"].is_object() && capabilities["completions"].is_object());
    assert_eq!(capabilities["resources"], json!({"subscribe": true, "listChanged": true}));
    assert!(capabilities["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let listed = client.request("tools/list", json!({})).await["result"].clone();
    assert!(listed["tools"].is_array() && listed["resultType"].is_null(), "{listed}");
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn the_newer_revision_needs_no_agreement() {
    let world = World::new();
    let mut client = Client::stateless(world.server()).await;
    let found = client.request("server/discover", json!({})).await["result"].clone();
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{found}");
    let listed = client.request("tools/list", json!({})).await["result"].clone();
    assert_eq!((&listed["resultType"], &listed["cacheScope"]), (&json!("complete"), &json!("public")));
    assert!(listed["ttlMs"].as_u64().unwrap() > 0);
    let saved = client.result("checkpoint_save", json!({"session_id": "s", "state": {"a": 1}})).await;
    assert_eq!((&saved["resultType"], &saved["structuredContent"]["step"]), (&json!("complete"), &json!(1)));
    let read = client.request("resources/read", json!({"uri": "rekindle://sessions/s"})).await["result"].clone();
    assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(0), &json!("private")));
}

#[tokio::test]
async fn a_request_of_an_unknown_revision_is_told_which_there_are() {
    let world = World::new();
    let mut client = Client::stateless(world.server()).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "1999-01-01",
        "io.modelcontextprotocol/clientInfo": {"name": "lines", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    client.send(json!({"jsonrpc": "2.0", "id": 900, "method": "tools/list", "params": {"_meta": meta}})).await;
    let answer = client.answer(900).await;
    assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")), "{answer}");
}
