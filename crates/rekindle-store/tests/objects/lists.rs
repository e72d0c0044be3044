//! Lists go by an index, which is derived data: whatever happens to it, every session is listed and can be removed.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{BranchId, Namespace, NewSession, OwnerId, Removal, SessionQuery, Store, StoreExt, Timestamp};
use rekindle_store::{ObjectsStore, StoreOptions};

use crate::script::{StillClock, header, key};
use crate::simulated::Simulated;

/// A store as one process has it.
fn process(objects: &Simulated) -> ObjectsStore {
    let options = StoreOptions::new().with_clock(Arc::new(StillClock::default()));
    ObjectsStore::with_compaction(objects.bucket(), options, 64).unwrap()
}

/// A session with a time of creation, as imports give it.
fn created(id: &str, at: u64) -> NewSession {
    NewSession { created_at: Some(Timestamp(at)), ..NewSession::new(header(id)) }
}

/// A session that somebody ran: its line is in the index.
async fn settled(store: &ObjectsStore, id: &str, at: u64) {
    store.create(&created(id, at)).await.unwrap();
    let (main, owner, ttl) = (BranchId::main(), OwnerId::new("o").unwrap(), Duration::from_secs(60));
    let lease = store.acquire(&key(id), &main, &owner, ttl).await.unwrap();
    store.release(&lease).await.unwrap();
}

async fn listed(objects: &Simulated) -> Vec<String> {
    let query = SessionQuery::new(Namespace::default()).with_limit(1_000);
    let page = process(objects).list(&query).await.unwrap();
    page.sessions.iter().map(|info| info.header.key.id.to_string()).collect()
}

#[tokio::test]
async fn a_session_that_is_restored_while_it_is_removed_is_listed() {
    let objects = Simulated::default();
    process(&objects).create(&created("a", 5)).await.unwrap();
    let held = objects.hold("LIST", "marks/");
    let removing = process(&objects);
    let removal = tokio::spawn(async move { removing.remove(&Removal::Session { session: key("a") }).await });
    held.reached.notified().await;
    // Somebody runs it, so that its line is not written yet.
    let restoring = process(&objects);
    restoring.create(&created("a", 5)).await.unwrap();
    let (main, owner, ttl) = (BranchId::main(), OwnerId::new("o").unwrap(), Duration::from_secs(60));
    restoring.acquire(&key("a"), &main, &owner, ttl).await.unwrap();
    held.go.notify_one();
    removal.await.unwrap().unwrap();
    assert_eq!(listed(&objects).await, ["a"]);
    restoring.open(&key("a")).await.unwrap();
}

#[tokio::test]
async fn a_lost_part_of_the_index_stops_no_removal() {
    for is_lost in [true, false] {
        let objects = Simulated::default();
        let store = process(&objects);
        for (number, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
            settled(&store, id, number as u64).await;
        }
        // Lines go into a chunk when one of them is that of a removal.
        store.remove(&Removal::Session { session: key("d") }).await.unwrap();
        let chunks: Vec<String> = objects.names().into_iter().filter(|name| name.contains("/chunks/")).collect();
        assert_eq!(chunks.len(), 1);
        match is_lost {
            true => objects.remove(&chunks[0]),
            false => objects.alter(&chunks[0], |bytes| bytes[40] ^= 1),
        }
        let other = process(&objects);
        other.remove(&Removal::Session { session: key("a") }).await.unwrap();
        // Repeated, it has nothing to do; one that stopped is finished.
        other.remove(&Removal::Session { session: key("a") }).await.unwrap();
        let found = process(&objects).orphans().unwrap().find(&Namespace::default(), Duration::MAX).await.unwrap();
        assert_eq!(found, []);
        let left: Vec<String> = objects.names().into_iter().filter(|name| name.contains("/default/a/")).collect();
        assert!(left.len() == 1 && left[0].contains("/heads/"), "{left:?}");
        assert_eq!(listed(&objects).await, ["c", "b"]);
        process(&objects).remove(&Removal::Session { session: key("b") }).await.unwrap();
        assert_eq!(listed(&objects).await, ["c"]);
    }
}

#[tokio::test]
async fn a_list_takes_over_the_marks_of_sessions_however_many_each_has() {
    let objects = Simulated::default();
    for (number, id) in ["a", "b"].into_iter().enumerate() {
        settled(&process(&objects), id, number as u64).await;
    }
    // Of processes that died: each began a mark every few minutes.
    for nonce in 0..40 {
        objects.insert(&format!("marks/default/{:016x}-{nonce:032x}-a", 0), b"{}".to_vec());
    }
    objects.insert(&format!("marks/default/{:016x}-{:032x}-b", 1, 7), b"{}".to_vec());
    let clock = Arc::new(StillClock::default());
    clock.set(0);
    let later = ObjectsStore::with_compaction(objects.bucket(), StoreOptions::new().with_clock(clock), 64).unwrap();
    assert_eq!(later.list(&SessionQuery::new(Namespace::default())).await.unwrap().sessions.len(), 2);
    let left: Vec<String> = objects.names().into_iter().filter(|name| name.starts_with("marks/")).collect();
    assert_eq!(left, [""; 0]);
}

#[tokio::test]
async fn a_removal_costs_no_more_for_those_before_it() {
    let objects = Simulated::default();
    let store = process(&objects);
    // So large that few of them fill a chunk.
    for number in 0..80 {
        let mut new = created(&format!("s{number:02}"), number);
        new.header.title = Some("x".repeat(12_000));
        store.create(&new).await.unwrap();
        let (main, owner) = (BranchId::main(), OwnerId::new("o").unwrap());
        let lease = store.acquire(&new.header.key, &main, &owner, Duration::from_secs(60)).await.unwrap();
        store.release(&lease).await.unwrap();
    }
    let remove = async |id: &str| {
        let (process, before) = (process(&objects), objects.requests());
        process.remove(&Removal::Session { session: key(id) }).await.unwrap();
        let requests = objects.requests_since(before);
        requests.iter().filter(|(kind, name)| *kind == "GET" && name.contains("/chunks/")).count()
    };
    remove("s00").await;
    let chunks = objects.names().iter().filter(|name| name.contains("/chunks/")).count();
    assert!(chunks >= 4, "{chunks}");
    for id in ["s01", "s20", "s40", "s60", "s79", "s02"] {
        // Its own chunk, and the one that took its place when the removal is finished.
        assert_eq!(remove(id).await, 2, "{id}");
    }
    assert_eq!(listed(&objects).await.len(), 73);
}
