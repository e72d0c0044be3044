//! Retention `full_history`, through the agent: every checkpoint, and the way back to each.

use rekindle::core::CheckpointInfo;
use rekindle::core::retention::{Policy, Rule};
use rekindle::{Agent, Engine, SessionKey};
use rekindle_models::Script;

use crate::common::{Life, agent, of};
use crate::support::{Kind, World, messages};

/// Three turns of two iterations each: input, iteration and end are marked, nine in all.
async fn three_turns(engine: &Engine) -> SessionKey {
    let session = engine.create("s").await.unwrap();
    let turn = |script: Script, name: &str| script.call("echo", of(name)).text(name);
    let script = ["one", "two", "three"].into_iter().fold(Script::new("m"), turn);
    let agent = agent(&Life::immortal(), script).retention(Policy::new([Rule::FullHistory])).build().unwrap();
    for text in ["one", "two", "three"] {
        assert_eq!(agent.run_once("go", &session).await.unwrap().text(), text);
    }
    session.key().clone()
}

async fn history(engine: &Engine, session: &SessionKey) -> Vec<CheckpointInfo> {
    engine.journal().checkpoints(session, None, None, 100).await.unwrap()
}

/// How many messages there were at a checkpoint.
async fn count_at(engine: &Engine, session: &SessionKey, checkpoint: &CheckpointInfo) -> usize {
    let restored = engine.journal().load(session, Some(&checkpoint.position)).await.unwrap();
    assert_eq!(restored.state.checkpoint(), Some(&checkpoint.checkpoint.id));
    Agent::messages(&restored.state).unwrap().len()
}

#[tokio::test]
async fn in_memory_checkpointer_full_history_save_multiple_preserves_history() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = three_turns(&world.engine()).await;
        let found = history(&world.engine(), &session).await;
        assert_eq!(found.len(), 9, "{kind:?}: {found:?}");
        assert!(found.windows(2).all(|pair| pair[0].position.seq > pair[1].position.seq), "newest first");
        let parents: Vec<_> = found.iter().filter_map(|found| found.checkpoint.parent.clone()).collect();
        let ids: Vec<_> = found.iter().map(|found| found.checkpoint.id.clone()).collect();
        assert_eq!(parents, ids[1..], "each names the one before it");
    }
}

#[tokio::test]
async fn in_memory_checkpointer_full_history_load_thread_at_checkpoint_restores_specific_checkpoint() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = three_turns(&world.engine()).await;
        let engine = world.engine();
        let mut counts = Vec::new();
        for checkpoint in history(&engine, &session).await {
            let by_id = engine.journal().checkpoint(&session, &checkpoint.checkpoint.id).await.unwrap();
            assert_eq!(by_id, checkpoint);
            counts.push(count_at(&engine, &session, &checkpoint).await);
        }
        assert_eq!(counts, [12, 11, 9, 8, 7, 5, 4, 3, 1], "{kind:?}");
        assert_eq!(messages(&engine, &session).await.len(), 12, "looking back changed nothing");
    }
}

#[tokio::test]
async fn in_memory_checkpointer_full_history_prune_checkpoints_keeps_latest_n() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = three_turns(&world.engine()).await;
        let engine = world.engine();
        let before = history(&engine, &session).await;
        let pruned = engine.journal().prune(&session, &Policy::new([Rule::LastN(2)])).await.unwrap();
        assert_eq!((pruned.plan.keep.len(), pruned.plan.remove.len()), (2, 7), "{kind:?}: {:?}", pruned.plan);
        assert!(pruned.removed.bytes > 0, "{kind:?}: pruning frees bytes");
        let engine = world.engine();
        let after = history(&engine, &session).await;
        let ids = |found: &[CheckpointInfo]| found.iter().map(|at| at.checkpoint.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&after), ids(&before[..2]), "{kind:?}");
        let counts = [count_at(&engine, &session, &after[0]).await, count_at(&engine, &session, &after[1]).await];
        assert_eq!(counts, [12, 11], "{kind:?}: what is kept still loads");
        assert!(engine.journal().checkpoint(&session, &before[2].checkpoint.id).await.is_err());
        assert_eq!(messages(&engine, &session).await.len(), 12);
    }
}

#[tokio::test]
async fn in_memory_checkpointer_full_history_get_checkpoint_history_with_limit_returns_limited_results() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let session = three_turns(&world.engine()).await;
        let engine = world.engine();
        let all = history(&engine, &session).await;
        for limit in [0, 1, 2, 5, 9, 50] {
            let found = engine.journal().checkpoints(&session, None, None, limit).await.unwrap();
            assert_eq!(found, all[..limit.min(9)], "{kind:?}, limit {limit}");
        }
        let before = &all[3].checkpoint.id;
        let next = engine.journal().checkpoints(&session, None, Some(before), 2).await.unwrap();
        assert_eq!(next, all[4..6], "{kind:?}: the next page");
    }
}
