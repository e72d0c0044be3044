//! Large values that something may need: garbage collection and removals leave them alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::orphans::Orphan;
use rekindle_core::{
    Append, BranchId, CopyOptions, ErrorKind, Hash, Head, Journal, Namespace, NewSession, OwnerId, ReadFrames, Removal,
    Seq, SessionHeader, Slot, Store, StoreExt,
};
use rekindle_store::{LargeValues, MemoryStore, SqliteStore, StoreOptions, SystemClock, system_ids};
use rekindle_testkit::{History, message};

use crate::script::key;
use crate::simulated::Simulated;

fn open(path: &Path, objects: &Simulated) -> Journal {
    over(SqliteStore::open(path, StoreOptions::new()).unwrap(), objects)
}

fn over(store: impl Store, objects: &Simulated) -> Journal {
    let store = LargeValues::new(store, objects.bucket()).with_threshold(1_000);
    journal(Arc::new(store))
}

fn journal(store: Arc<dyn Store>) -> Journal {
    Journal::new(store, Codec::new().without_compression(), Arc::new(SystemClock), system_ids().unwrap())
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
        "DELETE FROM sessions",
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

async fn assert_sound(journal: &Journal, context: &str) {
    let report = journal.verify(&key("a"), &Default::default()).await.unwrap();
    assert!(report.is_sound(), "{context}: {report:?}");
}

#[tokio::test]
async fn values_of_other_stores_in_the_place_stay() {
    let (one, other, objects) = (MemoryStore::default(), MemoryStore::default(), Simulated::default());
    let (here, there) = (over(one.clone(), &objects), over(other.clone(), &objects));
    write(&here, "a").await;
    let before = objects.names();
    write(&there, "b").await;
    assert_eq!(collect(&here).await, []);
    assert_eq!(collect(&there).await, []);
    // A copy has the name and the incarnation of the original, and the same frames.
    here.copy(&there, &key("a"), &CopyOptions::default(), &|_| ()).await.unwrap();
    assert_eq!(objects.names().len(), 6);
    there.prune(&key("a"), &rekindle_core::retention::Policy::default()).await.unwrap();
    there.clear_session(&key("a")).await.unwrap();
    there.clear_session(&key("b")).await.unwrap();
    assert_eq!(objects.names(), before);
    assert_sound(&over(one.clone(), &objects), "the copy was removed").await;
    here.copy(&there, &key("a"), &CopyOptions::default(), &|_| ()).await.unwrap();
    here.clear_session(&key("a")).await.unwrap();
    assert_sound(&over(other, &objects), "the original was removed").await;
    assert_eq!(collect(&here).await, []);
    assert_sound(&there, "garbage was collected").await;
}

/// Session `a` as an earlier version left it: whose its values are does not show by their names.
async fn write_earlier(store: &MemoryStore, objects: &Simulated) {
    let plain = MemoryStore::default();
    write(&journal(Arc::new(plain.clone())), "a").await;
    let header = plain.open(&key("a")).await.unwrap().header;
    store.create(&NewSession::new(header.clone())).await.unwrap();
    let mut head = Head { seq: Seq::ZERO, hash: header.genesis };
    for slot in plain.read_all(&ReadFrames::all(key("a"), BranchId::main())).await.unwrap() {
        let Slot::Whole(mut frame) = slot else { panic!("{slot:?}") };
        if frame.payload().len() > 1_000 {
            let value = Hash::of(frame.payload());
            let name = format!("values/default/a/i{}/{value}-{}", header.incarnation, frame.hash);
            objects.bucket().put(&name, frame.payload().clone()).await.unwrap();
            frame = frame.detach(&format!("simulated {name}"));
        }
        let after = Head { seq: frame.last, hash: frame.hash };
        store.append(&Append::new(key("a"), BranchId::main(), head, vec![frame])).await.unwrap();
        head = after;
    }
}

#[tokio::test]
async fn values_of_an_earlier_version_are_read_and_stay() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    write_earlier(&memory, &objects).await;
    let before = objects.names();
    assert_eq!(before.len(), 2);
    let journal = over(memory.clone(), &objects);
    assert_sound(&journal, "by another version").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.head = journal.open(&key("a")).await.unwrap().branch(&BranchId::main()).unwrap().head;
    history.append(vec![message(&"y".repeat(4_000))]).await.unwrap();
    assert_eq!(objects.names().len(), 3);
    assert_eq!(collect(&journal).await, []);
    let stranger = over(MemoryStore::default(), &objects);
    assert_eq!(collect(&stranger).await, []);
    assert_sound(&journal, "another store collected its garbage").await;
    // What this version wrote goes with the session; what stays is told, until it is gone.
    journal.store().remove(&Removal::Session { session: key("a") }).await.unwrap();
    assert_eq!(objects.names(), before);
    let told = journal.finish_removal(&key("a")).await.unwrap();
    assert_eq!((told.objects, told.kept.len()), (0, 1), "{told:?}");
    let found = collect(&journal).await;
    assert!(found.len() == 1 && found[0].kept.is_some() && found[0].names == before, "{found:?}");
    assert_eq!(objects.names(), before);
    before.iter().for_each(|name| objects.remove(name));
    assert!(journal.finish_removal(&key("a")).await.unwrap().is_nothing());
    assert!(!journal.is_removal_unfinished(&key("a")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn values_of_a_session_that_comes_back_while_it_is_removed_stay() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let (removing, coming) = (over(memory.clone(), &objects), over(memory.clone(), &objects));
    removing.create(SessionHeader::new(key("a"))).await.unwrap();
    let mut history = History::begin(&removing, &key("a")).await;
    for number in 0..60 {
        history.append(vec![message(&format!("{number}{}", "x".repeat(2_000)))]).await.unwrap();
    }
    let mut export = Vec::new();
    removing.export(&key("a"), &mut export).await.unwrap();
    objects.set_latency(Duration::from_secs(1));
    let before = objects.names().len();
    let removal = tokio::spawn(async move { removing.clear_session(&key("a")).await });
    while objects.names().len() == before {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    coming.import(&mut &export[..], &Default::default()).await.unwrap();
    removal.await.unwrap().unwrap();
    assert_sound(&over(memory.clone(), &objects), "it came back").await;
    assert_eq!(objects.names().len(), before);
    coming.clear_session(&key("a")).await.unwrap();
    assert_eq!(objects.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_removal_that_was_refused_is_not_on_record() {
    let (directory, objects) = (tempfile::tempdir().unwrap(), Simulated::default());
    let path = directory.path().join("a.db");
    let journal = open(&path, &objects);
    write(&journal, "a").await;
    let before = objects.names();
    let (main, owner, ttl) = (BranchId::main(), OwnerId::new("o").unwrap(), Duration::from_secs(60));
    journal.store().acquire(&key("a"), &main, &owner, ttl).await.unwrap();
    let refused = journal.clear_session(&key("a")).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Protected, "{refused:?}");
    let stale = Removal::SessionAt { session: key("a"), heads: Default::default() };
    assert_eq!(*journal.store().remove(&stale).await.unwrap_err().kind(), ErrorKind::Stale);
    // Its row is lost. Nobody has removed it.
    rusqlite::Connection::open(&path).unwrap().execute("DELETE FROM sessions", []).unwrap();
    let repaired = journal.finish_removal(&key("a")).await.unwrap();
    assert!(repaired.is_nothing(), "{repaired:?}");
    assert_eq!(objects.names(), before);
}
