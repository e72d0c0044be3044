//! Retention `latest_only`, through the agent: one checkpoint, the newest, on every store.

use rekindle::core::retention::{Policy, Rule};
use rekindle::{Agent, CheckpointId, SessionQuery};
use rekindle_models::Script;

use crate::common::{Life, agent, of};
use crate::support::{Kind, World, messages, state};

fn latest_only() -> Agent {
    let script = Script::new("m").call("echo", of("a")).text("one").call("echo", of("b")).text("two").text("three");
    agent(&Life::immortal(), script).retention(Policy::new([Rule::LatestOnly])).build().unwrap()
}

#[tokio::test]
async fn in_memory_checkpointer_latest_only_save_and_load_round_trip() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        latest_only().run_once("go", &session).await.unwrap();
        let saved = (messages(&engine, session.key()).await, state(&engine, session.key()).await.to_value().unwrap());
        let engine = world.engine();
        let found = engine.journal().checkpoints(session.key(), None, None, 10).await.unwrap();
        assert_eq!(found.len(), 1, "{kind:?}: {found:?}");
        let restored = engine.journal().load(session.key(), Some(&found[0].position)).await.unwrap();
        assert_eq!(restored.state.checkpoint(), Some(&found[0].checkpoint.id));
        assert_eq!(Agent::messages(&restored.state).unwrap().len(), 4);
        let loaded = (messages(&engine, session.key()).await, state(&engine, session.key()).await.to_value().unwrap());
        assert_eq!(loaded, saved);
        let report = engine.journal().verify(session.key(), &Default::default()).await.unwrap();
        assert!(report.is_sound(), "{kind:?}: {report:?}");
    }
}

#[tokio::test]
async fn in_memory_checkpointer_latest_only_upsert_overwrites_previous() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let mut last: Option<CheckpointId> = None;
        for (turn, stored) in [(1, 4), (2, 8), (3, 10)] {
            latest_only().run_once("go", &session).await.unwrap();
            let found = engine.journal().checkpoints(session.key(), None, None, 10).await.unwrap();
            let described: Vec<_> = found.iter().map(|found| found.checkpoint.description.as_str()).collect();
            assert_eq!(found.len(), 1, "{kind:?}, turn {turn}: {described:?}");
            if let Some(gone) = last.replace(found[0].checkpoint.id.clone()) {
                let error = engine.journal().checkpoint(session.key(), &gone).await.unwrap_err();
                assert_eq!(error.code(), "RK0003", "{error}");
            }
            // Nothing said is lost with the checkpoints.
            assert_eq!(messages(&world.engine(), session.key()).await.len(), stored, "{kind:?}, turn {turn}");
        }
    }
}

#[tokio::test]
async fn in_memory_checkpointer_latest_only_load_non_existent_returns_null() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let nobody = engine.key("nobody").unwrap();
        assert_eq!(engine.open_session("nobody").await.unwrap_err().code(), "RK0003");
        assert_eq!(engine.journal().load(&nobody, None).await.unwrap_err().code(), "RK0003");
        assert_eq!(engine.journal().checkpoints(&nobody, None, None, 1).await.unwrap_err().code(), "RK0003");
        let session = engine.create("s").await.unwrap();
        assert!(engine.journal().checkpoints(session.key(), None, None, 1).await.unwrap().is_empty());
        latest_only().run_once("go", &session).await.unwrap();
        let unknown = CheckpointId::new("ckpt_unknown").unwrap();
        assert_eq!(engine.journal().checkpoint(session.key(), &unknown).await.unwrap_err().code(), "RK0003");
        assert!(world.engine().open_session("nobody").await.is_err(), "looking made no session");
    }
}

#[tokio::test]
async fn in_memory_checkpointer_latest_only_delete_thread_removes_checkpoint() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let [gone, stays] = [engine.create("gone").await.unwrap(), engine.create("stays").await.unwrap()];
        for session in [&gone, &stays] {
            latest_only().run_once("go", session).await.unwrap();
        }
        let id = engine.journal().checkpoints(gone.key(), None, None, 1).await.unwrap()[0].checkpoint.id.clone();
        let removed = engine.journal().clear_session(gone.key()).await.unwrap();
        assert!(removed.bytes > 0 && removed.frames > 0, "{removed:?}");
        let engine = world.engine();
        assert_eq!(engine.open_session("gone").await.unwrap_err().code(), "RK0003");
        assert_eq!(engine.journal().checkpoint(gone.key(), &id).await.unwrap_err().code(), "RK0003");
        assert_eq!(engine.journal().checkpoints(stays.key(), None, None, 10).await.unwrap().len(), 1);
        // The name is free, and what comes under it begins with nothing.
        let again = engine.create("gone").await.unwrap();
        assert!(engine.journal().checkpoints(again.key(), None, None, 1).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn in_memory_checkpointer_latest_only_list_thread_ids_returns_all_threads() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let names = ["anna", "bert", "cleo", "dora"];
        for name in names {
            let session = engine.create(name).await.unwrap();
            latest_only().run_once("go", &session).await.unwrap();
        }
        let engine = world.engine();
        let mut query = SessionQuery::new(engine.namespace().clone());
        query.total = true;
        let page = engine.journal().list(&query).await.unwrap();
        let mut listed: Vec<_> = page.sessions.iter().map(|info| info.header.key.id.to_string()).collect();
        listed.sort();
        assert_eq!(listed, names);
        assert_eq!(page.total, Some(4));
    }
}
