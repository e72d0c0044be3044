//! A checkpoint table.

use rekindle::core::record::{CheckpointTrigger, CheckpointType};
use rekindle::operations::{self, ForkOptions};
use rekindle::plan::PlanSpec;
use rekindle::{Engine, Status};
use rekindle_import::{ImportOptions, ImportReport};
use serde_json::{Value, json};

use crate::kit::{at, checkpoints, database, everything, inspect, log, register, says};

async fn import(engine: &Engine, more: &str) -> ImportReport {
    let (_directory, path) = database(more);
    rekindle_import::checkpoint_table(engine, &path, ImportOptions::new()).await.unwrap()
}

fn status(report: &ImportReport, id: &str) -> Status {
    report.sessions.iter().find(|session| session.session.id.as_str() == id).unwrap().status
}

/// When a step ended, in microseconds.
fn micros(text: &str) -> Value {
    let seconds = match text {
        "09:00:05" => 1_772_355_605_u64,
        "09:00:35" => 1_772_355_635,
        "10:00:04" => 1_772_359_204,
        _ => panic!("{text}"),
    };
    json!(seconds * 1_000_000)
}

#[tokio::test]
async fn every_row_becomes_a_checkpoint_in_order() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine, "").await;
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    let key = engine.key("research").unwrap();
    let marks = checkpoints(&engine, &key).await;
    let ids: Vec<&str> = marks.iter().map(|mark| mark.id.as_str()).collect();
    assert_eq!(ids, ["ckpt_1", "ckpt_2", "ckpt_3", "ckpt_4", "ckpt_5"]);
    let steps: Vec<_> = marks.iter().map(|mark| mark.step).collect();
    assert_eq!(steps, [1, 1, 2, 3, 3]);
    assert_eq!(marks[1].trigger, CheckpointTrigger::Error);
    assert_eq!(marks[1].description, "Failed at step 1: Ask for revenue");
    let clean: Vec<_> = marks.iter().map(|mark| mark.clean).collect();
    assert_eq!(clean, [true, false, true, true, true]);
    assert_eq!((marks[1].active_micros, marks[1].usage.input_tokens), (35_100_000, 120));
    assert_eq!(marks[4].description, "Execution complete");
    assert_eq!(marks[4].extra["imported_at_source"], "2026-03-01T10:00:06.200Z");
    let manual = checkpoints(&engine, &engine.key("twice").unwrap()).await;
    assert_eq!((manual[1].trigger, manual[1].kind), (CheckpointTrigger::Manual, CheckpointType::UserCheckpoint));
}

#[tokio::test]
async fn the_status_is_that_of_the_newest_row() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine, "").await;
    assert_eq!(status(&report, "research"), Status::Succeeded);
    assert_eq!(status(&report, "twice"), Status::Paused);
    assert_eq!(status(&report, "broken"), Status::Failed);
    let shown = operations::show(&engine, &engine.key("broken").unwrap()).await.unwrap();
    assert_eq!(shown.header.labels["project"], "boats");
    assert_eq!(
        shown.run.as_ref().map(|run| (run.executor.as_str(), run.reason.as_str())),
        Some(("plan", "API timeout"))
    );
}

#[tokio::test]
async fn the_state_at_each_checkpoint_is_that_of_the_plan() {
    let engine = Engine::memory().unwrap();
    import(&engine, "").await;
    let key = engine.key("research").unwrap();
    let query = "Which boat builders earn most?";
    let first = inspect(&engine, &key, "ckpt_1").await;
    assert_eq!(register(&first, "plan"), json!({"turn": 1, "query": query, "done": false, "results_from": 0}));
    assert_eq!(register(&first, "step/identify"), json!({"turn": 1, "status": "completed"}));
    assert_eq!(register(&first, "step/fetch"), json!({"turn": 1, "status": "pending"}));
    assert_eq!(register(&first, "memory/region"), json!("EU"));
    let result = json!({"step_id": "identify", "output": ["Alder", "Birch"], "completed_at": micros("09:00:05"),
                        "duration_ms": 5000, "tokens": 120});
    assert_eq!(log(&first, "results"), [result]);
    let failed = inspect(&engine, &key, "ckpt_2").await;
    let last_error = json!({"step": "fetch", "message": "API timeout", "at": micros("09:00:35")});
    assert_eq!(
        register(&failed, "plan"),
        json!({"turn": 1, "query": query, "done": false, "results_from": 0, "last_error": last_error})
    );
    assert_eq!(
        register(&failed, "step/fetch"),
        json!({"turn": 1, "status": "failed", "failures": 1, "error": "API timeout"})
    );
    assert_eq!(failed.status, Status::Failed);
    let on = inspect(&engine, &key, "ckpt_3").await;
    assert_eq!(register(&on, "step/fetch"), json!({"turn": 1, "status": "completed", "failures": 1}));
    assert_eq!(register(&on, "step/report"), json!({"turn": 1, "status": "pending"}));
    assert_eq!(log(&on, "results").len(), 2);
    assert_eq!(log(&on, "results")[1]["completed_at"], micros("10:00:04"));
    assert_eq!(on.run.as_ref().unwrap().continues, failed.run.as_ref().map(|run| run.run.clone()), "it was resumed");
    let done = inspect(&engine, &key, "ckpt_5").await;
    assert_eq!(register(&done, "plan")["done"], json!(true));
    assert_eq!(log(&done, "results").len(), 3);
    assert_eq!(done.run.unwrap().run, on.run.unwrap().run, "the last rows belong to one run");
}

#[tokio::test]
async fn the_plan_is_kept_as_it_would_be_written_down() {
    let engine = Engine::memory().unwrap();
    import(&engine, "").await;
    let seen = inspect(&engine, &engine.key("broken").unwrap(), "broken_1").await;
    let plan: PlanSpec = seen.state.register("imported/plan").unwrap().decode().unwrap();
    let steps: Vec<_> = plan.steps.iter().map(|step| (step.id.as_str(), step.action.as_str())).collect();
    assert_eq!(steps, [("identify", "search_database"), ("fetch", "fetch_revenue"), ("report", "write_report")]);
    assert_eq!(plan.steps[1].dependencies, ["identify"]);
    assert_eq!(plan.steps[0].parameters["industry"], "boats");
}

#[tokio::test]
async fn two_runs_of_a_plan_in_one_session_are_never_mixed() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine, "").await;
    assert!(says(&report.warnings, "row 7", "another run of the plan"), "{:?}", report.warnings);
    let key = engine.key("twice").unwrap();
    let first = inspect(&engine, &key, "twice_1").await;
    let second = inspect(&engine, &key, "twice_2").await;
    assert_eq!(first.status, Status::Succeeded);
    let plan = register(&second, "plan");
    assert_eq!((&plan["turn"], &plan["results_from"], &plan["done"]), (&json!(2), &json!(3), &json!(false)));
    let results = log(&second, "results");
    assert_eq!(results.len(), 4);
    assert_eq!(results[3]["output"], json!(["Cedar"]));
    assert_eq!(register(&second, "step/fetch"), json!({"turn": 2, "status": "pending"}));
    assert_eq!(second.run.unwrap().continues, None);
}

#[tokio::test]
async fn checkpoints_are_compared_and_forked() {
    let engine = Engine::memory().unwrap();
    import(&engine, "").await;
    let key = engine.key("research").unwrap();
    let diff = operations::diff(&engine, (&key, &at("ckpt_1")), (&key, &at("ckpt_3"))).await.unwrap();
    assert!(diff.text.contains("results") && diff.text.contains("step/fetch"), "{}", diff.text);
    assert!(!diff.text.contains("step/identify"), "{}", diff.text);
    let fork = operations::fork(&engine, &key, &at("ckpt_2"), ForkOptions::default()).await.unwrap();
    let seen = operations::inspect(&engine, &key, &operations::At::Head(fork.branch)).await.unwrap();
    assert_eq!(register(&seen, "step/fetch")["status"], "failed");
}

#[tokio::test]
async fn secrets_are_taken_out_and_named() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine, "").await;
    assert!(report.redacted.iter().any(|gone| gone.key == "api_key" && gone.session.id.as_str() == "research"));
    let seen = inspect(&engine, &engine.key("research").unwrap(), "ckpt_1").await;
    assert_eq!(register(&seen, "memory/api_key"), json!({"$redacted": "api_key"}));
    assert!(!everything(&engine, &report).await.contains("sk-secret"));
}

#[tokio::test]
async fn times_decide_and_a_disagreement_is_named() {
    let late = "UPDATE checkpoints SET created_at = '2026-02-28T00:00:00Z' WHERE id = 'ckpt_2'";
    let engine = Engine::memory().unwrap();
    let report = import(&engine, late).await;
    let marks = checkpoints(&engine, &engine.key("research").unwrap()).await;
    assert_eq!(marks[0].id.as_str(), "ckpt_2");
    assert!(report.warnings.iter().any(|note| note.reason.contains("times and rows disagree")));
    let engine = Engine::memory().unwrap();
    let report = import(&engine, "UPDATE checkpoints SET created_at = 'soon' WHERE id = 'ckpt_2'").await;
    let marks = checkpoints(&engine, &engine.key("research").unwrap()).await;
    assert_eq!(marks[0].id.as_str(), "ckpt_1");
    assert!(report.warnings.iter().any(|note| note.reason.contains("rows without a time")));
}
