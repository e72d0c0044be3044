//! Sessions out of a store into an archive, and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rekindle::core::codec::{Codec, KeyRing};
use rekindle::core::record::RunStarted;
use rekindle::core::retention::Reason;
use rekindle::operations::{self, ArchiveOptions, Archived, RestoreOptions};
use rekindle::{Engine, Error, ErrorKind, RunId, SessionKey, Store};

use crate::kit::{Stop, engine, memory, rich, set, stopping, whole, write};
use crate::shelf::{Held, Shelf};

async fn archive(engine: &Engine, shelf: &Shelf, session: &SessionKey) -> Result<Archived, Error> {
    operations::archive(engine, shelf, session, &ArchiveOptions::default()).await
}

async fn restore(engine: &Engine, shelf: &Shelf, session: &SessionKey) -> Result<operations::Restored, Error> {
    operations::restore(engine, shelf, session, &RestoreOptions::default()).await
}

async fn is_there(engine: &Engine, session: &SessionKey) -> bool {
    engine.journal().open(session).await.is_ok()
}

#[tokio::test]
async fn what_is_archived_comes_back_as_it_was() {
    let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
    let key = rich(&engine, "Trip/42").await;
    let original = whole(&engine, &key).await;
    let dry = ArchiveOptions { dry_run: true, ..ArchiveOptions::default() };
    let planned = operations::archive(&engine, &shelf, &key, &dry).await.unwrap();
    assert!(planned.archive.is_none() && !planned.removed && shelf.names().is_empty());
    let archived = archive(&engine, &shelf, &key).await.unwrap();
    assert!(archived.removed && archived.freed.bytes > 0 && !is_there(&engine, &key).await);
    let names = shelf.names();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.starts_with("archives/default/%54rip%2f42/")), "{names:?}");
    let listed = operations::archives(&shelf, engine.namespace()).await.unwrap();
    assert_eq!((listed.archives, listed.damaged.len()), (vec![archived.archive.unwrap()], 0));

    let looked = RestoreOptions { dry_run: true, ..RestoreOptions::default() };
    assert!(!operations::restore(&engine, &shelf, &key, &looked).await.unwrap().there);
    assert!(!is_there(&engine, &key).await);
    let restored = restore(&engine, &shelf, &key).await.unwrap();
    assert!(restored.same_hashes && !restored.there && !restored.removed);
    assert_eq!(whole(&engine, &key).await, original);
    assert!(restore(&engine, &shelf, &key).await.unwrap().there);
    let renamed = RestoreOptions { rename: Some(engine.key("other").unwrap()), ..RestoreOptions::default() };
    operations::restore(&engine, &shelf, &key, &renamed).await.unwrap();
    assert!(operations::verify(&engine, &engine.key("other").unwrap(), &Default::default()).await.unwrap().sound);

    // Archived again it is the same archive; gone on with, a longer one in its place.
    assert!(archive(&engine, &shelf, &key).await.unwrap().there);
    restore(&engine, &shelf, &key).await.unwrap();
    write(&engine, &key, "main", &[set("n", 1)]).await;
    let longer = archive(&engine, &shelf, &key).await.unwrap();
    assert!(!longer.there && shelf.names().len() == 2);
    let remove = RestoreOptions { remove: true, ..RestoreOptions::default() };
    assert!(operations::restore(&engine, &shelf, &key, &remove).await.unwrap().removed);
    assert!(shelf.names().is_empty() && is_there(&engine, &key).await);
}

#[tokio::test]
async fn an_archive_of_an_encrypted_session_stays_encrypted() {
    let codec = || Codec::new().with_encryption(KeyRing::new("k1", [7; 32]).unwrap());
    let (store, shelf) = (memory(), Shelf::new());
    let sealed = engine(store.clone(), codec());
    let key = rich(&sealed, "trip").await;
    let original = whole(&sealed, &key).await;
    archive(&sealed, &shelf, &key).await.unwrap();
    for (name, bytes) in shelf.objects.lock().unwrap().iter() {
        let plain = if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes.to_vec() };
        let text = String::from_utf8_lossy(&plain);
        assert!(!text.contains("long long") && !text.contains("second"), "{name}");
    }
    let without = engine(store, Codec::new());
    assert!(matches!(restore(&without, &shelf, &key).await.unwrap_err().kind(), ErrorKind::KeyMissing { .. }));
    assert!(restore(&sealed, &shelf, &key).await.unwrap().same_hashes);
    assert_eq!(whole(&sealed, &key).await, original);
}

#[tokio::test]
async fn what_runs_waits_or_is_unfinished_stays() {
    let (store, clock) = crate::kit::memory_with_clock();
    let (engine, shelf) = (engine(store, Codec::new()), Shelf::new());
    let done = rich(&engine, "done").await;
    let open = rich(&engine, "open").await;
    write(&engine, &open, "main", &[RunStarted::new(RunId::new("r").unwrap(), "agent").into()]).await;
    let refused = archive(&engine, &shelf, &open).await.unwrap_err();
    assert_eq!((refused.kind(), refused.session()), (&ErrorKind::Protected, Some(&open)));
    let plan = operations::plan_archive(&engine, engine.namespace(), Duration::ZERO, &[]).await.unwrap();
    assert!(plan.archive.is_empty() && plan.protected.is_empty());
    // Old by the clock of a machine is not old enough: the store's counts.
    let later = crate::kit::engine_at(engine.journal().store().clone(), Duration::from_secs(9));
    let plan = operations::plan_archive(&later, later.namespace(), Duration::from_secs(1), &[]).await.unwrap();
    assert!(plan.archive.is_empty() && plan.protected.is_empty());
    clock.advance(Duration::from_secs(9));
    let plan = operations::plan_archive(&later, later.namespace(), Duration::from_secs(1), &[]).await.unwrap();
    assert_eq!((plan.archive, plan.protected), (vec![done], vec![(open, Reason::UnfinishedRun)]));
    assert!(shelf.names().is_empty());
}

#[tokio::test]
async fn an_archive_stopped_at_any_call_loses_nothing_and_is_finished_by_the_same_call() {
    for (side, how) in [(0, Stop::Before), (0, Stop::After), (1, Stop::Before), (1, Stop::After)] {
        for at in 0.. {
            let (store, shelf) = (memory(), Shelf::new());
            let plain = engine(store.clone(), Codec::new());
            let key = rich(&plain, "trip").await;
            let original = whole(&plain, &key).await;
            let first = match side {
                0 => archive(&engine(stopping(store, at, how), Codec::new()), &shelf, &key).await,
                _ => archive(&plain, &shelf.stopping(at, how), &key).await,
            };
            let listed = operations::archives(&shelf, plain.namespace()).await.unwrap();
            assert!(is_there(&plain, &key).await || listed.archives.len() == 1, "{side} {how:?} {at}");
            if is_there(&plain, &key).await {
                archive(&plain, &shelf, &key).await.unwrap();
            }
            assert_eq!(shelf.names().len(), 2, "{side} {how:?} {at}");
            restore(&plain, &shelf, &key).await.unwrap();
            assert_eq!(whole(&plain, &key).await, original, "{side} {how:?} {at}");
            if first.is_ok() {
                assert!(at > 5, "{at}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_restore_stopped_at_any_call_is_finished_by_the_same_call() {
    let shelf = Shelf::new();
    let origin = engine(memory(), Codec::new());
    let key = rich(&origin, "trip").await;
    let original = whole(&origin, &key).await;
    archive(&origin, &shelf, &key).await.unwrap();
    for how in [Stop::Before, Stop::After] {
        for at in 0.. {
            let store: Arc<dyn Store> = memory();
            let first = restore(&engine(stopping(store.clone(), at, how), Codec::new()), &shelf, &key).await;
            let plain = engine(store, Codec::new());
            restore(&plain, &shelf, &key).await.unwrap();
            assert_eq!(whole(&plain, &key).await, original, "{how:?} {at}");
            if first.is_ok() {
                assert!(at > 5, "{at}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn everything_wrong_with_an_archive_is_said() {
    let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
    let key = rich(&engine, "trip").await;
    let missing = restore(&engine, &shelf, &key).await.unwrap_err();
    assert_eq!((missing.kind(), missing.session()), (&ErrorKind::NotFound, Some(&key)));
    archive(&engine, &shelf, &key).await.unwrap();
    let whole: Vec<(String, Bytes)> = shelf.objects.lock().unwrap().clone().into_iter().collect();
    let name = |end: &str| whole.iter().find(|(name, _)| name.ends_with(end)).unwrap().0.clone();
    let put =
        |name: &str, bytes: &[u8]| drop(shelf.objects.lock().unwrap().insert(name.to_owned(), bytes.to_vec().into()));
    let (object, entry) = (name(".zst"), name(".json"));
    let original = shelf.objects.lock().unwrap()[&object].clone();
    for damaged in [&original[..original.len() / 2], b"", b"nonsense"] {
        put(&object, damaged);
        assert_eq!(*restore(&engine, &shelf, &key).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    shelf.objects.lock().unwrap().remove(&object);
    assert_eq!(*restore(&engine, &shelf, &key).await.unwrap_err().kind(), ErrorKind::Corrupt);
    put(&object, &original);
    let text = shelf.objects.lock().unwrap()[&entry].clone();
    let text = String::from_utf8(text.to_vec()).unwrap();
    for hostile in
        ["{}", "nonsense", &text.replace("\"trip\"", "\"other\""), &text.replace("archive\": 1", "archive\": 9")]
    {
        put(&entry, hostile.as_bytes());
        let error = restore(&engine, &shelf, &key).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt), "{hostile}: {error:?}");
        assert_eq!(operations::archives(&shelf, engine.namespace()).await.unwrap().damaged.len(), 1);
    }
    put(&entry, text.as_bytes());
    assert!(!is_there(&engine, &key).await);

    // Another session of that name, and one that has gone on.
    rich(&engine, "trip").await;
    assert_eq!(*restore(&engine, &shelf, &key).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    operations::clear_session(&engine, &key, false).await.unwrap();
    restore(&engine, &shelf, &key).await.unwrap();
    write(&engine, &key, "main", &[set("n", 1)]).await;
    assert_eq!(*restore(&engine, &shelf, &key).await.unwrap_err().kind(), ErrorKind::AlreadyExists);

    // The archive of what went its own way is not overwritten unless told so.
    archive(&engine, &shelf, &key).await.unwrap();
    let other = RestoreOptions::default();
    operations::restore(&engine, &shelf, &key, &other).await.unwrap();
    let elsewhere = crate::kit::engine(memory(), Codec::new());
    put(&object, &original);
    put(&entry, text.as_bytes());
    restore(&elsewhere, &shelf, &key).await.unwrap();
    write(&elsewhere, &key, "main", &[set("n", 2)]).await;
    archive(&engine, &shelf, &key).await.unwrap();
    assert_eq!(*archive(&elsewhere, &shelf, &key).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(is_there(&elsewhere, &key).await);
    let replace = ArchiveOptions { replace: true, ..ArchiveOptions::default() };
    assert!(operations::archive(&elsewhere, &shelf, &key, &replace).await.unwrap().removed);
}

#[tokio::test]
async fn two_that_archive_the_same_session_at_once_do_not_lose_it_between_them() {
    for (early_call, early_end) in [("put_new", ".json"), ("put", ".json"), ("put_new", ".zst")] {
        let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
        let key = rich(&engine, "trip").await;
        if early_call == "put" {
            // There is an archive of its beginning, which both replace.
            archive(&engine, &shelf, &key).await.unwrap();
            restore(&engine, &shelf, &key).await.unwrap();
            write(&engine, &key, "main", &[set("n", 7)]).await;
        }
        let run = |place: Arc<Held>| {
            let (engine, key) = (engine.clone(), key.clone());
            tokio::spawn(async move { operations::archive(&engine, &*place, &key, &ArchiveOptions::default()).await })
        };
        // One has read the session, but not yet written.
        let early = Held::new(&shelf, early_call, early_end);
        let first = run(early.clone());
        early.reached.acquire().await.unwrap().forget();
        // The session goes on; the other one has written, and is about to clear up and to remove it.
        engine.journal().send(&key, &[set("sent", 2)]).await.unwrap();
        let original = whole(&engine, &key).await;
        let late = Held::new(&shelf, "older_than", "");
        let second = run(late.clone());
        late.reached.acquire().await.unwrap().forget();
        early.go_on.add_permits(1);
        let first = first.await.unwrap();
        assert_eq!(*first.unwrap_err().kind(), ErrorKind::Stale, "{early_call} {early_end}");
        late.go_on.add_permits(1);
        let second = second.await.unwrap();
        if is_there(&engine, &key).await {
            assert_eq!(*second.unwrap_err().kind(), ErrorKind::Stale, "{early_call} {early_end}");
            archive(&engine, &shelf, &key).await.unwrap();
        }
        restore(&engine, &shelf, &key).await.unwrap();
        assert_eq!(whole(&engine, &key).await, original, "{early_call} {early_end}");
    }
}

#[tokio::test]
async fn an_archive_whose_object_is_gone_is_written_again_while_the_session_is_there() {
    let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
    let key = rich(&engine, "trip").await;
    let original = whole(&engine, &key).await;
    let keep = ArchiveOptions { keep: true, ..ArchiveOptions::default() };
    operations::archive(&engine, &shelf, &key, &keep).await.unwrap();
    shelf.objects.lock().unwrap().retain(|name, _| name.ends_with(".json"));
    let again = archive(&engine, &shelf, &key).await.unwrap();
    assert!(again.removed && !again.there);
    restore(&engine, &shelf, &key).await.unwrap();
    assert_eq!(whole(&engine, &key).await, original);
}

#[tokio::test]
async fn the_removal_of_an_archive_stopped_at_any_call_is_finished_by_the_same_call() {
    let options = RestoreOptions { remove: true, ..RestoreOptions::default() };
    for how in [Stop::Before, Stop::After] {
        for at in 0.. {
            let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
            let key = rich(&engine, "a").await;
            archive(&engine, &shelf, &key).await.unwrap();
            let stopped = operations::restore(&engine, &shelf.stopping(at, how), &key, &options).await.is_err();
            match operations::restore(&engine, &shelf, &key, &options).await {
                Ok(restored) => assert!(restored.removed, "{how:?} {at}"),
                // The last call had happened.
                Err(error) => assert_eq!(*error.kind(), ErrorKind::NotFound, "{how:?} {at}: {error:?}"),
            }
            assert_eq!(shelf.names(), Vec::<String>::new(), "{how:?} {at}");
            assert!(is_there(&engine, &key).await, "{how:?} {at}");
            if !stopped {
                assert!(at > 4, "{at}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_session_is_not_archived_again_while_its_archive_is_removed() {
    for (call, end) in [("put", ".json"), ("delete", ".zst"), ("delete", ".json")] {
        let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
        let key = rich(&engine, "a").await;
        let original = whole(&engine, &key).await;
        let keep = ArchiveOptions { keep: true, ..ArchiveOptions::default() };
        operations::archive(&engine, &shelf, &key, &keep).await.unwrap();
        let held = Held::new(&shelf, call, end);
        let removing = {
            let (engine, key, held) = (engine.clone(), key.clone(), held.clone());
            let options = RestoreOptions { remove: true, ..RestoreOptions::default() };
            tokio::spawn(async move { operations::restore(&engine, &*held, &key, &options).await })
        };
        held.reached.acquire().await.unwrap().forget();
        let refused = archive(&engine, &shelf, &key).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Protected | ErrorKind::AlreadyRunning { .. }), "{refused:?}");
        held.go_on.add_permits(1);
        assert!(removing.await.unwrap().unwrap().removed);
        assert_eq!(whole(&engine, &key).await, original, "{call} {end}");
        // Nobody holds it any more.
        assert!(archive(&engine, &shelf, &key).await.unwrap().removed);
    }
}

#[tokio::test]
async fn a_session_that_is_archived_already_counts_as_done() {
    let (engine, shelf) = (engine(memory(), Codec::new()), Shelf::new());
    let key = rich(&engine, "a").await;
    let first = archive(&engine, &shelf, &key).await.unwrap();
    let again = archive(&engine, &shelf, &key).await.unwrap();
    assert!(!first.before && again.before && again.removed && again.there);
    assert_eq!(again.archive, first.archive);
    let unknown = engine.key("b").unwrap();
    assert_eq!(*archive(&engine, &shelf, &unknown).await.unwrap_err().kind(), ErrorKind::NotFound);
    let object = shelf.names().into_iter().find(|name| name.ends_with(".zst")).unwrap();
    shelf.objects.lock().unwrap().remove(&object);
    assert_eq!(*archive(&engine, &shelf, &key).await.unwrap_err().kind(), ErrorKind::Corrupt);
}
