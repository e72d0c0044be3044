//! The state of a loop as it is stored: all of it, in order, in versions.

use std::time::Duration;

use async_trait::async_trait;
use rekindle::core::Record;
use rekindle::core::record::{
    Checkpoint, CheckpointSource, CheckpointTrigger, CheckpointType, LogAppend, RunOutcome, Usage,
};
use rekindle::message::{Role, ToolCall};
use rekindle::middleware::{Gate, Middleware, MiddlewareState, StateSpec, Verdict};
use rekindle::model::ModelRequest;
use rekindle::tool::{ToolError, ToolGroup, ToolOutput, tool};
use rekindle::{
    Agent, Budget, Budgets, CheckpointId, ErrorKind, Frequency, Json, Message, Result, ResumeOptions, Status,
};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::common::{Life, agent, append, died, interrupted, messages_log, of, resume, script};
use crate::support::{Kind, Of, World, records, state};

/// Counts what it sees, in each of its hooks.
#[derive(Debug)]
struct Counter(StateSpec);

#[async_trait]
impl Middleware for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn state(&self) -> StateSpec {
        self.0
    }

    async fn before_model(&self, state: &mut MiddlewareState, _: &mut ModelRequest) -> Result<Verdict> {
        let seen: u64 = state.get()?.unwrap_or(0);
        state.set(&(seen + 1))?;
        Ok(Verdict::Continue)
    }

    async fn before_tool(&self, _: &mut MiddlewareState, _: &mut ToolCall) -> Result<Gate> {
        Ok(Gate::Open)
    }
}

#[tokio::test]
async fn agent_loop_state_serialize_produces_valid_json() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = interrupted(&world).await;
        let engine = world.engine();
        let state = state(&engine, &session).await;
        let text = serde_json::to_string(&state.to_value().unwrap()).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, state.to_value().unwrap());
        assert_eq!(read["logs"]["messages"].as_array().unwrap().len(), 6);
        let at = &read["registers"]["loop"];
        assert_eq!((&at["turn"], &at["iteration"], &at["phase"]), (&json!(1), &json!(3), &json!("act")), "{at}");
        for (_, record) in records(&engine, &session, &rekindle::BranchId::main()).await {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
        }
    }
}

/// Something of everything a loop remembers.
fn rich(life: &Life, script: Script) -> Agent {
    let files =
        ToolGroup::new("files", "Files.").tool(tool("list", "Lists.", async |_, of: Of| Ok::<_, ToolError>(of.what)));
    agent(life, script)
        .tool(tool("broken", "Fails.", async |_, _: Of| Err::<(), _>(ToolError::failed("no"))))
        .tool(tool("stop", "Ends the turn.", async |_, of: Of| {
            Ok::<_, ToolError>(ToolOutput::json(Json::from("stopped")).and_terminate(of.what))
        }))
        .tool(tool("remember", "Remembers.", async |_, of: Of| {
            Ok::<_, ToolError>(ToolOutput::json(Json::from("ok")).and_remember("colour", Json::from(of.what.as_str())))
        }))
        .group(files)
        .middleware(Counter(StateSpec { version: 2, ..StateSpec::default() }))
        .budgets(Budgets::new().with(Budget::Iterations, 6).with(Budget::Tokens, 10_000))
        .build()
        .unwrap()
}

fn rich_script(ending: Turn) -> Script {
    let usage = Usage { input_tokens: 10, output_tokens: 5, cost_micros: 7 };
    Script::new("m")
        .turn(Turn::call("files", json!({})).with_usage(usage))
        .turn(Turn::calls([Call::new("list", of("x")), Call::new("remember", of("blue"))]).with_usage(usage))
        .turn(Turn::call("broken", of("y")).with_usage(usage))
        .turn(Turn::calls([Call::new("broken", of("y")), Call::new("broken", of("y"))]).with_usage(usage))
        .turn(Turn::call("die", of("here")).with_usage(usage))
        .turn(ending)
}

#[tokio::test]
async fn agent_loop_state_deserialize_restores_complete_state() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let life = Life::mortal();
        let engine = life.engine(&world);
        let session = engine.create("s").await.unwrap();
        let ending = Turn::call("stop", of("enough"));
        died(rich(&life, rich_script(ending.clone())).run_once("go", &session).await);
        let dying = state(&engine, session.key()).await.to_value().unwrap();
        world.pass_leases();

        let engine = world.engine();
        let restored = state(&engine, session.key()).await;
        assert_eq!(restored.to_value().unwrap(), dying);
        assert_eq!(restored.status(), Status::Running, "as stored; without a lease it is interrupted");
        let registers = &dying["registers"];
        let at = &registers["loop"];
        assert_eq!((&at["turn"], &at["iteration"], &at["failures"]), (&json!(1), &json!(5), &json!(2)), "{at}");
        assert_eq!(registers["groups"], json!(["files"]));
        assert_eq!(registers["memory/colour"], json!("blue"));
        assert_eq!(registers["middleware/counter"], json!({ "version": 2, "scope": "session", "value": 5 }));
        assert_eq!(registers["breaker"]["broken"][1], json!(3), "{}", registers["breaker"]);
        let turn = &registers["budget"]["turn"];
        assert_eq!((&turn["iterations"], &turn["tool_calls"]), (&json!(5), &json!(7)), "{turn}");
        assert_eq!((&turn["input_tokens"], &turn["cost_micros"]), (&json!(50), &json!(35)), "{turn}");
        let roles: Vec<Role> = Agent::messages(&restored).unwrap().iter().map(|message| message.role).collect();
        assert_eq!(roles.iter().filter(|role| **role == Role::Assistant).count(), 5);

        // It goes on with all of it: the open group, the counters, what is left of the budget.
        let script = rich_script(ending).turn(Turn::text("never asked"));
        let report = resume(&rich(&Life::immortal(), script), &engine).await;
        assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Succeeded, "enough"));
        let ended = world.engine();
        let ended = state(&ended, session.key()).await.to_value().unwrap();
        let registers = &ended["registers"];
        assert_eq!(registers["loop"]["ended"], json!("enough"), "why a turn ended is state too");
        assert_eq!(registers["loop"]["phase"], json!("idle"));
        assert_eq!(registers["middleware/counter"]["value"], json!(6));
        assert_eq!(registers["budget"]["turn"]["iterations"], json!(6));
        assert_eq!(registers["groups"], json!(["files"]));
    }
}

#[tokio::test]
async fn budgets_and_the_breaker_are_not_refilled_by_a_restart() {
    let world = World::new(Kind::Sqlite);
    let life = Life::mortal();
    let session = life.engine(&world).create("s").await.unwrap();
    died(rich(&life, rich_script(Turn::text("unused"))).run_once("go", &session).await);
    world.pass_leases();
    let engine = world.engine();
    let session = engine.open_session("s").await.unwrap();
    // Three of `broken` in a row before the crash, two after it: five, which trips the breaker.
    let script = rich_script(Turn::calls([Call::new("broken", of("y")), Call::new("broken", of("y"))]));
    let error = rich(&Life::immortal(), script).resume(&session).await.unwrap().report().await.unwrap_err();
    assert_eq!((error.code(), error.message().contains("5 times")), ("RK0025", true), "{error}");

    let world = World::new(Kind::Sqlite);
    let life = Life::mortal();
    let session = life.engine(&world).create("s").await.unwrap();
    died(rich(&life, rich_script(Turn::text("unused"))).run_once("go", &session).await);
    world.pass_leases();
    let engine = world.engine();
    let session = engine.open_session("s").await.unwrap();
    // The sixth iteration is the last; a seventh would need a full budget.
    let script = rich_script(Turn::call("echo", of("z"))).text("never");
    let report = rich(&Life::immortal(), script).resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Paused, "{report:?}");
    assert!(report.reason.contains("6 of 6"), "{}", report.reason);
}

#[tokio::test]
async fn agent_loop_state_deserialize_newer_version_throws_version_exception() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = interrupted(&world).await;
        let engine = world.engine();
        let newer: Record = serde_json::from_str(r#"{"register_set@7":{"key":"loop","value":1}}"#).unwrap();
        append(&engine, &session, &[newer]).await;
        let handle = engine.open_session("s").await.unwrap();
        let agent = agent(&Life::immortal(), script()).build().unwrap();
        for error in
            [engine.journal().load(&session, None).await.unwrap_err(), agent.resume(&handle).await.unwrap_err()]
        {
            let ErrorKind::VersionTooNew { what, found: 7, supported: 1 } = error.kind() else { panic!("{error:?}") };
            assert!(what.contains("register_set"), "{error}");
            assert!(error.to_string().contains('7') && error.to_string().contains('1'), "{error}");
        }
        // A kind that nobody here knows is kept and passed over.
        let world = World::new(kind);
        let session = interrupted(&world).await;
        let engine = world.engine();
        let newer: Record = serde_json::from_str(r#"{"shiny_new":{"a":1}}"#).unwrap();
        append(&engine, &session, &[newer]).await;
        assert_eq!(state(&engine, &session).await.unknown().len(), 1);
        resume(&agent, &engine).await;
    }
}

#[tokio::test]
async fn agent_loop_state_deserialize_newer_middleware_state_throws_version_exception() {
    let world = World::new(Kind::Sqlite);
    let engine = world.engine();
    let session = engine.create("s").await.unwrap();
    let with = |version| {
        let script = Script::new("m").text("one").text("two");
        let counter = Counter(StateSpec { version, ..StateSpec::default() });
        Agent::builder("tester", ScriptedModel::new(script)).middleware(counter).build().unwrap()
    };
    with(3).run_once("go", &session).await.unwrap();
    let before = state(&engine, session.key()).await;
    let error = with(2).run_once("again", &session).await.unwrap_err();
    let ErrorKind::VersionTooNew { what, found: 3, supported: 2 } = error.kind() else { panic!("{error:?}") };
    assert!(what.contains("counter"), "{error}");
    let after = state(&engine, session.key()).await;
    assert_eq!(after.register("middleware/counter"), before.register("middleware/counter"), "it is left as it was");
    assert_eq!(after.log(&messages_log()), before.log(&messages_log()));
    assert_eq!(with(3).run_once("again", &session).await.unwrap().text(), "two");
}

#[tokio::test]
async fn agent_loop_state_validate_consistency_matching_message_count_succeeds() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = interrupted(&world).await;
        let engine = world.engine();
        let seen = engine.journal().load(&session, None).await.unwrap().head;
        let handle = engine.open_session("s").await.unwrap();
        let agent = agent(&Life::immortal(), script()).build().unwrap();
        let run = agent.resume_with(&handle, ResumeOptions::new("maria").seen(seen)).await.unwrap();
        assert_eq!(run.report().await.unwrap().text(), "done");
    }
}

/// An interrupted session to which somebody else added a message, and what was seen before.
async fn moved_on(world: &World) -> rekindle::core::Head {
    let session = interrupted(world).await;
    let engine = world.engine();
    let seen = engine.journal().load(&session, None).await.unwrap().head;
    let message = Message::user("by the way").to_json().unwrap();
    append(&engine, &session, &[LogAppend::new(messages_log(), vec![message]).into()]).await;
    seen
}

#[tokio::test]
async fn agent_loop_state_validate_consistency_mismatched_message_count_throws_stale_exception() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let seen = moved_on(&world).await;
        let engine = world.engine();
        let handle = engine.open_session("s").await.unwrap();
        let before = handle.info().await.unwrap().branches;
        let agent = agent(&Life::immortal(), script()).build().unwrap();
        let error = agent.resume_with(&handle, ResumeOptions::new("maria").seen(seen)).await.unwrap_err();
        assert_eq!(error.code(), "RK0008", "{error}");
        assert!(error.message().contains("1 records were appended behind"), "{error}");
        let heads =
            |branches: Vec<rekindle::core::BranchInfo>| branches.into_iter().map(|info| info.head).collect::<Vec<_>>();
        assert_eq!(heads(handle.info().await.unwrap().branches), heads(before), "nothing was recorded");
        assert!(handle.info().await.unwrap().live_lease().is_none());
    }
}

#[tokio::test]
async fn agent_loop_state_validate_consistency_allow_stale_does_not_throw() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let seen = moved_on(&world).await;
        let engine = world.engine();
        let handle = engine.open_session("s").await.unwrap();
        let agent = agent(&Life::immortal(), script()).build().unwrap();
        let options = ResumeOptions::new("maria").seen(seen).allow_stale("I added it myself");
        agent.resume_with(&handle, options).await.unwrap().report().await.unwrap();
        let records = records(&engine, handle.key(), &rekindle::BranchId::main()).await;
        let accepted = records.iter().find_map(|(seq, record)| match record {
            Record::StaleAccepted(accepted) => Some((*seq, accepted.clone())),
            _ => None,
        });
        let (_, accepted) = accepted.expect("it is on record that somebody accepted it");
        assert_eq!((accepted.author.as_str(), accepted.reason.as_str()), ("maria", "I added it myself"));
        assert_eq!((accepted.expected, accepted.actual.seq.0), (seen, seen.seq.0 + 1));
    }
}

#[tokio::test]
async fn checkpoint_metadata_default_values_are_correct() {
    let plain = Checkpoint::new(CheckpointId::new("ckpt_1").unwrap());
    assert_eq!((plain.source, plain.trigger), (CheckpointSource::Loop, CheckpointTrigger::Auto));
    assert_eq!((plain.kind, plain.step, plain.parent.clone()), (CheckpointType::Turn, 0, None));
    assert!(plain.clean && plain.resumable && !plain.pinned && plain.tags.is_empty() && plain.description.is_empty());
    assert_eq!(serde_json::to_value(&plain).unwrap(), json!({ "id": "ckpt_1" }), "defaults take no room");

    let world = World::new(Kind::Sqlite);
    let engine = world.engine();
    let session = engine.create("s").await.unwrap();
    let made_at = rekindle::Clock::now(world.clock.as_ref());
    let script = Script::new("m").text("one").text("two");
    let agent = agent(&Life::immortal(), script).checkpoints(Frequency::PerTurn).build().unwrap();
    let first = agent.run_once("go", &session).await.unwrap();
    world.clock.advance(Duration::from_secs(60));
    agent.run_once("go on", &session).await.unwrap();
    let found = engine.journal().checkpoints(session.key(), None, None, 10).await.unwrap();
    let [second, found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.created_at, second.created_at.since(found.created_at)), (made_at, Duration::from_secs(60)));
    let (second, found) = (&second.checkpoint, &found.checkpoint);
    assert!(found.id.as_str().starts_with("ckpt_"));
    assert_eq!((&found.parent, &second.parent), (&None, &Some(found.id.clone())));
    assert_eq!((found.source, found.trigger, found.kind), (plain.source, plain.trigger, plain.kind));
    assert_eq!((found.step, &found.run), (1, &Some(first.run)));
    assert!(found.clean && found.resumable && !found.pinned && found.fingerprint.is_some());
    assert!(second.usage.input_tokens >= found.usage.input_tokens && second.active_micros >= found.active_micros);
}
