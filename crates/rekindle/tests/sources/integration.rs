//! Checkpoints and resumes as an agent makes them.

use rekindle::core::Record;
use rekindle::core::record::{CheckpointSource, CheckpointType, LogAppend, RunOutcome};
use rekindle::core::retention::{Policy, Rule};
use rekindle::tool::{ToolError, tool};
use rekindle::{Agent, Frequency, Message, ResumeOptions, Status};
use rekindle_models::Script;

use crate::common::{Life, agent, append, died, interrupted, messages_log, noting, of, resume, script};
use crate::support::{Kind, Of, World, messages, records, state};

/// An agent whose tool `look` says how many checkpoints are on record while it runs.
fn looking(frequency: Frequency) -> Agent {
    let look = tool("look", "Looks.", async |call, _: Of| {
        let found = call.engine().journal().checkpoints(call.session(), None, None, 100).await?;
        Ok::<_, ToolError>(found.iter().filter(|at| at.checkpoint.source == CheckpointSource::Loop).count())
    });
    let script = Script::new("m").call("look", of("1")).call("look", of("2")).call("look", of("3")).text("done");
    agent(&Life::immortal(), script).checkpoints(frequency).tool(look).build().unwrap()
}

fn results(messages: &[Message]) -> Vec<String> {
    messages.iter().flat_map(Message::results).map(|result| result.content.as_str().to_owned()).collect()
}

#[tokio::test]
async fn agent_with_checkpointer_saves_checkpoint_after_iteration() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        looking(Frequency::PerIteration).run_once("go", &session).await.unwrap();
        let seen = results(&messages(&engine, session.key()).await);
        assert_eq!(seen, ["0", "1", "2"], "{kind:?}: each iteration finds those before it on record");
        let found = engine.journal().checkpoints(session.key(), None, None, 100).await.unwrap();
        let kinds: Vec<_> = found.iter().rev().map(|at| at.checkpoint.kind).collect();
        let iteration = CheckpointType::Iteration;
        assert_eq!(kinds, [CheckpointType::Turn, iteration, iteration, iteration, CheckpointType::Turn], "{kind:?}");
    }
}

#[tokio::test]
async fn agent_with_checkpointer_per_turn_frequency_saves_after_turn_completes() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let report = looking(Frequency::PerTurn).run_once("go", &session).await.unwrap();
        assert_eq!(results(&messages(&engine, session.key()).await), ["0", "0", "0"], "{kind:?}: none during the turn");
        let found = world.engine().journal().checkpoints(session.key(), None, None, 100).await.unwrap();
        let [found] = &found[..] else { panic!("{kind:?}: {found:?}") };
        assert_eq!((found.checkpoint.kind, &found.checkpoint.run), (CheckpointType::Turn, &Some(report.run)));
        let restored = engine.journal().load(session.key(), Some(&found.position)).await.unwrap();
        assert_eq!(Agent::messages(&restored.state).unwrap().len(), 8, "{kind:?}: the whole turn");
    }
}

#[tokio::test]
async fn agent_resume_from_checkpoint_restores_execution_state() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = interrupted(&world).await;
        let engine = world.engine();
        // From the checkpoint after the first iteration: the second is made again, on a new branch.
        let checkpoint = engine.journal().checkpoint_at_step(&session, None, 1).await.unwrap();
        let checkpoints = engine.journal().checkpoints(&session, None, None, 10).await.unwrap();
        assert_eq!(checkpoints.len(), 3, "{kind:?}: input and two iterations: {checkpoints:?}");
        assert_eq!(checkpoint.checkpoint.source, CheckpointSource::Loop);
        let handle = engine.open_session("s").await.unwrap();
        let script = Script::new("m").call("echo", of("a")).call("echo", of("other")).text("another end");
        let agent = agent(&Life::immortal(), script).build().unwrap();
        let before = records(&engine, &session, &rekindle::BranchId::main()).await;
        let options = ResumeOptions::new("maria").from_checkpoint(checkpoint.checkpoint.id.clone());
        let report = agent.resume_with(&handle, options).await.unwrap().report().await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "another end"));
        assert_ne!(report.branch, rekindle::BranchId::main());
        assert_eq!(results(&messages(&engine, &session).await), ["\"a\"", "\"other\""], "{kind:?}");
        assert_eq!(records(&engine, &session, &rekindle::BranchId::main()).await, before, "the old branch is whole");
    }
}

#[tokio::test]
async fn agent_full_history_mode_creates_multiple_checkpoints() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let agent = agent(&Life::immortal(), script()).retention(Policy::new([Rule::FullHistory])).build().unwrap();
        agent.run_once("go", &session).await.unwrap();
        let found = world.engine().journal().checkpoints(session.key(), None, None, 100).await.unwrap();
        let steps: Vec<_> = found.iter().rev().map(|found| found.checkpoint.step).collect();
        assert_eq!(steps, [1, 1, 2, 3, 4], "{kind:?}: input, three iterations, the end");
        assert!(found.iter().all(|found| found.checkpoint.clean && found.checkpoint.resumable));
    }
}

#[tokio::test]
async fn agent_full_history_mode_can_load_previous_checkpoint() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let whole = agent(&Life::immortal(), script()).retention(Policy::new([Rule::FullHistory])).build().unwrap();
        whole.run_once("go", &session).await.unwrap();
        let engine = world.engine();
        let earlier = engine.journal().checkpoint_at_step(session.key(), None, 2).await.unwrap();
        let restored = engine.journal().load(session.key(), Some(&earlier.position)).await.unwrap();
        assert_eq!(Agent::messages(&restored.state).unwrap().len(), 5, "{kind:?}");
        let at = restored.state.register("loop").unwrap().to_value().unwrap();
        assert_eq!((&at["iteration"], &at["phase"]), (&3.into(), &"think".into()), "{kind:?}: {at}");
        // And go on from there, although the turn was finished.
        let handle = engine.open_session("s").await.unwrap();
        let options = ResumeOptions::new("maria").from_checkpoint(earlier.checkpoint.id);
        let report = whole.resume_with(&handle, options).await.unwrap().report().await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{kind:?}");
        assert_eq!(messages(&engine, session.key()).await.len(), 8);
    }
}

#[tokio::test]
async fn agent_stale_checkpoint_throws_validation_error() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let script = Script::new("m").text("one").text("two").text("three");
        let agent = agent(&Life::immortal(), script).build().unwrap();
        let seen = agent.run_once("go", &session).await.unwrap().head;
        // What was seen is what is there.
        let next = |options| agent.run_with(vec![Message::user("next")], &session, options);
        let report = next(ResumeOptions::new("maria").seen(seen)).await.unwrap().report().await.unwrap();
        assert_eq!(report.text(), "two");
        // By now it is not, whether by a run or by hand.
        let error = next(ResumeOptions::new("maria").seen(seen)).await.unwrap_err();
        assert_eq!(error.code(), "RK0008", "{kind:?}: {error}");
        let item = Message::user("by hand").to_json().unwrap();
        append(&engine, session.key(), &[LogAppend::new(messages_log(), vec![item]).into()]).await;
        let error = next(ResumeOptions::new("maria").seen(report.head)).await.unwrap_err();
        assert_eq!(error.code(), "RK0008", "{kind:?}: {error}");
        assert_eq!(messages(&engine, session.key()).await.len(), 5, "{kind:?}: nothing was added");
    }
}

#[tokio::test]
async fn agent_crash_recovery_can_resume_after_failure() {
    let script = || Script::new("m").call("note", of("a")).call("note", of("b")).call("die", of("here")).text("done");
    for kind in Kind::ALL {
        let world = World::new(kind);
        let ledger = world.ledger();
        let life = Life::mortal();
        let session = life.engine(&world).create("s").await.unwrap();
        let build = |life: &Life| agent(life, script()).tool(noting(&ledger, "note")).build().unwrap();
        died(build(&life).run_once("go", &session).await);
        world.pass_leases();
        let engine = world.engine();
        let info = engine.open_session("s").await.unwrap().info().await.unwrap();
        assert_eq!(info.status(), Status::Interrupted, "{kind:?}: listed as resumable without anybody marking it");
        resume(&build(&Life::immortal()), &engine).await;
        assert_eq!(ledger.lines(), ["note a", "note b"], "{kind:?}: what was done is not done again");
        assert_eq!(messages(&engine, session.key()).await.len(), 8);
        assert_eq!(state(&engine, session.key()).await.status(), Status::Succeeded);
        let runs = records(&engine, session.key(), &rekindle::BranchId::main()).await;
        let runs: Vec<_> = runs
            .into_iter()
            .filter_map(|(_, record)| match record {
                Record::RunStarted(started) => Some(started),
                _ => None,
            })
            .collect();
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[1].continues, Some(runs[0].run.clone()), "{kind:?}: the second run says what it goes on with");
    }
}
