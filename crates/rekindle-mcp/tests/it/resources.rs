//! Sessions and checkpoints as resources, and being told of changes.

use rekindle::{Json, operations};
use serde_json::{Value, json};

use crate::kit::{Client, World};

#[tokio::test]
async fn sessions_are_listed_in_pages_and_read() {
    let world = World::new();
    for number in 0..103 {
        world.engine.create(&format!("a/b {number}")).await.unwrap();
    }
    let mut client = world.client().await;
    let first = client.request("resources/list", json!({})).await["result"].clone();
    let second = client.request("resources/list", json!({"cursor": first["nextCursor"]})).await["result"].clone();
    let count = |page: &Value| page["resources"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second), &second["nextCursor"]), (100, 3, &Value::Null));
    let uri = &second["resources"][2]["uri"];
    assert_eq!(uri, "rekindle://sessions/a%2Fb%200");
    let read = client.request("resources/read", json!({"uri": uri})).await["result"]["contents"][0].clone();
    assert_eq!((&read["uri"], &read["mimeType"]), (uri, &json!("application/json")));
    let text: Value = serde_json::from_str(read["text"].as_str().unwrap()).unwrap();
    assert_eq!((&text["status"], &text["header"]["key"]["id"]), (&json!("idle"), &json!("a/b 0")));
    let odd = client.request("resources/list", json!({"cursor": "odd"})).await;
    assert_eq!(odd["error"]["code"], -32602, "{odd}");
}

#[tokio::test]
async fn checkpoints_are_read_and_what_is_not_there_is_said() {
    let world = World::new();
    let mut client = world.client().await;
    let saved = client.call("checkpoint_save", json!({"session_id": "s", "state": {"a": 1}})).await;
    let uri = format!("rekindle://sessions/s/checkpoints/{}", saved["checkpoint_id"].as_str().unwrap());
    let read = client.request("resources/read", json!({"uri": uri})).await["result"]["contents"][0].clone();
    let text: Value = serde_json::from_str(read["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["state"]["registers"]["saved"], json!({"a": 1}));

    let templates = client.request("resources/templates/list", json!({})).await["result"]["resourceTemplates"].clone();
    assert_eq!(templates[0]["uriTemplate"], "rekindle://sessions/{session_id}");
    assert_eq!(templates[1]["uriTemplate"], "rekindle://sessions/{session_id}/checkpoints/{checkpoint_id}");
    for uri in ["rekindle://sessions/none", "rekindle://sessions/s/checkpoints/none", "file:///etc/passwd"] {
        let answer = client.request("resources/read", json!({"uri": uri})).await;
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["code"]), (&json!(-32002), &json!("RK0003")));
    }
    // The newer revision has no code of its own for that.
    let mut newer = Client::stateless(world.server()).await;
    let answer = newer.request("resources/read", json!({"uri": "rekindle://sessions/none"})).await;
    assert_eq!(answer["error"]["code"], -32602);
}

#[tokio::test]
async fn arguments_of_templates_are_completed() {
    let world = World::new();
    let mut client = world.client().await;
    for id in ["alpha", "almond", "beta"] {
        client.call("checkpoint_save", json!({"session_id": id, "state": {}})).await;
    }
    let template =
        json!({"type": "ref/resource", "uri": "rekindle://sessions/{session_id}/checkpoints/{checkpoint_id}"});
    let asked = json!({"ref": template, "argument": {"name": "session_id", "value": "al"}});
    let found = client.request("completion/complete", asked).await["result"]["completion"]["values"].clone();
    assert_eq!(found, json!(["almond", "alpha"]));
    let asked = json!({
        "ref": template, "argument": {"name": "checkpoint_id", "value": ""},
        "context": {"arguments": {"session_id": "beta"}},
    });
    let found = client.request("completion/complete", asked).await["result"]["completion"]["values"].clone();
    assert_eq!(found.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_connection_of_the_older_revision_is_told_of_changes_by_others() {
    let world = World::new();
    let mut client = world.client().await;
    client.call("checkpoint_save", json!({"session_id": "s", "state": {}})).await;
    let uri = "rekindle://sessions/s";
    assert_eq!(client.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
    assert!(client.request("resources/subscribe", json!({"uri": "file:///x"})).await["error"].is_object());
    // Another process, so nothing but the store can tell.
    let other = world.another();
    let key = other.key("s").unwrap();
    operations::save_state(&other, &key, &Json::from("x"), "", "").await.unwrap();
    updated(&mut client, uri).await;
    other.create("new").await.unwrap();
    while client.notification().await["method"] != "notifications/resources/list_changed" {}
    assert_eq!(client.request("resources/unsubscribe", json!({"uri": uri})).await["result"], json!({}));
    operations::save_state(&other, &key, &Json::from("y"), "", "").await.unwrap();
    // Each look is at the list first: by the second of these, a change of the session would have been told.
    for id in ["newer", "newest"] {
        other.create(id).await.unwrap();
        let next = client.notification().await;
        assert_eq!(next["method"], "notifications/resources/list_changed", "{next}");
    }
}

#[tokio::test]
async fn a_checkpoint_that_is_pinned_is_told_of() {
    let world = World::new();
    let mut client = world.client().await;
    let key = world.engine.key("s").unwrap();
    let saved = operations::save_state(&world.engine, &key, &Json::from("x"), "", "").await.unwrap();
    let uri = format!("rekindle://sessions/s/checkpoints/{}", saved.checkpoint);
    assert_eq!(client.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
    operations::pin(&world.another(), &key, &saved.checkpoint, true).await.unwrap();
    updated(&mut client, &uri).await;
}

#[tokio::test]
async fn a_subscription_of_the_newer_revision_is_a_request() {
    let world = World::new();
    let mut client = Client::stateless(world.server()).await;
    client.call("checkpoint_save", json!({"session_id": "s", "state": {}})).await;
    let uri = "rekindle://sessions/s";
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": [uri, "file:///x"]});
    let id = client.begin("subscriptions/listen", json!({"notifications": filter})).await;
    let acknowledged = client.notification().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!([uri]));
    let other = world.another();
    let key = other.key("s").unwrap();
    // What happens before the server looked for the first time is no change, so it happens until it is.
    let saving = tokio::spawn(async move {
        loop {
            operations::save_state(&other, &key, &Json::from("x"), "", "").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    let told = updated(&mut client, uri).await;
    saving.abort();
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{told}");
}

async fn updated(client: &mut Client, uri: &str) -> Value {
    loop {
        let told = client.notification().await;
        if told["method"] == "notifications/resources/updated" {
            assert_eq!(told["params"]["uri"], uri);
            return told;
        }
    }
}
