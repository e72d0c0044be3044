//! JSON session folders.

use std::fs;

use rekindle::core::record::{CheckpointSource, CheckpointTrigger, CheckpointType};
use rekindle::message::Part;
use rekindle::operations::{self, At, ForkOptions, pending};
use rekindle::tool::{ToolError, tool};
use rekindle::{Agent, Engine, Message, ResumeOptions, Role, RunOutcome, SessionQuery, Status};
use rekindle_import::{Existing, ImportOptions, ImportReport};
use rekindle_models::{By, Script, ScriptedModel};
use serde_json::{Value, json};

use crate::kit::{at, checkpoints, copy, fixture, inspect, log, register, says};
use crate::support::{Kind, Ledger, World};

async fn import(engine: &Engine) -> ImportReport {
    rekindle_import::json_sessions(engine, &fixture("json_sessions"), ImportOptions::new()).await.unwrap()
}

#[tokio::test]
async fn every_snapshot_and_checkpoint_becomes_a_checkpoint_in_order() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine).await;
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    let key = engine.key("trip").unwrap();
    let marks = checkpoints(&engine, &key).await;
    let ids: Vec<&str> = marks.iter().map(|mark| mark.id.as_str()).collect();
    assert_eq!(ids, ["snap-1", "ck-1", "ck-2"]);
    let kinds: Vec<_> = marks.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds, [CheckpointType::Turn, CheckpointType::Iteration, CheckpointType::Iteration]);
    assert_eq!(marks[2].step, 2);
    assert_eq!(marks[2].parent.as_ref(), Some(&marks[1].id));
    assert!(marks.iter().all(|mark| mark.trigger == CheckpointTrigger::Auto && mark.clean && mark.resumable));
    assert_eq!(marks[1].source, CheckpointSource::Loop);
    assert_eq!(marks[1].extra["imported_at_source"], "2025-01-15T10:05:00Z");
    assert_eq!(marks[2].extra["imported_parent"], "ck-1");
    assert!(
        report.sessions.iter().all(|session| session.checkpoints.len() == if session.session == key { 3 } else { 2 })
    );
}

#[tokio::test]
async fn sessions_are_listed_with_what_the_source_says_of_them() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine).await;
    let page = operations::list(&engine, &SessionQuery::new(rekindle::Namespace::default())).await.unwrap();
    assert_eq!(page.sessions.len(), 2);
    let status = |id: &str| {
        let info = page.sessions.iter().find(|info| info.header.key.id.as_str() == id).unwrap();
        info.current_branch().unwrap().status
    };
    assert_eq!((status("sums"), status("trip")), (Status::Succeeded, Status::Paused));
    assert_eq!(
        report.sessions.iter().map(|session| session.status).collect::<Vec<_>>(),
        [Status::Succeeded, Status::Paused]
    );
    let shown = operations::show(&engine, &engine.key("trip").unwrap()).await.unwrap();
    assert_eq!(shown.header.metadata["customer"].as_str(), "\"maria\"");
    assert_eq!(shown.header.agent.as_deref(), Some("guide"));
    let mark = shown.header.metadata["import"].to_value().unwrap();
    assert_eq!((&mark["complete"], &mark["form"]), (&json!(true), &json!("json_sessions")));
    assert_eq!(mark["created_at"], "2025-01-15T09:59:00Z");
    assert!(operations::verify(&engine, &shown.header.key, &Default::default()).await.unwrap().sound);
}

/// The texts, calls and results of a conversation of the source.
fn told_there(values: &Value) -> Vec<String> {
    let mut told = Vec::new();
    for message in values.as_array().unwrap() {
        for part in message["contents"].as_array().unwrap() {
            told.push(match part["$type"].as_str().unwrap() {
                "text" => format!("{} {}", message["role"], part["text"]),
                "functionCall" => format!("call {} {} {}", part["callId"], part["name"], part["arguments"]),
                _ => format!("result {} {}", part["callId"], part["result"]),
            });
        }
    }
    told
}

fn told_here(messages: &[Message]) -> Vec<String> {
    let parts = messages.iter().flat_map(|message| message.parts.iter().map(move |part| (message.role, part)));
    let told = parts.map(|(role, part)| match part {
        Part::Text(text) => format!("{} {}", serde_json::to_string(&role).unwrap(), json!(text)),
        Part::ToolCall(call) => format!("call {:?} {:?} {}", call.id, call.name, call.arguments.to_value().unwrap()),
        Part::ToolResult(result) => format!("result {:?} {}", result.call, result.content.to_value().unwrap()),
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[tokio::test]
async fn the_conversation_at_each_checkpoint_is_that_of_the_source() {
    let engine = Engine::memory().unwrap();
    import(&engine).await;
    let key = engine.key("trip").unwrap();
    for (file, id, path) in [
        ("snapshots/snap-1", "snap-1", "/Messages"),
        ("checkpoints/ck-1", "ck-1", "/ExecutionState/CurrentMessages"),
        ("checkpoints/ck-2", "ck-2", "/ExecutionState/CurrentMessages"),
    ] {
        let text = fs::read_to_string(fixture(&format!("json_sessions/sessions/trip/{file}.json"))).unwrap();
        let source: Value = serde_json::from_str(&text).unwrap();
        let seen = inspect(&engine, &key, id).await;
        let messages = Agent::messages(&seen.state).unwrap();
        assert_eq!(told_here(&messages), told_there(source.pointer(path).unwrap()), "{id}");
    }
}

#[tokio::test]
async fn the_registers_say_where_the_loop_stands() {
    let engine = Engine::memory().unwrap();
    import(&engine).await;
    let key = engine.key("trip").unwrap();
    let at = |turn: u64, iteration: u64, step: u64, phase: &str| json!({"turn": turn, "iteration": iteration, "step": step, "phase": phase, "failures": 0, "steered": 0, "queued": 0});
    let snapshot = inspect(&engine, &key, "snap-1").await;
    assert_eq!(register(&snapshot, "loop"), at(1, 1, 1, "idle"));
    assert_eq!(register(&snapshot, "imported/middleware/HistoryReduction"), json!({"lastSummarised": 0}));
    assert_eq!(register(&snapshot, "imported/metadata"), json!({"customer": "maria", "vip": true}));
    let think = inspect(&engine, &key, "ck-1").await;
    assert_eq!(register(&think, "loop"), at(2, 2, 3, "think"));
    assert_eq!(register(&think, "imported/execution")["ExpandedPlugins"], json!(["maps"]));
    assert_eq!(think.status, Status::Running);
    let act = inspect(&engine, &key, "ck-2").await;
    assert_eq!(register(&act, "loop"), at(2, 2, 3, "act"));
    let settled: Vec<_> = act.effects.iter().map(|effect| (effect.effect.as_str(), effect.settled)).collect();
    assert_eq!(settled, [("t3.0.c2", true), ("t3.1.c3", true)]);
    assert_eq!(act.run.as_ref().map(|run| run.executor.as_str()), Some("agent"));
}

#[tokio::test]
async fn a_pending_write_without_a_call_is_kept_and_named() {
    let engine = Engine::memory().unwrap();
    let report = import(&engine).await;
    let key = engine.key("trip").unwrap();
    assert!(says(&report.warnings, "ck-2.json", "log `pending/ck-2` has them"), "{:?}", report.warnings);
    let kept = pending::load(&engine, &key, "ck-2").await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].call.as_str(), kept[0].tool.as_str(), kept[0].result.as_str()), ("c9", "gone", "1"));
}

#[tokio::test]
async fn checkpoints_are_compared_and_forked() {
    let engine = Engine::memory().unwrap();
    import(&engine).await;
    let key = engine.key("trip").unwrap();
    let diff = operations::diff(&engine, (&key, &at("snap-1")), (&key, &at("ck-1"))).await.unwrap();
    assert!(!diff.same);
    assert!(diff.text.contains("messages"), "{}", diff.text);
    let appended = diff.patch.as_array().unwrap().iter().filter(|change| change["op"] == "add");
    assert!(appended.clone().any(|change| change["path"] == "/logs/messages/-"), "{:#}", diff.patch);
    let fork = operations::fork(&engine, &key, &at("ck-1"), ForkOptions::default()).await.unwrap();
    let seen = operations::inspect(&engine, &key, &At::Head(fork.branch)).await.unwrap();
    assert_eq!(log(&seen, "messages").len(), 5);
}

#[derive(serde::Deserialize, rekindle::schemars::JsonSchema)]
#[schemars(crate = "rekindle::schemars")]
struct Anything {
    #[serde(flatten)]
    all: serde_json::Map<String, Value>,
}

/// An agent whose tools write down that they were called.
fn guide(ledger: &Ledger, script: Script) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(script.by(By::Calls));
    let mut builder = Agent::builder("guide", model.clone());
    for name in ["weather", "news", "stocks", "add"] {
        let ledger = ledger.clone();
        builder = builder.tool(tool(name, "Tells.", move |_, of: Anything| {
            let ledger = ledger.clone();
            async move {
                ledger.write(&format!("{name} {}", Value::Object(of.all)));
                Ok::<_, ToolError>(format!("{name} here"))
            }
        }));
    }
    (builder.build().unwrap(), model)
}

#[tokio::test]
async fn an_unfinished_turn_goes_on_and_repeats_no_finished_call() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        import(&world.engine()).await;
        let session = world.engine().open_session("trip").await.unwrap();
        let (agent, model) = guide(&world.ledger(), Script::new("m").text("All told."));
        let report = agent.resume(&session).await.unwrap().report().await.unwrap();
        assert_eq!((report.outcome, report.text()), (RunOutcome::Succeeded, "All told.".into()));
        assert_eq!(world.ledger().lines(), [r#"stocks {"of":"ACME"}"#]);
        assert_eq!(model.requests().len(), 1);
        let messages = crate::support::messages(&world.engine(), session.key()).await;
        let results: Vec<_> =
            messages.iter().flat_map(Message::results).map(|result| result.content.to_string()).collect();
        assert_eq!(results, [r#""sun""#, r#"["calm"]"#, r#""snow""#, r#""stocks here""#]);
        assert_eq!(messages.last().map(Message::text).as_deref(), Some("All told."));
    }
}

#[tokio::test]
async fn an_earlier_checkpoint_is_resumed_on_a_branch_of_its_own() {
    let world = World::new(Kind::Memory);
    import(&world.engine()).await;
    let session = world.engine().open_session("trip").await.unwrap();
    let (agent, model) = guide(&world.ledger(), Script::new("m").text("That will do."));
    let options = ResumeOptions::new("maria").from_checkpoint(rekindle::CheckpointId::new("ck-1").unwrap());
    let report = agent.resume_with(&session, options).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "That will do.");
    assert!(world.ledger().lines().is_empty());
    assert_eq!(model.requests().len(), 1);
    let page = operations::log(&world.engine(), session.key(), 10).await.unwrap();
    assert_eq!(page.branches.len(), 2);
}

#[tokio::test]
async fn a_finished_turn_takes_the_next_message() {
    let world = World::new(Kind::Memory);
    import(&world.engine()).await;
    let session = world.engine().open_session("sums").await.unwrap();
    let (agent, model) = guide(&world.ledger(), Script::new("m").text("You are welcome."));
    assert!(agent.resume(&session).await.is_err());
    let report = agent.run_once("thanks", &session).await.unwrap();
    assert_eq!(report.text(), "You are welcome.");
    assert_eq!(model.requests().len(), 1);
    let messages = crate::support::messages(&world.engine(), session.key()).await;
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::User, Role::Assistant]);
    let at = crate::support::state(&world.engine(), session.key()).await.register("loop").unwrap().to_value().unwrap();
    assert_eq!((&at["turn"], &at["step"]), (&json!(2), &json!(3)));
}

#[tokio::test]
async fn results_of_an_unfinished_step_stand_where_the_loop_looks_for_them() {
    let directory = copy("json_sessions");
    let path = directory.path().join("sessions/trip/checkpoints/ck-2.json");
    let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let messages = object.pointer_mut("/ExecutionState/CurrentMessages").unwrap().as_array_mut().unwrap();
    messages.push(json!({"role": "tool", "contents": [{"$type": "functionResult", "callId": "c4", "result": 7}]}));
    fs::write(&path, object.to_string()).unwrap();
    fs::remove_dir_all(directory.path().join("pending")).unwrap();
    let world = World::new(Kind::Memory);
    rekindle_import::json_sessions(&world.engine(), directory.path(), ImportOptions::new()).await.unwrap();
    let session = world.engine().open_session("trip").await.unwrap();
    let (agent, _) = guide(&world.ledger(), Script::new("m").text("All told."));
    agent.resume(&session).await.unwrap().report().await.unwrap();
    let counts = world.ledger().counts();
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["news {}", r#"weather {"city":"Oslo"}"#]);
}

#[tokio::test]
async fn one_folder_and_the_directory_of_all_are_read_too() {
    for path in ["json_sessions/sessions", "json_sessions/sessions/trip"] {
        let engine = Engine::memory().unwrap();
        let report = rekindle_import::json_sessions(&engine, &fixture(path), ImportOptions::new()).await.unwrap();
        let trip = report.sessions.iter().find(|session| session.session.id.as_str() == "trip").unwrap();
        assert_eq!(trip.checkpoints.len(), 3);
        assert_eq!(inspect(&engine, &trip.session, "ck-2").await.effects.len(), 2, "pending writes are found");
    }
}

#[tokio::test]
async fn a_repeated_import_is_refused_or_skipped() {
    let engine = Engine::memory().unwrap();
    let first = import(&engine).await;
    let again = rekindle_import::json_sessions(&engine, &fixture("json_sessions"), ImportOptions::new()).await;
    let error = again.unwrap_err();
    assert_eq!(error.code(), "RK0004");
    assert!(error.message().contains("was imported before"), "{error}");
    let options = ImportOptions::new().with_existing(Existing::Skip);
    let report = rekindle_import::json_sessions(&engine, &fixture("json_sessions"), options).await.unwrap();
    assert!(report.sessions.is_empty() && first.sessions.len() == 2);
    assert!(says(&report.skipped, "trip", "was imported before"));
    let other = engine.clone().in_namespace(rekindle::Namespace::new("other").unwrap());
    assert_eq!(import(&other).await.sessions.len(), 2);
}

#[tokio::test]
async fn a_dry_run_reports_the_same_and_writes_nothing() {
    let engine = Engine::memory().unwrap();
    let options = ImportOptions::new().dry_run();
    let dry = rekindle_import::json_sessions(&engine, &fixture("json_sessions"), options).await.unwrap();
    assert!(dry.dry_run);
    assert!(
        operations::list(&engine, &SessionQuery::new(rekindle::Namespace::default()))
            .await
            .unwrap()
            .sessions
            .is_empty()
    );
    let wet = import(&engine).await;
    assert_eq!(dry.sessions, wet.sessions);
    assert_eq!((dry.skipped, dry.warnings), (wet.skipped, wet.warnings));
}

#[tokio::test]
async fn a_long_conversation_is_imported_whole() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("sessions/long/snapshots");
    fs::create_dir_all(&folder).unwrap();
    let text = "x".repeat(10_000);
    let said: Vec<Value> = (0..400)
        .map(|number| json!({"role": if number % 2 == 0 { "user" } else { "assistant" }, "content": format!("{number} {text}")}))
        .collect();
    for (file, count) in [("a", 398), ("b", 400)] {
        let snapshot = json!({"messages": said[..count], "lastActivity": format!("2025-02-01T08:00:{}Z", count - 350)});
        fs::write(folder.join(format!("{file}.json")), snapshot.to_string()).unwrap();
    }
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::json_sessions(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    let key = engine.key("long").unwrap();
    assert_eq!(log(&inspect(&engine, &key, "a").await, "messages").len(), 398);
    let seen = inspect(&engine, &key, "b").await;
    let here: Vec<_> = Agent::messages(&seen.state).unwrap().iter().map(Message::text).collect();
    let there: Vec<_> = said.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(here, there);
}

#[tokio::test]
async fn a_history_that_was_rewritten_is_replaced_and_named() {
    let directory = copy("json_sessions");
    let path = directory.path().join("sessions/trip/checkpoints/ck-1.json");
    let text = fs::read_to_string(&path).unwrap().replace("Hello, how can I help?", "(summary)");
    fs::write(&path, text).unwrap();
    let engine = Engine::memory().unwrap();
    let report = rekindle_import::json_sessions(&engine, directory.path(), ImportOptions::new()).await.unwrap();
    assert!(says(&report.warnings, "ck-1.json", "another than before from item 1"), "{:?}", report.warnings);
    let key = engine.key("trip").unwrap();
    let texts = async |id: &str| {
        let seen = inspect(&engine, &key, id).await;
        Agent::messages(&seen.state).unwrap().iter().map(Message::text).collect::<Vec<_>>()
    };
    assert_eq!(texts("snap-1").await[1], "Hello, how can I help?");
    assert_eq!(texts("ck-1").await[1], "(summary)");
    assert_eq!(texts("ck-2").await[1], "Hello, how can I help?");
}

#[tokio::test]
async fn a_finished_call_with_a_secret_in_it_is_recognised() {
    let directory = copy("json_sessions");
    let path = directory.path().join("sessions/trip/checkpoints/ck-2.json");
    let mut object: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let calls = object.pointer_mut("/ExecutionState/CurrentMessages/5/contents").unwrap();
    calls[1]["arguments"] = json!({"city": "Oslo", "api_key": "sk-secret"});
    fs::write(&path, object.to_string()).unwrap();
    let world = World::new(Kind::Memory);
    let report = rekindle_import::json_sessions(&world.engine(), directory.path(), ImportOptions::new()).await.unwrap();
    assert_eq!(report.redacted[0].key, "api_key");
    let session = world.engine().open_session("trip").await.unwrap();
    let (agent, _) = guide(&world.ledger(), Script::new("m").text("All told."));
    let run = agent.resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(run.text(), "All told.");
    assert_eq!(world.ledger().lines(), [r#"stocks {"of":"ACME"}"#]);
}
