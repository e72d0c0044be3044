//! Everything that can be wrong with what clients send.

use rekindle::operations;
use serde_json::json;

use crate::kit::{Client, World};

#[tokio::test]
async fn what_is_no_call_of_a_tool_is_an_error_of_the_protocol() {
    let world = World::new();
    let mut client = world.client().await;
    assert!(client.invalid("no_such_tool", json!({})).await.contains("no_such_tool"));
    assert!(client.invalid(&"x".repeat(1 << 20), json!({})).await.len() < 10_000);
    let odd = client.request("tools/call", json!({"name": "checkpoint_load", "arguments": [1]})).await;
    assert!(odd["error"]["code"].is_i64(), "{odd}");
    assert!(client.request("no/such/method", json!({})).await["error"]["code"].is_i64());
}

#[tokio::test]
async fn wrong_arguments_are_results_that_models_can_learn_from() {
    let world = World::new();
    let mut client = world.client().await;
    for (tool, arguments, named) in [
        ("checkpoint_load", json!({}), "session_id"),
        ("checkpoint_load", json!({"session_id": 7}), "session_id"),
        ("checkpoint_load", json!({"session_id": null}), "session_id"),
        ("checkpoint_load", json!({"session_id": "s", "sessionId": "t"}), "session_id"),
        ("checkpoint_load", json!({"session_id": "s", "checkpoint": "c"}), "checkpoint"),
        ("checkpoint_save", json!({"session_id": "s"}), "state"),
        ("checkpoint_save", json!({"session_id": "s", "state": [1]}), "state"),
        ("checkpoint_save", json!({"session_id": "s", "state": "{}"}), "state"),
        ("list_resumable_sessions", json!({"limit": -1}), "limit"),
        ("list_resumable_sessions", json!({"limit": "many"}), "limit"),
        ("answer_wait", json!({"session_id": "s", "wait_id": "w", "decision": "maybe"}), "decision"),
        ("fork_session", json!({"session_id": "s", "memory_modifications": "[1]"}), "memory_modifications"),
        ("fork_session", json!({"session_id": "s", "memory_modifications": 3}), "memory_modifications"),
        ("inspect_checkpoint", json!({"session_id": "s", "include_memory": "x".repeat(1 << 20)}), "include_memory"),
    ] {
        let message = client.misused(tool, arguments).await;
        assert!(message.contains(named) && message.contains(tool), "{message}");
    }
    let message = client.misused("list_resumable_sessions", json!({"agent_work_dir": "/etc"})).await;
    assert!(message.contains("agent_work_dir") && message.contains("no directories"), "{message}");
}

#[tokio::test]
async fn ids_that_are_not_legal_are_refused() {
    let world = World::new();
    let mut client = world.client().await;
    for id in ["", "a\u{0}b", "\u{1b}[2J", &"x".repeat(1 << 20)] {
        assert_eq!(client.refusal("checkpoint_save", json!({"session_id": id, "state": {}})).await, "RK0001");
    }
    // Legal, and nothing but names.
    for id in ["../../etc/passwd", "'; DROP TABLE sessions", "🦀/%2e%2e"] {
        client.call("checkpoint_save", json!({"session_id": id, "state": {"id": id}})).await;
        assert_eq!(client.call("checkpoint_load", json!({"session_id": id})).await["state"]["id"], id);
    }
}

#[tokio::test]
async fn sessions_of_other_namespaces_are_not_there() {
    let world = World::new();
    let elsewhere = world.elsewhere();
    let key = elsewhere.key("secret").unwrap();
    let saved = operations::save_state(&elsewhere, &key, &"x".into(), "", "").await.unwrap();
    let mut client = world.client().await;
    let checkpoint = saved.checkpoint.to_string();
    for id in ["secret", "elsewhere/secret"] {
        for tool in ["checkpoint_load", "inspect_checkpoint", "fork_session", "delete_checkpoint"] {
            let arguments = json!({"session_id": id, "checkpoint_id": checkpoint});
            assert_eq!(client.refusal(tool, arguments).await, "RK0003", "{tool} {id}");
        }
        for tool in ["checkpoint_list", "list_session_checkpoints", "cancel_session"] {
            assert_eq!(client.refusal(tool, json!({"session_id": id})).await, "RK0003", "{tool} {id}");
        }
    }
    let listed = client.request("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"], json!([]));
}

#[tokio::test]
async fn fifty_megabytes_are_refused_and_the_connection_lives() {
    let world = World::new();
    let mut client = world.client().await;
    let large = "x".repeat(50 << 20);
    let code = client.refusal("checkpoint_save", json!({"session_id": "s", "state": {"large": large}})).await;
    assert_eq!(code, "RK0002");
    client.misused("checkpoint_save", json!({"session_id": "s", "state": large})).await;
    assert_eq!(client.refusal("checkpoint_load", json!({"session_id": "s"})).await, "RK0003");
}

#[tokio::test]
async fn what_nests_too_deeply_is_refused() {
    let world = World::new();
    let mut client = world.client().await;
    let mut deep = json!(1);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    assert_eq!(client.refusal("checkpoint_save", json!({"session_id": "s", "state": {"deep": deep}})).await, "RK0002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time_are_all_answered() {
    let world = World::new();
    let server = world.server();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        let server = server.clone();
        clients.spawn(async move {
            let mut steps = Vec::new();
            let mut lines = Client::initialized(server).await;
            let mut begun = Vec::new();
            for call in 0..5 {
                let arguments = json!({"session_id": "shared", "state": {"client": client, "call": call}});
                begun.push(lines.begin("tools/call", json!({"name": "checkpoint_save", "arguments": arguments})).await);
            }
            for id in begun {
                let answer = lines.answer(id).await;
                steps.push(answer["result"]["structuredContent"]["step"].as_u64().unwrap());
            }
            steps
        });
    }
    let mut steps: Vec<u64> = clients.join_all().await.into_iter().flatten().collect();
    steps.sort_unstable();
    assert_eq!(steps, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_a_call_disturbs_nobody() {
    let world = World::new();
    let server = world.server();
    for number in 0..5 {
        let mut client = Client::initialized(server.clone()).await;
        let arguments = json!({"session_id": "s", "state": {"n": number}});
        client.begin("tools/call", json!({"name": "checkpoint_save", "arguments": arguments})).await;
        drop(client);
    }
    let mut client = Client::initialized(server).await;
    let saved = client.call("checkpoint_save", json!({"session_id": "s", "state": {"n": "last"}})).await;
    let mine = json!({"session_id": "s", "checkpoint_id": saved["checkpoint_id"]});
    assert_eq!(client.call("checkpoint_load", mine).await["state"], json!({"n": "last"}));
    // Each of the others was saved as a whole or not at all, whenever that was.
    let listed = client.call("checkpoint_list", json!({"session_id": "s"})).await["checkpoints"].clone();
    let listed = listed.as_array().unwrap();
    let steps: Vec<u64> = listed.iter().rev().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=listed.len() as u64).collect::<Vec<_>>());
    for line in listed {
        let one = json!({"session_id": "s", "checkpoint_id": line["checkpoint_id"]});
        assert!(!client.call("checkpoint_load", one).await["state"]["n"].is_null());
    }
}

/// Clients name no secrets: what they give by value under such a key is refused, or named as left out.
#[tokio::test]
async fn a_plain_value_for_an_excluded_key_is_never_dropped_silently() {
    const KEY: &str = "sk-live-9f8e7d6c5b4a";
    let world = World::new();
    let mut client = world.client().await;
    let state = json!({"n": 1, "inner": {"api_key": KEY}});
    let saved = client.call("checkpoint_save", json!({"session_id": "s", "state": state})).await;
    assert_eq!(saved["left_out"], json!(["api_key"]));
    let loaded = client.call("checkpoint_load", json!({"session_id": "s"})).await;
    assert_eq!((&loaded["state"]["n"], loaded.to_string().contains(KEY)), (&json!(1), false));
    // A mark that a client wrote would be filled in for whoever reads that key.
    let armed = json!({"session_id": "s", "branch": "b", "memory_modifications": {"x": {"$redacted": "api_key"}}});
    let forked = client.call("fork_session", armed).await;
    let there = json!({"session_id": "s", "checkpoint_id": forked["checkpoint_id"], "include_memory": true});
    let seen = client.call("inspect_checkpoint", there).await.to_string();
    assert!(seen.contains("\"redacted\":\"api_key\"") && !seen.contains("$redacted\":\"api_key\"},\"x"), "{seen}");
    for (tool, arguments) in [
        ("resume_session", json!({"session_id": "s", "message": "go", "memory_modifications": {"api_key": KEY}})),
        (
            "resume_session",
            json!({"session_id": "s", "message": "go", "memory_modifications": {"x": {"access_token": KEY}}}),
        ),
        ("resume_session", json!({"session_id": "s", "message": format!("{{\"api_key\": \"{KEY}\"}}")})),
        ("fork_session", json!({"session_id": "s", "memory_modifications": {"api_key": KEY}})),
    ] {
        let refused = client.result(tool, arguments.clone()).await;
        let text = refused.to_string();
        assert_eq!(refused["isError"], true, "{tool} {arguments}: {text}");
        assert!(text.contains("[secrets]") && !text.contains(KEY), "{tool} {arguments}: {text}");
    }
}
