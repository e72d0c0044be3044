//! Clean-up by age, through sessions an agent made.

use std::time::Duration;

use rekindle::core::retention::Reason;
use rekindle::{Engine, Frequency};
use rekindle_models::Script;

use crate::common::{Life, agent, died, script};
use crate::support::{Kind, World, messages};

const DAY: Duration = Duration::from_secs(86_400);

fn speaker() -> rekindle::Agent {
    let script = Script::new("m").text("one").text("two").text("three").text("four");
    agent(&Life::immortal(), script).checkpoints(Frequency::PerTurn).build().unwrap()
}

#[tokio::test]
async fn in_memory_checkpointer_delete_older_than_removes_old_checkpoints() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        for _ in 0..4 {
            speaker().run_once("go", &session).await.unwrap();
            world.clock.advance(DAY);
        }
        // Made four, three, two days ago and yesterday.
        let before = engine.journal().checkpoints(session.key(), None, None, 10).await.unwrap();
        assert_eq!(before.len(), 4);
        let cutoff = engine.journal().clock().now().minus(DAY * 5 / 2);
        let result = engine.journal().delete_older_than(session.key(), cutoff).await.unwrap();
        let removed: Vec<_> = result.plan.remove.iter().map(|planned| planned.checkpoint.clone()).collect();
        let expected: Vec<_> = before[2..].iter().rev().map(|found| found.checkpoint.id.clone()).collect();
        assert_eq!(removed, expected, "{kind:?}");
        let engine = world.engine();
        let after = engine.journal().checkpoints(session.key(), None, None, 10).await.unwrap();
        assert_eq!(after, before[..2], "{kind:?}");
        assert_eq!(messages(&engine, session.key()).await.len(), 8);
        // The newest stays however old it is.
        world.clock.advance(DAY * 100);
        let cutoff = engine.journal().clock().now();
        engine.journal().delete_older_than(session.key(), cutoff).await.unwrap();
        let after = world.engine().journal().checkpoints(session.key(), None, None, 10).await.unwrap();
        assert_eq!(after.len(), 1, "{kind:?}: {after:?}");
        assert_eq!(after[0].checkpoint.id, before[0].checkpoint.id, "{kind:?}");
    }
}

/// Two sessions that ended long ago, one that was interrupted then, and one of today.
async fn old_and_new(world: &World) -> Engine {
    let engine = world.engine();
    for name in ["old", "older"] {
        speaker().run_once("go", &engine.create(name).await.unwrap()).await.unwrap();
    }
    let life = Life::mortal();
    let session = life.engine(world).create("interrupted").await.unwrap();
    died(agent(&life, script()).build().unwrap().run_once("go", &session).await);
    world.clock.advance(DAY * 30);
    speaker().run_once("go", &engine.create("new").await.unwrap()).await.unwrap();
    world.engine()
}

#[tokio::test]
async fn in_memory_checkpointer_delete_inactive_threads_dry_run_does_not_delete() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = old_and_new(&world).await;
        let plan = engine.journal().plan_delete_inactive(engine.namespace(), DAY * 7).await.unwrap();
        let mut names: Vec<_> = plan.delete.iter().map(|key| key.id.to_string()).collect();
        names.sort();
        assert_eq!(names, ["old", "older"], "{kind:?}");
        let key = engine.key("interrupted").unwrap();
        assert_eq!(plan.protected, [(key, Reason::UnfinishedRun)], "{kind:?}");
        for name in ["old", "older", "interrupted", "new"] {
            assert!(world.engine().open_session(name).await.is_ok(), "{kind:?}: {name} is still there");
        }
    }
}

#[tokio::test]
async fn in_memory_checkpointer_delete_inactive_threads_actual_delete_removes_threads() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = old_and_new(&world).await;
        let plan = engine.journal().plan_delete_inactive(engine.namespace(), DAY * 7).await.unwrap();
        // One of them comes to life between plan and deed.
        let session = engine.open_session("older").await.unwrap();
        speaker().run_once("again", &session).await.unwrap();
        let (done, removed) = engine.journal().apply_delete(plan).await.unwrap();
        assert_eq!(done.delete, [engine.key("old").unwrap()], "{kind:?}");
        assert!(done.protected.contains(&(session.key().clone(), Reason::Active)), "{kind:?}: {done:?}");
        assert!(removed.bytes > 0);
        let engine = world.engine();
        assert_eq!(engine.open_session("old").await.unwrap_err().code(), "RK0003");
        for name in ["older", "interrupted", "new"] {
            assert!(engine.open_session(name).await.is_ok(), "{kind:?}: {name} is still there");
        }
        // What was interrupted can still go on.
        let session = engine.open_session("interrupted").await.unwrap();
        let run = agent(&Life::immortal(), script()).build().unwrap().resume(&session).await.unwrap();
        assert_eq!(run.report().await.unwrap().text(), "done");
    }
}
