//! Runs as tasks, over the wire: whatever happens to servers and workers, a task is found, goes on,
//! and does nothing twice.

use serde_json::{Value, json};

use crate::tasks_kit::{Client, Place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_works_and_is_completed() {
    let place = Place::new();
    let mut client = place.client().await;
    let task = client.start("guide", "trip").await;
    let queued = client.get(&task).await;
    assert_eq!(queued["status"], "working", "{queued}");
    assert!(queued["statusMessage"].as_str().unwrap().contains("worker"), "{queued}");
    assert_eq!(queued["ttlMs"], Value::Null);
    let hand = place.worker();
    let done = client.until(&task, "completed").await;
    assert_eq!(done["result"]["isError"], false);
    let told = &done["result"]["structuredContent"];
    assert_eq!((&told["answer"], &told["status"]), (&json!("Take a hat."), &json!("succeeded")));
    assert_eq!(told["task_id"], json!(task));
    assert_eq!(task, format!("{}@trip", told["run_id"].as_str().unwrap()));
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_tasks_asks_for_the_run() {
    let place = Place::new();
    let mut client = place.client().await;
    client.tasks = false;
    let started = client.call("run_agent", json!({ "agent": "guide", "input": "go" })).await;
    assert_eq!(started["resultType"], "complete", "{started}");
    let started = started["structuredContent"].clone();
    assert_eq!(started["status"], "queued");
    let hand = place.worker();
    let ask = json!({ "run_id": started["run_id"], "session_id": started["session_id"] });
    let answer = loop {
        let told = client.call("get_run", ask.clone()).await["structuredContent"].clone();
        if told["status"] == "succeeded" {
            break told["answer"].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(answer, "Take a hat.");
    let by_task = client.call("get_run", json!({ "run_id": started["task_id"] })).await;
    assert_eq!(by_task["structuredContent"]["answer"], "Take a hat.");
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_asks_and_goes_on_with_the_answer() {
    let place = Place::new();
    let (mut client, hand) = (place.client().await, place.worker());
    let task = client.start("payer", "bill").await;
    let asks = client.until(&task, "input_required").await;
    let (key, request) = asks["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    assert!(request["params"]["message"].as_str().unwrap().contains("\"cents\""), "{request}");
    let schema = &request["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["decision"]["enum"], json!(["approve", "reject"]));
    let update = |key: &str, response: Value| json!({ "taskId": task, "inputResponses": { key: response } });
    // What is not asked for is passed over, what is put off stays open, what makes no sense is refused.
    client.result("tasks/update", update("wait_x", json!({ "action": "accept", "content": {} }))).await;
    client.result("tasks/update", update(key, json!({ "action": "cancel" }))).await;
    let senseless = update(key, json!({ "action": "accept", "content": { "decision": "maybe" } }));
    let refused = client.request("tasks/update", senseless).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(client.get(&task).await["status"], "input_required");
    let approve = json!({ "action": "accept", "content": { "decision": "approve" } });
    let acknowledged = client.result("tasks/update", update(key, approve.clone())).await;
    assert_eq!(acknowledged, json!({ "resultType": "complete" }));
    let done = client.until(&task, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["answer"], "It is paid.");
    client.result("tasks/update", update(key, approve)).await;
    assert_eq!(place.ledger().lines(), ["paid 5"]);
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_has_the_form_of_its_schema() {
    let place = Place::new();
    let (mut client, hand) = (place.client().await, place.worker());
    let task = client.start("asker", "trip").await;
    let asks = client.until(&task, "input_required").await;
    let (key, request) = asks["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Where to?");
    assert_eq!(request["params"]["requestedSchema"]["properties"]["city"]["type"], "string");
    let answer = |content: Value| {
        let response = json!({ "action": "accept", "content": content });
        json!({ "taskId": task, "inputResponses": { key: response } })
    };
    let unfit = client.request("tasks/update", answer(json!({ "city": 7 }))).await;
    assert_eq!(unfit["error"]["code"], -32602, "{unfit}");
    client.result("tasks/update", answer(json!({ "city": "Lisbon" }))).await;
    let done = client.until(&task, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["answer"], "Thanks.");
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_cancelled_before_it_begins_and_while_it_waits() {
    let place = Place::new();
    let mut client = place.client().await;
    let queued = client.start("guide", "early").await;
    client.result("tasks/cancel", json!({ "taskId": queued })).await;
    let asked = client.get(&queued).await;
    assert!(asked["statusMessage"].as_str().unwrap().contains("asked to stop"), "{asked}");
    let hand = place.worker();
    client.until(&queued, "cancelled").await;
    let waiting = client.start("payer", "late").await;
    client.until(&waiting, "input_required").await;
    client.result("tasks/cancel", json!({ "taskId": waiting })).await;
    client.until(&waiting, "cancelled").await;
    client.result("tasks/cancel", json!({ "taskId": waiting })).await;
    assert!(place.ledger().lines().is_empty());
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_failed_is_a_call_that_failed() {
    let place = Place::new();
    let (mut client, hand) = (place.client().await, place.worker());
    let task = client.start("broken", "trip").await;
    let done = client.until(&task, "completed").await;
    assert_eq!(done["result"]["isError"], true);
    let told = &done["result"]["structuredContent"];
    assert!(told["code"].as_str().unwrap().starts_with("RK"), "{told}");
    assert!(told["message"].as_str().unwrap().contains("the model is away"), "{told}");
    let again = client.call("resume_session", json!({ "session_id": "trip" })).await;
    let again = again["taskId"].as_str().unwrap().to_owned();
    assert_ne!(again, task);
    assert_eq!(client.until(&again, "completed").await["result"]["isError"], true);
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_outlives_its_server_and_its_worker() {
    let place = Place::new();
    let mut client = place.client().await;
    let task = client.start("payer", "bill").await;
    client.kill();
    let hand = place.worker();
    let mut client = place.client().await;
    let asks = client.until(&task, "input_required").await;
    hand.stop().await;
    client.kill();
    let mut client = place.client().await;
    let key = asks["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let approve = json!({ "action": "accept", "content": { "decision": "approve" } });
    client.result("tasks/update", json!({ "taskId": task, "inputResponses": { key: approve } })).await;
    assert_eq!(client.get(&task).await["status"], "working");
    client.kill();
    let (mut client, hand) = (place.client().await, place.worker());
    client.until(&task, "completed").await;
    assert_eq!(place.ledger().lines(), ["paid 5"]);
    hand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_resumes_are_one_task() {
    let place = Place::new();
    let (mut one, mut two) = (place.client().await, place.client().await);
    let hand = place.worker();
    let task = one.start("broken", "trip").await;
    one.until(&task, "completed").await;
    hand.stop().await;
    let resume = json!({ "session_id": "trip" });
    let (first, second) = tokio::join!(one.call("resume_session", resume.clone()), two.call("resume_session", resume));
    assert_eq!(first["taskId"], second["taskId"], "{first} {second}");
    assert!(first["taskId"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_input_again_is_the_same_task() {
    let place = Place::new();
    let (mut one, mut two) = (place.client().await, place.client().await);
    let call = json!({ "agent": "guide", "input": "go", "session_id": "trip", "message_id": "form-17" });
    let (first, second) = (one.call("run_agent", call.clone()).await, two.call("run_agent", call).await);
    assert_eq!(first["taskId"], second["taskId"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_task_is_refused() {
    let place = Place::new();
    let mut client = place.client().await;
    let task = client.start("guide", "trip").await;
    let other = place.engine().in_namespace(rekindle::Namespace::new("other").unwrap());
    other.create("theirs").await.unwrap();
    let run = task.split_once('@').unwrap().0;
    let huge = "x".repeat(1 << 16);
    let bad = ["", "@", "trip", "a@trip", &format!("{run}@theirs"), &format!("{run}@nowhere"), "../a@../b", &huge];
    for bad in bad {
        for (method, more) in [("tasks/get", json!({})), ("tasks/cancel", json!({})), ("tasks/update", updates())] {
            let mut params = more;
            params["taskId"] = json!(bad);
            let refused = client.request(method, params).await;
            assert_eq!(refused["error"]["code"], -32602, "{method} {bad:.40}: {refused}");
        }
    }
    for (tool, arguments) in [
        ("get_run", json!({ "run_id": "x", "session_id": "trip" })),
        ("resume_session", json!({ "session_id": "nowhere" })),
        ("run_agent", json!({ "agent": "nobody", "input": "go" })),
        ("run_agent", json!({ "agent": "payer", "input": "go", "session_id": "trip" })),
    ] {
        let refused = client.call(tool, arguments).await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(refused["structuredContent"]["code"].as_str().unwrap().starts_with("RK"));
    }
    let refused = wrong_type(&mut client).await;
    assert_eq!(refused["result"]["structuredContent"]["code"], "RK0001", "{refused}");
}

fn updates() -> Value {
    json!({ "inputResponses": {} })
}

async fn wrong_type(client: &mut Client) -> Value {
    let arguments = json!({ "session_id": "trip", "memory_modifications": 7 });
    client.request("tools/call", json!({ "name": "resume_session", "arguments": arguments })).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resume_from_a_checkpoint_keeps_the_other_line() {
    let place = Place::new();
    let (mut client, hand) = (place.client().await, place.worker());
    let task = client.start("payer", "bill").await;
    let asks = client.until(&task, "input_required").await;
    let listed = client.call("list_session_checkpoints", json!({ "sessionId": "bill" })).await;
    let checkpoints = listed["structuredContent"]["checkpoints"].as_array().unwrap();
    let first = checkpoints.last().unwrap()["checkpoint_id"].clone();
    let arguments =
        json!({ "sessionId": "bill", "checkpointId": first, "memory_modifications": "{\"colour\":\"blue\"}" });
    let back = client.call("resume_session", arguments).await;
    let back = back["taskId"].as_str().unwrap_or_else(|| panic!("{back}")).to_owned();
    assert_ne!(back, task);
    let asks_there = client.until(&back, "input_required").await;
    assert_ne!(asks_there["inputRequests"], asks["inputRequests"]);
    let state = place.engine().journal().load(&place.engine().key("bill").unwrap(), None).await.unwrap().state;
    assert_eq!(state.register("memory/colour").unwrap().as_str(), "\"blue\"");
    client.result("tasks/cancel", json!({ "taskId": back })).await;
    client.until(&back, "cancelled").await;
    hand.stop().await;
}
