//! Session directories.

use std::fs;

use rekindle::core::record::CheckpointType;
use rekindle::operations::{self, ForkOptions};
use rekindle::{Engine, SessionKey, Status};
use rekindle_import::{ImportOptions, ImportReport};
use serde_json::{Value, json};

use crate::kit::{at, checkpoints, copy, everything, fixture, inspect, log, register, says};

const SESSION: &str = "session_20260208_143022_abc12345";
const START: &str = "checkpoint_20260208_143023_aaa111";
const COMPLETE: &str = "checkpoint_20260208_143030_xyz123";
const NEXT: &str = "checkpoint_20260208_143045_abc789";

async fn import(engine: &Engine) -> (ImportReport, SessionKey) {
    let path = fixture("session_directory/deep_research_agent");
    let report = rekindle_import::session_directory(engine, &path, ImportOptions::new()).await.unwrap();
    let key = engine.key(SESSION).unwrap();
    (report, key)
}

#[tokio::test]
async fn every_checkpoint_is_there_in_order() {
    let engine = Engine::memory().unwrap();
    let (report, key) = import(&engine).await;
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    let marks = checkpoints(&engine, &key).await;
    let ids: Vec<&str> = marks.iter().map(|mark| mark.id.as_str()).collect();
    assert_eq!(ids, [START, COMPLETE, NEXT]);
    let kinds: Vec<_> = marks.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds, [CheckpointType::NodeStart, CheckpointType::NodeComplete, CheckpointType::NodeStart]);
    let clean: Vec<_> = marks.iter().map(|mark| mark.clean).collect();
    assert_eq!(clean, [true, true, false]);
    assert_eq!(marks[1].description, "collector is done");
    assert_eq!((marks[1].step, &marks[1].extra["current_node"]), (2, &json!("collector")));
    assert_eq!(marks[1].extra["imported_at_source"], "2026-02-08T14:30:30.123Z");
    assert_eq!(marks[1].extra["imported_signature"], "hmac:0011");
    assert!(says(&report.warnings, "xyz123.json", "was not checked"));
    assert!(says(&report.warnings, "data", "1 entries are not taken over"));
}

#[tokio::test]
async fn the_session_is_as_its_state_says() {
    let engine = Engine::memory().unwrap();
    let (report, key) = import(&engine).await;
    assert_eq!(report.sessions[0].status, Status::Failed);
    let shown = operations::show(&engine, &key).await.unwrap();
    assert_eq!(shown.header.agent.as_deref(), Some("deep_research_agent"));
    let run = shown.run.unwrap();
    assert_eq!((run.executor.as_str(), run.reason.as_str()), ("graph", "Missing API key: SEARCH_KEY"));
    let mark = shown.header.metadata["import"].to_value().unwrap();
    assert_eq!(mark["started_at"], "2026-02-08T14:30:22Z");
}

#[tokio::test]
async fn the_state_at_each_checkpoint_is_that_of_the_graph() {
    let engine = Engine::memory().unwrap();
    let (_, key) = import(&engine).await;
    let start = inspect(&engine, &key, START).await;
    assert_eq!(register(&start, "graph"), json!({"turn": 1, "step": 1}));
    assert_eq!(register(&start, "strand/0"), json!({"node": "collector", "phase": "ready"}));
    assert_eq!(register(&start, "visits/start"), json!(1));
    assert!(start.state.register("visits/collector").is_none());
    assert_eq!(register(&start, "memory/topic"), json!("rust"));
    let complete = inspect(&engine, &key, COMPLETE).await;
    assert_eq!(register(&complete, "strand/0"), json!({"node": "analyzer", "phase": "ready"}), "not repeated");
    assert_eq!(register(&complete, "visits/collector"), json!(1));
    assert_eq!(register(&complete, "imported/outputs")["count"], json!(2));
    let path = log(&complete, "path");
    assert_eq!(
        path[0],
        json!({"step": 1, "node": "start", "visit": 1, "next": ["collector"], "wrote": ["topic"], "duration_ms": 0})
    );
    assert_eq!(
        path[1],
        json!({"step": 2, "node": "collector", "visit": 1, "next": ["analyzer"], "wrote": ["api_key", "handles"],
               "output": {"count": 2}, "duration_ms": 0})
    );
    let next = inspect(&engine, &key, NEXT).await;
    assert_eq!(register(&next, "graph"), json!({"turn": 1, "step": 3}));
    assert_eq!(register(&next, "strand/0"), json!({"node": "analyzer", "phase": "running", "step": 3, "turn": 1}));
    assert_eq!(register(&next, "visits/analyzer"), json!(1), "its visit has begun");
    assert_eq!(register(&next, "metrics/analyzer"), json!({"retries": 2, "failures": 1}));
    assert!(complete.state.registers_under("metrics/").next().is_none());
    assert_eq!(log(&next, "path").len(), 2);
}

#[tokio::test]
async fn conversations_stand_where_their_nodes_look_for_them() {
    let engine = Engine::memory().unwrap();
    let (_, key) = import(&engine).await;
    let start = inspect(&engine, &key, START).await;
    assert!(log(&start, "messages/collector").is_empty());
    let complete = inspect(&engine, &key, COMPLETE).await;
    let said = log(&complete, "messages/collector");
    assert_eq!(said.len(), 4);
    assert_eq!(said[1]["parts"][0]["tool_call"]["arguments"], json!({"q": "rust"}));
    assert_eq!(said[2]["parts"][0]["tool_result"]["name"], "search");
    assert_eq!(
        register(&complete, "node/collector/loop"),
        json!({"turn": 1, "iteration": 2, "step": 2, "phase": "idle", "failures": 0, "steered": 0, "queued": 0})
    );
    assert!(log(&complete, "messages/analyzer").is_empty());
    let next = inspect(&engine, &key, NEXT).await;
    assert_eq!(
        register(&next, "node/analyzer/loop"),
        json!({"turn": 1, "iteration": 1, "step": 1, "phase": "act", "failures": 0, "steered": 0, "queued": 0})
    );
    assert_eq!(register(&next, "imported/conversation/analyzer")["meta"]["system_prompt"], "You analyse.");
}

#[tokio::test]
async fn secrets_are_taken_out_and_named() {
    let engine = Engine::memory().unwrap();
    let (report, key) = import(&engine).await;
    let mut names: Vec<&str> = report.redacted.iter().map(|gone| gone.key.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["access_token", "api_key"]);
    let next = inspect(&engine, &key, NEXT).await;
    assert_eq!(register(&next, "memory/api_key"), json!({"$redacted": "api_key"}));
    assert_eq!(register(&next, "memory/login"), json!({"access_token": {"$redacted": "access_token"}, "user": "u"}));
    let everything = everything(&engine, &report).await;
    assert!(!everything.contains("sk-secret") && !everything.contains("tok-secret"));
}

#[tokio::test]
async fn checkpoints_are_compared_and_forked() {
    let engine = Engine::memory().unwrap();
    let (_, key) = import(&engine).await;
    let diff = operations::diff(&engine, (&key, &at(START)), (&key, &at(COMPLETE))).await.unwrap();
    assert!(diff.text.contains("memory/handles"), "{}", diff.text);
    assert!(!diff.text.contains("memory/topic"), "{}", diff.text);
    let fork = operations::fork(&engine, &key, &at(COMPLETE), ForkOptions::default()).await.unwrap();
    let seen = operations::inspect(&engine, &key, &operations::At::Head(fork.branch)).await.unwrap();
    assert_eq!(log(&seen, "path").len(), 2);
}

fn change(directory: &std::path::Path, id: &str, change: impl FnOnce(&mut Value)) {
    let path = directory.join(format!("sessions/{SESSION}/checkpoints/{id}.json"));
    let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut object);
    fs::write(path, object.to_string()).unwrap();
}

#[tokio::test]
async fn a_path_that_does_not_go_on_is_another_run() {
    let directory = copy("session_directory/deep_research_agent");
    change(directory.path(), NEXT, |object| object["execution_path"] = json!(["other", "analyzer"]));
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    assert!(says(&report.warnings, "abc789.json", "another run of the graph"), "{:?}", report.warnings);
    let next = inspect(&engine, &engine.key(SESSION).unwrap(), NEXT).await;
    assert_eq!(register(&next, "graph"), json!({"turn": 2, "step": 4, "path_from": 2, "step_from": 2}));
    assert_eq!(register(&next, "strand/0"), json!({"node": "analyzer", "phase": "running", "step": 4, "turn": 1}));
    assert_eq!(log(&next, "path")[2]["node"], "other");
    assert!(next.state.register("visits/collector").is_none());
}

#[tokio::test]
async fn a_completed_session_has_come_to_its_end() {
    let directory = copy("session_directory/deep_research_agent");
    change(directory.path(), NEXT, |object| object["checkpoint_type"] = json!("node_complete"));
    let state = directory.path().join(format!("sessions/{SESSION}/state.json"));
    fs::write(&state, r#"{"status": "completed"}"#).unwrap();
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::session_directory(&engine, &directory.path().join("sessions"), ImportOptions::new())
        .await
        .unwrap();
    assert_eq!(report.sessions[0].status, Status::Succeeded);
    let next = inspect(&engine, &engine.key(SESSION).unwrap(), NEXT).await;
    assert_eq!(register(&next, "graph"), json!({"turn": 1, "step": 3, "done": true}));
    assert_eq!(register(&next, "strand/0"), json!({"node": "analyzer", "phase": "ended"}));
    assert_eq!(log(&next, "path")[2].get("next"), None);
}

#[tokio::test]
async fn a_session_directory_itself_is_read_and_what_cannot_be_resumed_from_stays_so() {
    let directory = copy("session_directory");
    let agent = directory.path().join("deep_research_agent");
    change(&agent, COMPLETE, |object| object["can_resume_from"] = json!(false));
    let engine = Engine::memory().unwrap();
    let path = agent.join("sessions").join(SESSION);
    let report = rekindle_import::session_directory(&engine, &path, ImportOptions::new()).await.unwrap();
    assert_eq!(report.sessions.len(), 1);
    let key = engine.key(SESSION).unwrap();
    assert_eq!(operations::show(&engine, &key).await.unwrap().header.agent.as_deref(), Some("deep_research_agent"));
    let resumable: Vec<_> = checkpoints(&engine, &key).await.iter().map(|mark| mark.resumable).collect();
    assert_eq!(resumable, [true, false, true]);
}

#[tokio::test]
async fn a_mark_by_hand_behind_a_node_does_not_take_the_node_back() {
    let directory = copy("session_directory/deep_research_agent");
    let folder = directory.path().join(format!("sessions/{SESSION}/checkpoints"));
    let text = fs::read_to_string(folder.join(format!("{COMPLETE}.json"))).unwrap();
    let mut object: Value = serde_json::from_str(&text).unwrap();
    object["checkpoint_id"] = json!("safe");
    object["checkpoint_type"] = json!("safe_point");
    object["created_at"] = json!("2026-02-08T14:30:31Z");
    fs::write(folder.join("safe.json"), object.to_string()).unwrap();
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    let key = engine.key(SESSION).unwrap();
    let kinds: Vec<_> = checkpoints(&engine, &key).await.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds[2], CheckpointType::SafePoint);
    let ready = json!({"node": "analyzer", "phase": "ready"});
    let at_work = json!({"node": "analyzer", "phase": "running", "step": 3, "turn": 1});
    for (id, strand) in [(COMPLETE, &ready), ("safe", &ready), (NEXT, &at_work)] {
        let seen = inspect(&engine, &key, id).await;
        assert_eq!(register(&seen, "graph")["turn"], json!(1), "{id}: {:?}", report.warnings);
        assert_eq!(register(&seen, "strand/0"), *strand, "{id}");
        assert_eq!(log(&seen, "path").len(), 2, "{id}");
    }
}

#[tokio::test]
async fn a_mark_by_hand_that_names_what_comes_next_stands_behind_its_node() {
    let directory = copy("session_directory/deep_research_agent");
    change(directory.path(), COMPLETE, |object| {
        object["checkpoint_type"] = json!("user_checkpoint");
        object["next_node"] = json!("analyzer");
    });
    let engine = Engine::memory().unwrap();
    rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    let seen = inspect(&engine, &engine.key(SESSION).unwrap(), COMPLETE).await;
    assert_eq!(register(&seen, "strand/0"), json!({"node": "analyzer", "phase": "ready"}));
    assert_eq!(log(&seen, "path")[1]["node"], "collector");
    assert_eq!(log(&seen, "path")[1]["next"], json!(["analyzer"]));
}

#[tokio::test]
async fn a_cycle_is_counted() {
    let directory = copy("session_directory/deep_research_agent");
    change(directory.path(), NEXT, |object| {
        object["current_node"] = json!("collector");
        object["execution_path"] = json!(["start", "collector", "collector"]);
    });
    let engine = Engine::memory().unwrap();
    rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    let key = engine.key(SESSION).unwrap();
    let complete = inspect(&engine, &key, COMPLETE).await;
    assert_eq!(register(&complete, "strand/0"), json!({"node": "collector", "phase": "ready"}));
    assert_eq!(log(&complete, "path")[1]["next"], json!(["collector"]));
    change(directory.path(), NEXT, |object| object["checkpoint_type"] = json!("node_complete"));
    let engine = Engine::memory().unwrap();
    rekindle_import::session_directory(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    let last = inspect(&engine, &key, NEXT).await;
    assert_eq!(register(&last, "visits/collector"), json!(2));
    assert_eq!(log(&last, "path")[2]["visit"], json!(2));
}
