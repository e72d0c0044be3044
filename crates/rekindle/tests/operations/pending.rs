//! Pending writes for programs that drive their own loop.

use rekindle::operations::pending::{self, PendingWrite};
use rekindle::{Json, Timestamp};

use crate::world::{World, code};

fn write(call: &str, result: &str) -> PendingWrite {
    PendingWrite {
        call: call.into(),
        tool: "search".into(),
        result: Json::parse(result).unwrap(),
        iteration: 3,
        created_at: Timestamp(7),
    }
}

#[tokio::test]
async fn pending_writes_save_and_load_round_trip() {
    for world in [World::memory(), World::sqlite()] {
        let session = world.session("s").await;
        let written = write("c1", r#"{"n": 1.50}"#);
        pending::save(&world.engine, session.key(), "ckpt-1", std::slice::from_ref(&written)).await.unwrap();
        assert_eq!(pending::load(&world.engine, session.key(), "ckpt-1").await.unwrap(), [written]);
    }
}

#[tokio::test]
async fn pending_writes_multiple_writes_preserves_order() {
    let world = World::memory();
    let session = world.session("s").await;
    let written = [write("c2", "2"), write("c1", "1"), write("c3", "3")];
    pending::save(&world.engine, session.key(), "k", &written).await.unwrap();
    assert_eq!(pending::load(&world.engine, session.key(), "k").await.unwrap(), written);
}

#[tokio::test]
async fn pending_writes_delete_removes_pending_writes() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session) = (&world.engine, world.session("s").await);
        pending::save(engine, session.key(), "k", &[write("c1", "1"), write("c2", "2")]).await.unwrap();
        pending::save(engine, session.key(), "other", &[write("c3", "3")]).await.unwrap();
        assert_eq!(pending::delete(engine, session.key(), "k").await.unwrap(), 2);
        assert!(pending::load(engine, session.key(), "k").await.unwrap().is_empty());
        assert_eq!(pending::load(engine, session.key(), "other").await.unwrap().len(), 1);
        assert_eq!(pending::delete(engine, session.key(), "k").await.unwrap(), 0);
        pending::save(engine, session.key(), "k", &[write("c4", "4")]).await.unwrap();
        assert_eq!(pending::load(engine, session.key(), "k").await.unwrap(), [write("c4", "4")]);
    }
}

#[tokio::test]
async fn pending_writes_load_returns_copy_modifications_do_not_affect_storage() {
    let world = World::memory();
    let session = world.session("s").await;
    pending::save(&world.engine, session.key(), "k", &[write("c1", "1")]).await.unwrap();
    let mut loaded = pending::load(&world.engine, session.key(), "k").await.unwrap();
    loaded[0].call = "changed".into();
    loaded.push(write("c2", "2"));
    assert_eq!(pending::load(&world.engine, session.key(), "k").await.unwrap(), [write("c1", "1")]);
}

#[tokio::test]
async fn pending_writes_load_non_existent_returns_empty_list() {
    let world = World::memory();
    let session = world.session("s").await;
    assert!(pending::load(&world.engine, session.key(), "nothing").await.unwrap().is_empty());
    assert_eq!(code(pending::load(&world.engine, session.key(), "").await), "RK0001");
    let missing = world.engine.key("missing").unwrap();
    assert_eq!(code(pending::load(&world.engine, &missing, "k").await), "RK0003");
}

#[tokio::test]
async fn pending_writes_save_with_same_key_appends_to_existing() {
    let world = World::memory();
    let session = world.session("s").await;
    for call in ["c1", "c2"] {
        pending::save(&world.engine, session.key(), "k", &[write(call, "0")]).await.unwrap();
    }
    let before = session.info().await.unwrap().current_branch().unwrap().head;
    pending::save(&world.engine, session.key(), "k", &[]).await.unwrap();
    assert_eq!(session.info().await.unwrap().current_branch().unwrap().head, before);
    let loaded = pending::load(&world.engine, session.key(), "k").await.unwrap();
    assert_eq!(loaded, [write("c1", "0"), write("c2", "0")]);
}

#[tokio::test]
async fn pending_writes_thread_scoped_storage_isolates_threads() {
    let world = World::memory();
    let (a, b) = (world.session("a").await, world.session("b").await);
    pending::save(&world.engine, a.key(), "k", &[write("c1", "1")]).await.unwrap();
    assert!(pending::load(&world.engine, b.key(), "k").await.unwrap().is_empty());
    pending::delete(&world.engine, b.key(), "k").await.unwrap();
    assert_eq!(pending::load(&world.engine, a.key(), "k").await.unwrap().len(), 1);
}

#[tokio::test]
async fn pending_writes_of_many_savers_at_once_are_all_kept() {
    let world = World::memory();
    let session = world.session("s").await;
    let saves = (0..20).map(|n| {
        let (engine, key) = (world.engine.clone(), session.key().clone());
        tokio::spawn(async move { pending::save(&engine, &key, "k", &[write(&format!("c{n}"), "0")]).await })
    });
    for save in saves.collect::<Vec<_>>() {
        save.await.unwrap().unwrap();
    }
    assert_eq!(pending::load(&world.engine, session.key(), "k").await.unwrap().len(), 20);
}
