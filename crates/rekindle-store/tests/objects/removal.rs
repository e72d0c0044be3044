//! Removals that stop at every request: repeating them, finishing them and collecting garbage all come to the same end,
//! and nothing else is touched.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::orphans::{OrphanKind, Orphans as _};
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{BranchId, ErrorKind, Journal, Namespace, NewSession, Removal, Result, SessionHeader, Store};
use rekindle_fixtures::S3;
use rekindle_store::{LargeValues, MemoryStore, ObjectsStore, StoreOptions, SystemClock, system_ids};
use rekindle_testkit::{History, checkpoint, message};

use crate::script::{StillClock, header, key};
use crate::simulated::{Effect, Fault, Simulated};

const COMPACT_EVERY: u64 = 3;

/// How a removal that stopped is brought to its end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It is repeated.
    Repeated,
    /// It is finished by its record.
    Finished,
    /// Garbage is collected.
    Collected,
    /// The session is created anew, and removed.
    CreatedAnew,
}

const ENDINGS: [Ending; 4] = [Ending::Repeated, Ending::Finished, Ending::Collected, Ending::CreatedAnew];

fn store(objects: &Simulated) -> LargeValues<ObjectsStore> {
    let options = StoreOptions::new().with_clock(Arc::new(StillClock::default()));
    let store = ObjectsStore::with_compaction(objects.bucket(), options, COMPACT_EVERY).unwrap();
    LargeValues::new(store, objects.bucket()).with_threshold(1_000)
}

fn codec() -> Codec {
    Codec::new().without_compression()
}

fn encrypting() -> Codec {
    codec().with_encryption(KeyRing::new("k1", [7; 32]).unwrap())
}

fn journal(objects: &Simulated, codec: Codec) -> Journal {
    Journal::new(Arc::new(store(objects)), codec, Arc::new(SystemClock), system_ids().unwrap())
}

/// A session with small and large frames, more than one snapshot old.
async fn write(journal: &Journal, id: &str) {
    let mut header = SessionHeader::new(key(id));
    header.title = Some(format!("all about {id}"));
    journal.create(header).await.unwrap();
    let mut history = History::begin(journal, &key(id)).await;
    for bytes in [10, 5_000, 20, 6_000, 30] {
        history.append(vec![message(&"x".repeat(bytes))]).await.unwrap();
    }
}

/// The objects that are not of session `a`, and those that are.
fn split(objects: &Simulated) -> (Vec<String>, Vec<String>) {
    objects.names().into_iter().partition(|name| name.split('/').any(|part| part == "b" || part.ends_with("-b")))
}

/// The objects whose content has `text` in it.
fn naming(objects: &Simulated, text: &str) -> Vec<String> {
    let names = |name: &String| {
        let mut found = false;
        objects.alter(name, |bytes| found = bytes.windows(text.len()).any(|part| part == text.as_bytes()));
        found
    };
    objects.names().into_iter().filter(names).collect()
}

async fn end(journal: &Journal, ending: Ending) -> Result<()> {
    let there = journal.store().open(&key("a")).await.is_ok();
    match ending {
        Ending::Finished if !there => journal.finish_removal(&key("a")).await.map(drop),
        Ending::Collected if !there => {
            let store = journal.store();
            for found in store.orphans().unwrap().find(&Namespace::default(), Duration::ZERO).await? {
                assert_eq!(found.session.as_ref().unwrap_or(&key("a")), &key("a"), "{found:?}");
                store.orphans().unwrap().clear(&found, Duration::ZERO).await?;
            }
            let orphans = journal.orphaned_keys(&Namespace::default()).await?.keys;
            journal.destroy_orphaned_keys(&Namespace::default(), &orphans).await?;
            journal.finish_removal(&key("a")).await.map(drop)
        }
        Ending::CreatedAnew if !there => {
            journal.create(SessionHeader::new(key("a"))).await?;
            journal.clear_session(&key("a")).await?;
            journal.finish_removal(&key("a")).await.map(drop)
        }
        _ => {
            journal.clear_session(&key("a")).await?;
            journal.finish_removal(&key("a")).await.map(drop)
        }
    }
}

/// Stops the removal of a session at every request, and ends it in every way.
async fn stops_anywhere(codec: fn() -> Codec) {
    let objects = Simulated::default();
    let first = journal(&objects, codec());
    write(&first, "b").await;
    write(&first, "a").await;
    let whole = split(&objects).0;
    let before = objects.requests();
    first.clear_session(&key("a")).await.unwrap();
    let requests = objects.requests() - before;
    let left = split(&objects).1;
    // The snapshot that says that it is gone, what deleted small values leave, the data key of the other one, and what
    // is of both: the index and the id of the store.
    let stays = |name: &String| name.contains("/heads/") || name.starts_with("values/default/");
    let of_both = |name: &&String| {
        name.starts_with("index/") || name.starts_with("marks/") || name.ends_with("/large-values-owner/id")
    };
    let is_clear = |left: &[String]| {
        let left: Vec<&String> = left.iter().filter(|name| !of_both(name)).collect();
        left.iter().all(|name| stays(name)) && left.len() <= 6
    };
    assert!(is_clear(&left), "{left:?}");
    assert_eq!(naming(&objects, "all about a"), [""; 0]);
    assert!(requests > 10, "{requests}");
    let mut stopped = 0;
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            for ending in ENDINGS {
                let context = format!("died at request {at} of {requests}, {effect:?}, {ending:?}");
                let objects = Simulated::default();
                let dying = journal(&objects, codec());
                write(&dying, "b").await;
                write(&dying, "a").await;
                objects.set_fault(Fault::From(objects.requests() + at, effect));
                stopped += usize::from(dying.clear_session(&key("a")).await.is_err());
                objects.set_fault(Fault::None);
                let next = journal(&objects, codec());
                end(&next, ending).await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                let (others, left) = split(&objects);
                assert_eq!(others.len(), whole.len(), "{context}: {others:?}");
                assert!(is_clear(&left), "{context}: {left:?}");
                assert_eq!(naming(&objects, "all about a"), [""; 0], "{context}");
                assert!(next.orphaned_keys(&Namespace::default()).await.unwrap().keys.is_empty(), "{context}");
                assert!(!next.is_removal_unfinished(&key("a")).await.unwrap(), "{context}");
                assert!(next.verify(&key("b"), &Default::default()).await.unwrap().is_sound(), "{context}");
            }
        }
    }
    assert!(stopped > requests, "{stopped} of {requests}");
}

#[tokio::test]
async fn a_removal_may_stop_at_every_request() {
    stops_anywhere(codec).await;
}

#[tokio::test]
async fn so_may_that_of_an_encrypted_session() {
    stops_anywhere(encrypting).await;
}

#[tokio::test]
async fn a_receipt_is_not_lost() {
    let objects = Simulated::default();
    let counted = journal(&objects, encrypting());
    write(&counted, "a").await;
    let before = objects.requests();
    let (whole, _) = counted.erase(&key("a"), Some("anna".into())).await.unwrap();
    let requests = objects.requests() - before;
    for at in 1..=requests {
        let objects = Simulated::default();
        let dying = journal(&objects, encrypting());
        write(&dying, "a").await;
        objects.set_fault(Fault::From(objects.requests() + at, Effect::Done));
        let stopped = dying.erase(&key("a"), Some("anna".into())).await.is_err();
        objects.set_fault(Fault::None);
        let next = journal(&objects, encrypting());
        match next.erase(&key("a"), Some("anna".into())).await {
            Ok((receipt, _)) => {
                assert_eq!(receipt.branches.len(), whole.branches.len(), "request {at}");
                assert!(next.check_receipt(&receipt).unwrap() && receipt.data_key.is_some(), "request {at}");
            }
            Err(error) => assert!(!stopped && *error.kind() == ErrorKind::NotFound, "request {at}: {error:?}"),
        }
        assert!(next.orphaned_keys(&Namespace::default()).await.unwrap().keys.is_empty(), "request {at}");
    }
}

#[tokio::test]
async fn a_creation_that_stopped_is_collected() {
    let objects = Simulated::default();
    store(&objects).create(&NewSession::new(header("a"))).await.unwrap();
    let requests = objects.requests();
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            let objects = Simulated::default();
            objects.set_fault(Fault::From(at, effect));
            let _ = store(&objects).create(&NewSession::new(header("a"))).await;
            objects.set_fault(Fault::None);
            let store = store(&objects);
            for found in store.find(&Namespace::default(), Duration::ZERO).await.unwrap() {
                assert!(!found.recorded, "{found:?}");
                store.clear(&found, Duration::ZERO).await.unwrap();
            }
            let there = store.open(&key("a")).await.is_ok();
            let entries = objects.names().iter().filter(|name| name.starts_with("catalog/")).count();
            assert_eq!(entries, usize::from(there), "request {at}, {effect:?}: {:?}", objects.names());
        }
    }
}

#[tokio::test]
async fn nothing_that_is_needed_or_young_is_collected() {
    let server = S3::start();
    let open = || {
        let bucket = rekindle_store::Bucket::open(&server.url("b"), &StoreOptions::new()).unwrap();
        let store = ObjectsStore::open(&server.url("b"), StoreOptions::new()).unwrap();
        LargeValues::new(store, bucket).with_threshold(1_000)
    };
    let journal = Journal::new(Arc::new(open()), codec(), Arc::new(SystemClock), system_ids().unwrap());
    write(&journal, "a").await;
    let before = server.keys("b");
    let (namespace, day) = (Namespace::default(), Duration::from_secs(86_400));
    assert_eq!(open().find(&namespace, Duration::ZERO).await.unwrap(), []);
    // What processes may be about to need: an entry, a value, a clock.
    let bucket = rekindle_store::Bucket::open(&server.url("b"), &StoreOptions::new()).unwrap();
    let of_a = before.iter().find(|name| is_value_of_a(name)).unwrap();
    let young = [
        format!("catalog/default/{:016x}-{:032x}-new", 5, 7),
        format!("{}/orphan", of_a.rsplit_once('/').unwrap().0),
        of_a.split("/a/").next().unwrap().to_owned() + "/gone/00/value",
        "clock/00".to_owned(),
        "probe/00".to_owned(),
    ];
    for name in &young {
        bucket.put(name, Bytes::from_static(b"x")).await.unwrap();
    }
    assert_eq!(open().find(&namespace, day).await.unwrap(), []);
    server.set_ahead(2 * 86_400);
    let store = open();
    let found = store.find(&namespace, day).await.unwrap();
    let mut names: Vec<_> = found.iter().flat_map(|found| found.names.clone()).collect();
    names.sort();
    let mut expected = young.to_vec();
    expected.sort();
    assert_eq!(names, expected);
    for found in &found {
        store.clear(found, day).await.unwrap();
    }
    assert_eq!(server.keys("b"), before);
    assert_eq!(store.find(&namespace, day).await.unwrap(), []);
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

#[tokio::test]
async fn without_its_bucket_a_session_with_large_values_stays() {
    let (memory, objects, other) = (MemoryStore::default(), Simulated::default(), Simulated::default());
    let open = |store: Arc<dyn Store>| Journal::new(store, codec(), Arc::new(SystemClock), system_ids().unwrap());
    let large = |objects: &Simulated, shown: &str| {
        let bucket = rekindle_store::Bucket::over(Arc::new(objects.clone()), shown);
        open(Arc::new(LargeValues::new(memory.clone(), bucket).with_threshold(1_000)))
    };
    write(&large(&objects, "s3://right"), "a").await;
    let plain = open(Arc::new(memory.clone()));
    for refused in [
        plain.clear_session(&key("a")).await.unwrap_err(),
        plain.erase(&key("a"), None).await.unwrap_err(),
        plain.put_away(&key("a"), plain.open(&key("a")).await.unwrap().heads()).await.unwrap_err(),
    ] {
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.message().contains("s3://right"), "{refused:?}");
    }
    plain.open(&key("a")).await.unwrap();
    // With another bucket the session goes, and what stays is told and stays on record.
    let wrong = large(&other, "s3://wrong");
    wrong.clear_session(&key("a")).await.unwrap();
    assert_eq!(wrong.finish_removal(&key("a")).await.unwrap().elsewhere, ["s3://right"]);
    let found = wrong.store().orphans().unwrap().find(&Namespace::default(), Duration::MAX).await.unwrap();
    assert_eq!((found.len(), found[0].place.as_str(), found[0].recorded), (1, "s3://right", true), "{found:?}");
    assert_eq!(objects.names().len(), 2);
    let right = large(&objects, "s3://right");
    let found = right.store().orphans().unwrap().find(&Namespace::default(), Duration::MAX).await.unwrap();
    assert_eq!((found[0].kind, found[0].names.len()), (OrphanKind::LargeValues, 2), "{found:?}");
    assert_eq!(right.finish_removal(&key("a")).await.unwrap().objects, 2);
    assert_eq!(objects.names(), Vec::<String>::new());
    assert!(!wrong.is_removal_unfinished(&key("a")).await.unwrap());
}

#[tokio::test]
async fn values_of_a_session_that_came_back_stay() {
    let (memory, objects) = (MemoryStore::default(), Simulated::default());
    let store = LargeValues::new(memory.clone(), objects.bucket()).with_threshold(1_000);
    let journal = Journal::new(Arc::new(store), codec(), Arc::new(SystemClock), system_ids().unwrap());
    write(&journal, "a").await;
    let mut export = Vec::new();
    journal.export(&key("a"), &mut export).await.unwrap();
    // The session goes, its values stay; then it is brought back with the same incarnation. The first request looks for
    // values of an earlier version, before anything is removed.
    objects.set_fault(Fault::From(objects.requests() + 2, Effect::Nothing));
    journal.store().remove(&Removal::Session { session: key("a") }).await.unwrap_err();
    objects.set_fault(Fault::None);
    assert!(journal.store().open(&key("a")).await.is_err() && journal.is_removal_unfinished(&key("a")).await.unwrap());
    journal.import(&mut &export[..], &Default::default()).await.unwrap();
    assert!(journal.finish_removal(&key("a")).await.unwrap().is_nothing());
    for found in journal.store().orphans().unwrap().find(&Namespace::default(), Duration::ZERO).await.unwrap() {
        journal.store().orphans().unwrap().clear(&found, Duration::ZERO).await.unwrap();
    }
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
    journal.clear_session(&key("a")).await.unwrap();
    assert_eq!(objects.names(), Vec::<String>::new());
}

fn is_value_of_a(name: &str) -> bool {
    name.starts_with("large/") && name.contains("/default/a/")
}

/// The values in the bucket, and how many of them frames refer to: read back through the store, none is missing.
async fn values(journal: &Journal, objects: &Simulated) -> usize {
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
    objects.names().iter().filter(|name| is_value_of_a(name)).count()
}

/// A session with a branch that has large values of its own, and history that can be pruned.
async fn branched(objects: &Simulated) -> Journal {
    let journal = journal(objects, codec());
    journal.create(SessionHeader::new(key("a"))).await.unwrap();
    let mut history = History::begin(&journal, &key("a")).await;
    for number in 0..4 {
        let text = format!("{number}{}", "x".repeat(2_000));
        history.append(vec![message(&text), checkpoint(&format!("c{number}"))]).await.unwrap();
    }
    let mut fork = history.fork("other", 6).await.unwrap();
    for number in 0..3 {
        fork.append(vec![message(&format!("fork {number}{}", "y".repeat(2_000)))]).await.unwrap();
    }
    journal
}

#[tokio::test]
async fn values_of_a_branch_and_of_pruned_history_are_collected() {
    async fn remove(journal: &Journal) -> Result<()> {
        let branch = BranchId::new("other").unwrap();
        journal.store().remove(&Removal::Branch { session: key("a"), branch }).await?;
        journal.prune(&key("a"), &Policy::new([Rule::LatestOnly])).await.map(drop)
    }
    let objects = Simulated::default();
    let whole = branched(&objects).await;
    let before = (objects.requests(), values(&whole, &objects).await);
    let start = objects.requests();
    remove(&whole).await.unwrap();
    let requests = objects.requests() - start;
    let after = values(&whole, &objects).await;
    assert!(before.1 == 7 && (1..4).contains(&after), "{before:?} {after}");
    let mut left_over = 0;
    for at in 1..=requests {
        for effect in [Effect::Nothing, Effect::Done] {
            let context = format!("died at request {at} of {requests}, {effect:?}");
            let objects = Simulated::default();
            let dying = branched(&objects).await;
            objects.set_fault(Fault::From(objects.requests() + at, effect));
            let _ = remove(&dying).await;
            objects.set_fault(Fault::None);
            let next = journal(&objects, codec());
            remove(&next).await.unwrap_or_else(|error| panic!("{context}: {error:?}"));
            left_over += values(&next, &objects).await - after;
            for found in next.store().orphans().unwrap().find(&Namespace::default(), Duration::ZERO).await.unwrap() {
                next.store().orphans().unwrap().clear(&found, Duration::ZERO).await.unwrap();
            }
            assert_eq!(values(&next, &objects).await, after, "{context}: {:?}", objects.names());
        }
    }
    assert!(left_over > 0, "nothing was ever left over: the test tests nothing");
}
