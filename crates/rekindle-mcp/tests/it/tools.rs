//! Every tool, as it is meant to be used.

use serde_json::{Value, json};

use crate::kit::{World, payer, talker};

#[tokio::test]
async fn what_is_saved_is_loaded_unchanged_by_another_process() {
    let world = World::new();
    let mut client = world.client().await;
    let states = [
        json!({"zeta": 1, "alpha": [null, true, "ä\u{0}\n🦀"], "deep": {"x": {"y": []}}}),
        json!({"i": i64::MIN, "u": u64::MAX, "f": 0.1, "tiny": 5e-324, "big": 1.7976931348623157e308}),
        json!({}),
    ];
    let mut ids = Vec::new();
    for (state, step) in states.iter().zip(1..) {
        let arguments = json!({"sessionId": "mine", "state": state, "description": format!("step {step}")});
        let saved = client.call("checkpoint_save", arguments).await;
        assert_eq!((&saved["session_id"], &saved["step"]), (&json!("mine"), &json!(step)));
        ids.push(saved["checkpoint_id"].clone());
    }
    let server = rekindle_mcp::McpServer::builder(world.another()).build();
    let mut other = crate::kit::Client::initialized(server).await;
    let loaded = other.call("checkpoint_load", json!({"session_id": "mine"})).await;
    assert_eq!((&loaded["state"], &loaded["step"]), (&states[2], &json!(3)));
    for (state, id) in states.iter().zip(&ids) {
        let loaded = other.call("checkpoint_load", json!({"sessionId": "mine", "checkpointId": id})).await;
        assert_eq!((&loaded["state"], &loaded["checkpoint_id"]), (state, id));
        assert_eq!(loaded["state"].to_string(), state.to_string());
    }
    let latest = other.call("checkpoint_load", json!({"session_id": "mine", "checkpoint_id": ""})).await;
    assert_eq!(latest["checkpoint_id"], ids[2]);
    assert_eq!(other.refusal("checkpoint_load", json!({"session_id": "none"})).await, "RK0003");
    assert_eq!(other.refusal("checkpoint_load", json!({"session_id": "mine", "checkpoint_id": "x"})).await, "RK0003");
}

#[tokio::test]
async fn checkpoints_are_listed_in_pages() {
    let world = World::new();
    let mut client = world.client().await;
    for number in 0..5 {
        client.call("checkpoint_save", json!({"session_id": "s", "state": {"n": number}})).await;
    }
    for tool in ["checkpoint_list", "list_session_checkpoints"] {
        let (mut steps, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = client.call(tool, json!({"session_id": "s", "limit": 2, "cursor": cursor})).await;
            steps.extend(page["checkpoints"].as_array().unwrap().iter().map(|line| line["step"].as_u64().unwrap()));
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(steps, [5, 4, 3, 2, 1], "{tool}");
    }
    let of_type = |kind: &str| json!({"session_id": "s", "checkpoint_type": kind, "clean_only": true});
    let found = client.call("list_session_checkpoints", of_type("user_checkpoint")).await;
    assert_eq!(found["checkpoints"].as_array().unwrap().len(), 5);
    let found = client.call("list_session_checkpoints", of_type("turn")).await;
    assert_eq!(found["checkpoints"], json!([]));
    assert_eq!(client.refusal("list_session_checkpoints", of_type("x")).await, "RK0001");
    let odd = json!({"session_id": "s", "cursor": "not one of ours"});
    assert_eq!(client.refusal("checkpoint_list", odd).await, "RK0003");
}

#[tokio::test]
async fn a_waiting_session_is_found_inspected_answered_and_cancelled() {
    let world = World::new();
    world.waiting("one").await;
    world.waiting("two").await;
    let done = world.engine.create("done").await.unwrap();
    talker().run_once("hi", &done).await.unwrap();
    let mut client = world.client().await;

    let page = client.call("list_resumable_sessions", json!({"limit": 1})).await;
    assert_eq!((&page["total"], page["sessions"].as_array().unwrap().len()), (&json!(2), 1));
    let rest = client.call("list_resumable_sessions", json!({"cursor": page["next_cursor"]})).await;
    assert_eq!((rest["sessions"][0]["session_id"].as_str(), rest["next_cursor"].as_str()), (Some("one"), None));
    assert_eq!(rest["sessions"][0]["status"], "waiting");
    assert_eq!(client.call("list_resumable_sessions", json!({"status": "failed"})).await["sessions"], json!([]));
    assert_eq!(client.refusal("list_resumable_sessions", json!({"status": "odd"})).await, "RK0001");
    assert_eq!(client.refusal("list_resumable_sessions", json!({"cursor": "odd"})).await, "RK0001");

    let seen = client.call("inspect_checkpoint", json!({"session_id": "one"})).await;
    let wait = &seen["waits"][0];
    assert_eq!((&wait["arguments"], &seen["status"]), (&json!({"cents": 5}), &json!("waiting")));
    let answer = |decision: &str, digest: &Value| json!({"session_id": "one", "wait_id": wait["wait_id"], "decision": decision, "digest": digest});
    assert_eq!(client.refusal("answer_wait", answer("approve", &Value::Null)).await, "RK0001");
    let given = client.call("answer_wait", answer("approve", &wait["digest"])).await;
    assert_eq!(
        (&given["decided"], &given["repeated"], &given["resume_needed"]),
        (&json!(true), &json!(false), &json!(true))
    );
    assert_eq!(client.call("answer_wait", answer("approve", &wait["digest"])).await["repeated"], true);
    assert_eq!(client.refusal("answer_wait", answer("reject", &Value::Null)).await, "RK0020");
    let session = world.engine.open_session("one").await.unwrap();
    let report = payer().resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "It is paid.");

    let why = json!({"session_id": "two", "reason": "not needed"});
    let cancelled = client.call("cancel_session", why.clone()).await;
    assert_eq!((&cancelled["result"], &cancelled["status"]), (&json!("cancelled"), &json!("cancelled")));
    let again = client.call("cancel_session", why).await;
    assert_eq!((&again["result"], &again["status"]), (&json!("already_ended"), &json!("cancelled")));
    let done = client.call("cancel_session", json!({"session_id": "done", "wait_seconds": 1})).await;
    assert_eq!((&done["result"], &done["status"]), (&json!("already_ended"), &json!("succeeded")));
    let other_run = json!({"session_id": "two", "run_id": "run_other"});
    assert_eq!(client.refusal("cancel_session", other_run).await, "RK0003");
}

#[tokio::test]
async fn a_conversation_is_inspected_piece_by_piece() {
    let world = World::new();
    let session = world.engine.create("talk").await.unwrap();
    for _ in 0..3 {
        talker().run_once("hi", &session).await.unwrap();
    }
    let mut client = world.client().await;
    let seen = client.call("inspect_checkpoint", json!({"sessionId": "talk", "log": "messages", "limit": 2})).await;
    assert_eq!((&seen["logs"]["messages"], &seen["items"]["from"]), (&json!(6), &json!(4)));
    assert_eq!(seen["items"]["items"].as_array().unwrap().len(), 2);
    let first = json!({"session_id": "talk", "log": "messages", "from": 0, "limit": 5});
    assert_eq!(client.call("inspect_checkpoint", first).await["items"]["next_from"], 5);
    let beyond = json!({"session_id": "talk", "log": "messages", "from": 99});
    assert_eq!(client.call("inspect_checkpoint", beyond).await["items"]["items"], json!([]));
    let register = json!({"session_id": "talk", "register": "loop"});
    assert!(client.call("inspect_checkpoint", register).await["value"].is_object());
    let none = json!({"session_id": "talk", "register": "nothing"});
    assert_eq!(client.refusal("inspect_checkpoint", none).await, "RK0003");
    assert_eq!(client.refusal("inspect_checkpoint", json!({"session_id": "none"})).await, "RK0003");
}

#[tokio::test]
async fn a_fork_has_its_own_memory_and_is_compared() {
    let world = World::new();
    let mut client = world.client().await;
    let first = client.call("checkpoint_save", json!({"session_id": "s", "state": {"n": 1}})).await;
    let second = client.call("checkpoint_save", json!({"session_id": "s", "state": {"n": 2}})).await;
    // As an object, and as the text that holds one.
    for (branch, memory) in [("a", json!({"colour": "blue"})), ("b", json!(r#"{"colour": "blue"}"#))] {
        let arguments = json!({
            "session_id": "s", "checkpoint_id": first["checkpoint_id"], "branch": branch,
            "memory_modifications": memory, "reason": "what if",
        });
        let forked = client.call("fork_session", arguments).await;
        assert_eq!(forked["branch"], branch);
        let there = json!({
            "session_id": "s", "checkpoint_id": forked["checkpoint_id"], "include_memory": true, "register": "saved",
        });
        let seen = client.call("inspect_checkpoint", there).await;
        assert_eq!((&seen["memory"], &seen["value"]), (&json!({"colour": "blue"}), &json!({"n": 1})));
    }
    assert_eq!(client.call("checkpoint_load", json!({"session_id": "s"})).await["state"], json!({"n": 2}));

    let from = json!({"session_id": "s", "from_checkpoint_id": first["checkpoint_id"]});
    let diff = client.call("diff_checkpoints", from).await;
    assert_eq!((&diff["same"], diff["patch"].as_array().unwrap().len()), (&json!(false), 1));
    let same = json!({
        "session_id": "s", "from_checkpoint_id": second["checkpoint_id"], "to_checkpoint_id": second["checkpoint_id"],
    });
    let diff = client.call("diff_checkpoints", same).await;
    assert_eq!((&diff["same"], &diff["patch"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn checkpoints_are_deleted_unless_something_needs_them() {
    let world = World::new();
    let mut client = world.client().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let saved = client.call("checkpoint_save", json!({"session_id": "s", "state": {"n": number}})).await;
        ids.push(saved["checkpoint_id"].clone());
    }
    let delete = |id: &Value, dry_run: bool| json!({"session_id": "s", "checkpoint_id": id, "dry_run": dry_run});
    assert_eq!(client.call("delete_checkpoint", delete(&ids[0], true)).await["deleted"], false);
    assert_eq!(client.call("delete_checkpoint", delete(&ids[0], false)).await["deleted"], true);
    assert_eq!(client.refusal("delete_checkpoint", delete(&ids[0], false)).await, "RK0003");
    assert_eq!(client.refusal("delete_checkpoint", delete(&ids[2], false)).await, "RK0014");
    let left = client.call("checkpoint_list", json!({"session_id": "s"})).await;
    assert_eq!(left["checkpoints"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_too_large_is_named_and_can_be_asked_for() {
    let world = World::new();
    let mut client = world.client().await;
    client.call("checkpoint_save", json!({"session_id": "s", "state": {}})).await;
    let large = "x".repeat(300 << 10);
    let memory = json!({"small": 1, "large": large});
    let forked = client.call("fork_session", json!({"session_id": "s", "memory_modifications": memory})).await;
    let at = json!({"session_id": "s", "checkpoint_id": forked["checkpoint_id"], "include_memory": true});
    let seen = client.call("inspect_checkpoint", at).await;
    assert_eq!((&seen["memory"], &seen["omitted"][0]["name"]), (&json!({"small": 1}), &json!("memory/large")));
    let at = json!({"session_id": "s", "checkpoint_id": forked["checkpoint_id"], "register": "memory/large"});
    assert_eq!(client.call("inspect_checkpoint", at).await["value"], large);
}
