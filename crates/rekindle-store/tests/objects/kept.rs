//! Large values that something may need: garbage collection and removals leave them alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::orphans::Orphan;
use rekindle_core::{Journal, Namespace, SessionHeader};
use rekindle_store::{LargeValues, SqliteStore, StoreOptions, SystemClock, system_ids};
use rekindle_testkit::{History, message};

use crate::script::key;
use crate::simulated::Simulated;

fn open(path: &Path, objects: &Simulated) -> Journal {
    let store = SqliteStore::open(path, StoreOptions::new()).unwrap();
    let store = LargeValues::new(store, objects.bucket()).with_threshold(1_000);
    Journal::new(Arc::new(store), Codec::new().without_compression(), Arc::new(SystemClock), system_ids().unwrap())
}

/// A session of five records, the second and the fourth of which are large.
async fn write(journal: &Journal, id: &str) {
    journal.create(SessionHeader::new(key(id))).await.unwrap();
    let mut history = History::begin(journal, &key(id)).await;
    for bytes in [10, 5_000, 20, 6_000, 30] {
        history.append(vec![message(&"x".repeat(bytes))]).await.unwrap();
    }
}

/// Collects garbage of any age; what was found.
async fn collect(journal: &Journal) -> Vec<Orphan> {
    let (store, namespace) = (journal.store(), Namespace::default());
    let found = store.orphans().unwrap().find(&namespace, Duration::ZERO).await.unwrap();
    for orphan in &found {
        store.orphans().unwrap().clear(orphan, Duration::ZERO).await.unwrap();
    }
    found
}

#[tokio::test]
async fn values_of_a_damaged_session_stay() {
    for damage in [
        "UPDATE frames SET body = zeroblob(length(body)) WHERE last = 2",
        "DELETE FROM frames WHERE last = 2",
        "DELETE FROM frames WHERE last <= 2",
        "DELETE FROM frames WHERE last >= 4",
        "UPDATE sessions SET header = substr(header, 1, 9)",
        "UPDATE sessions SET header = replace(header, 'default', 'other')",
        "DELETE FROM branches WHERE name = 'main'",
    ] {
        let (directory, objects) = (tempfile::tempdir().unwrap(), Simulated::default());
        let (path, saved) = (directory.path().join("a.db"), directory.path().join("saved.db"));
        write(&open(&path, &objects), "a").await;
        let before = objects.names();
        assert_eq!(before.len(), 2);
        let database = rusqlite::Connection::open(&path).unwrap();
        database.execute("VACUUM INTO ?1", [saved.to_str().unwrap()]).unwrap();
        assert!(database.execute(damage, []).unwrap() > 0, "{damage}");
        drop(database);
        let found = collect(&open(&path, &objects)).await;
        assert_eq!(objects.names(), before, "{damage}");
        assert!(!found.is_empty() && found.iter().all(|orphan| orphan.kept.is_some()), "{damage}: {found:?}");
        // Put right, everything is there.
        let journal = open(&saved, &objects);
        assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound(), "{damage}");
        assert_eq!(collect(&journal).await, [], "{damage}");
    }
}
