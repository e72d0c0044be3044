//! The outcomes of calls whose step is not finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rekindle::Agent;
use rekindle::core::Record;
use rekindle::core::record::{EffectKind, RunOutcome};
use rekindle::tool::{Retries, ToolError, tool};
use rekindle_models::{Call, Script, ScriptedModel};

use crate::common::{Life, agent, died, noting, of, resume};
use crate::support::{Kind, Ledger, Of, World, messages, records, state};

/// Three calls at once; the process dies in the second when `settled` of them are on record.
fn parallel(life: &Life, ledger: &Ledger, settled: usize, pending_writes: bool) -> Agent {
    let calls = [Call::new("note", of("a")), Call::new("die", of("here")), Call::new("note", of("b"))];
    let script = Script::new("m").calls(calls).call("note", of("c")).text("done");
    // A call that is not replay-safe is on record in any case, and with it what led to it.
    let die = life.die_behind(settled);
    let die = if pending_writes { die } else { die.replay_safe() };
    Agent::builder("tester", ScriptedModel::new(script))
        .durability(rekindle::Durability::Sync)
        .checkpoints(rekindle::Frequency::PerIteration)
        .pending_writes(pending_writes)
        .tool(noting(ledger, "note"))
        .tool(die)
        .build()
        .unwrap()
}

/// The calls on record after the process died: how many ended, how many are open.
async fn crashed(world: &World, pending_writes: bool) -> (usize, usize) {
    let life = Life::mortal();
    let session = life.engine(world).create("s").await.unwrap();
    let settled = if pending_writes { 2 } else { 0 };
    died(parallel(&life, &world.ledger(), settled, pending_writes).run_once("go", &session).await);
    world.pass_leases();
    let state = state(&world.engine(), session.key()).await;
    let tools = || state.effects().filter(|effect| effect.intent.kind == EffectKind::Tool);
    (tools().filter(|effect| effect.is_settled()).count(), tools().filter(|effect| !effect.is_settled()).count())
}

#[tokio::test]
async fn pending_writes_parallel_functions_saves_successful_results() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        assert_eq!(crashed(&world, true).await, (2, 1), "{kind:?}");
        let engine = world.engine();
        let session = engine.key("s").unwrap();
        let state = state(&engine, &session).await;
        let mut saved: Vec<_> = state
            .effects()
            .filter_map(|effect| Some(effect.outcome.as_ref()?.value.as_ref()?.as_str().contains("\"a\"")))
            .collect();
        saved.sort_unstable();
        assert_eq!(saved, [false, true], "{kind:?}: the results themselves are there");
        assert_eq!(messages(&engine, &session).await.len(), 2, "{kind:?}: but not in the conversation yet");
    }
}

#[tokio::test]
async fn pending_writes_with_crash_recovery_restores_pending_writes() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        crashed(&world, true).await;
        let engine = world.engine();
        let ledger = world.ledger();
        resume(&parallel(&Life::immortal(), &ledger, 2, true), &engine).await;
        let counts = ledger.counts();
        assert!(counts.values().all(|count| *count == 1) && counts.len() == 3, "{kind:?}: {counts:?}");
        let said = messages(&engine, &engine.key("s").unwrap()).await;
        let results: Vec<_> = said.iter().flat_map(|message| message.results()).collect();
        let results: Vec<_> = results.iter().map(|result| result.content.as_str()).collect();
        assert_eq!(results, ["\"a\"", "\"outlived here\"", "\"b\"", "\"c\""], "{kind:?}: in the order of the calls");
    }
}

#[tokio::test]
async fn pending_writes_after_successful_checkpoint_cleans_up_pending_writes() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        crashed(&world, true).await;
        let engine = world.engine();
        let session = engine.key("s").unwrap();
        resume(&parallel(&Life::immortal(), &world.ledger(), 2, true), &engine).await;
        let checkpoints = engine.journal().checkpoints(&session, None, None, 10).await.unwrap();
        assert_eq!(checkpoints.len(), 4, "{kind:?}: input, two iterations, the end");
        for checkpoint in checkpoints {
            let restored = engine.journal().load(&session, Some(&checkpoint.position)).await.unwrap();
            let pending: Vec<_> = restored.state.effects().collect();
            assert!(pending.is_empty(), "{kind:?}, {}: {pending:?}", checkpoint.checkpoint.description);
        }
        assert_eq!(state(&engine, &session).await.effects().count(), 0);
    }
}

#[tokio::test]
async fn pending_writes_disabled_does_not_save_pending_writes() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        assert_eq!(crashed(&world, false).await, (0, 0), "{kind:?}");
        let engine = world.engine();
        let ledger = world.ledger();
        assert_eq!(ledger.lines(), ["note a", "note b"], "{kind:?}: they had ended");
        resume(&parallel(&Life::immortal(), &ledger, 0, false), &engine).await;
        assert_eq!((ledger.count("note a"), ledger.count("note b")), (2, 2), "{kind:?}: repeated whole");
        assert_eq!(messages(&engine, &engine.key("s").unwrap()).await.len(), 8);
        let weakened = records(&engine, &engine.key("s").unwrap(), &rekindle::BranchId::main()).await;
        let weakened: Vec<_> = weakened
            .into_iter()
            .filter_map(|(_, record)| match record {
                Record::RunStarted(started) => Some(started.weakened),
                _ => None,
            })
            .collect();
        assert!(weakened.iter().all(|said| said[0].starts_with("pending_writes=false")), "{kind:?}: {weakened:?}");
    }
}

#[tokio::test]
async fn pending_writes_are_on_unless_switched_off() {
    let agent = agent(&Life::immortal(), Script::new("m")).build().unwrap();
    assert!(agent.options().pending_writes);
}

/// A try that is known not to have happened leaves nobody in doubt.
#[tokio::test]
async fn a_try_that_failed_in_passing_is_made_again_without_asking_anybody() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let tried = Arc::new(tokio::sync::Notify::new());
        let fails = Arc::new(AtomicBool::new(true));
        let build = || {
            let (tried, fails) = (Arc::clone(&tried), Arc::clone(&fails));
            let pay = tool("pay", "Pays.", move |_, of: Of| {
                let failing = fails.load(Ordering::SeqCst);
                tried.notify_one();
                async move { if failing { Err(ToolError::retry("the bank is closed")) } else { Ok(of.what) } }
            });
            let minute = Duration::from_secs(60);
            let retries = Retries { attempts: 3, first_pause: minute, longest_pause: minute };
            let script = Script::new("m").call("pay", of("rent")).text("done");
            agent(&Life::immortal(), script).tool(pay.writes().retries(retries)).build().unwrap()
        };
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let handle = build().run("go", &session).await.unwrap();
        tried.notified().await;
        handle.stop("closing time");
        let report = handle.report().await.unwrap();
        assert_eq!(report.outcome, RunOutcome::Paused, "{kind:?}: {report:?}");
        fails.store(false, Ordering::SeqCst);
        assert_eq!(resume(&build(), &world.engine()).await.text(), "done", "{kind:?}");
    }
}
