//! Sessions from one store to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rekindle::core::codec::{Codec, KeyRing};
use rekindle::core::record::SessionDescribed;
use rekindle::core::retention::{Policy, Rule};
use rekindle::core::{CopyOptions, CopyOutcome, CopyReport, Diverged, OwnerId, StoreExt as _};
use rekindle::operations;
use rekindle::{BranchId, Engine, Error, ErrorKind, SessionKey, Store};
use rekindle_store::{FileStore, SqliteStore, StoreOptions};

use crate::kit::{self, Stop, engine, lead, memory, rich, set, stopping, whole, write};

async fn copy(from: &Engine, to: &Engine, session: &SessionKey) -> Result<CopyReport, Error> {
    operations::copy(from, to, session, &CopyOptions::default(), &|_| ()).await
}

fn told(diverged: Diverged) -> CopyOptions {
    CopyOptions { diverged, ..CopyOptions::default() }
}

/// Every kind of store there is here, empty.
fn stores() -> (Vec<Arc<dyn Store>>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let files = FileStore::open(folder.path().join("files"), StoreOptions::new()).unwrap();
    let sqlite = SqliteStore::open(folder.path().join("a.db"), StoreOptions::new()).unwrap();
    (vec![memory(), Arc::new(files), Arc::new(sqlite)], folder)
}

#[tokio::test]
async fn a_session_goes_from_any_store_to_any_store_and_stays_what_it_is() {
    let origin = engine(memory(), Codec::new());
    let key = rich(&origin, "trip").await;
    let original = whole(&origin, &key).await;
    let (sources, _one) = stores();
    for source in sources {
        let from = engine(source, Codec::new());
        copy(&origin, &from, &key).await.unwrap();
        let (targets, _two) = stores();
        for target in targets {
            let to = engine(target, Codec::new());
            let heard = AtomicU64::new(0);
            let hear = |bytes| {
                heard.fetch_add(bytes, Ordering::SeqCst);
            };
            let options = CopyOptions { verify: true, ..CopyOptions::default() };
            let copied = operations::copy(&from, &to, &key, &options, &hear).await.unwrap();
            assert_eq!((copied.outcome, copied.verified, copied.unchecked), (CopyOutcome::Copied, true, 0));
            assert_eq!(heard.load(Ordering::SeqCst), copied.bytes);
            assert_eq!(whole(&to, &key).await, original);
            let sound = operations::verify(&to, &key, &Default::default()).await.unwrap();
            assert!(sound.sound && sound.report.frames == copied.frames, "{sound:?}");
            let again = copy(&from, &to, &key).await.unwrap();
            assert_eq!((again.outcome, again.frames), (CopyOutcome::There, 0));
        }
    }
}

/// Stops a copy at each call to the source, then to the target, and repeats it.
async fn stopped_everywhere(origin: &Arc<dyn Store>, key: &SessionKey, before: &(dyn Fn() -> Arc<dyn Store> + Sync)) {
    let from = engine(origin.clone(), Codec::new());
    let original = whole(&from, key).await;
    let mut stops = 0;
    for (side, how) in [(0, Stop::Before), (0, Stop::After), (1, Stop::Before), (1, Stop::After)] {
        for at in 0.. {
            let target = before();
            let (source, sink) = (if side == 0 { at } else { u64::MAX }, if side == 1 { at } else { u64::MAX });
            let (source, sink) = (stopping(origin.clone(), source, how), stopping(target.clone(), sink, how));
            let first = copy(&engine(source, Codec::new()), &engine(sink, Codec::new()), key).await;
            let to = engine(target, Codec::new());
            // Whatever is there is a beginning, and sound.
            if to.journal().open(key).await.is_ok() {
                assert!(operations::verify(&to, key, &Default::default()).await.unwrap().sound, "{side} {how:?} {at}");
            }
            let repeated = copy(&from, &to, key).await.unwrap_or_else(|error| panic!("{side} {how:?} {at}: {error:?}"));
            assert_eq!(whole(&to, key).await, original, "{side} {how:?} {at}");
            assert_eq!(copy(&from, &to, key).await.unwrap().outcome, CopyOutcome::There);
            if first.is_ok() {
                assert_eq!(repeated.outcome, CopyOutcome::There);
                break;
            }
            stops += 1;
        }
    }
    assert!(stops > 25, "{stops}");
}

#[tokio::test]
async fn a_copy_stopped_at_any_call_is_completed_by_the_same_call() {
    let origin = memory();
    let key = rich(&engine(origin.clone(), Codec::new()), "trip").await;
    stopped_everywhere(&origin, &key, &memory).await;
}

#[tokio::test]
async fn an_older_copy_is_brought_up_to_date() {
    let (from, to) = (engine(memory(), Codec::new()), engine(memory(), Codec::new()));
    let key = rich(&from, "trip").await;
    copy(&from, &to, &key).await.unwrap();
    let before = whole(&to, &key).await;
    write(&from, &key, "main", &[set("n", 1)]).await;
    write(&from, &key, "empty", &[set("n", 2), set("n", 3)]).await;
    let title = SessionDescribed { title: Some("third".into()), ..SessionDescribed::default() };
    from.journal().describe(&key, title).await.unwrap();
    lead(&from, &key, "empty").await;
    let dry = CopyOptions { dry_run: true, ..CopyOptions::default() };
    let planned = operations::copy(&from, &to, &key, &dry, &|_| ()).await.unwrap();
    assert_eq!((planned.outcome, planned.records, planned.frames), (CopyOutcome::Updated, 5, 0));
    assert_eq!(whole(&to, &key).await, before);
    let updated = copy(&from, &to, &key).await.unwrap();
    assert_eq!((updated.outcome, updated.records, updated.frames), (CopyOutcome::Updated, 5, 4));
    assert_eq!(whole(&to, &key).await, whole(&from, &key).await);

    // What was pruned here since does not matter there, as long as it ends behind that.
    from.journal().prune(&key, &Policy::new([Rule::LatestOnly])).await.unwrap();
    write(&from, &key, "main", &[set("n", 4)]).await;
    assert_eq!(copy(&from, &to, &key).await.unwrap().outcome, CopyOutcome::Updated);
    assert!(operations::verify(&to, &key, &Default::default()).await.unwrap().sound);
}

#[tokio::test]
async fn an_update_stopped_at_any_call_is_completed_too() {
    let origin = memory();
    let from = engine(origin.clone(), Codec::new());
    let key = rich(&from, "trip").await;
    let older = memory();
    copy(&from, &engine(older.clone(), Codec::new()), &key).await.unwrap();
    for number in 0..3 {
        write(&from, &key, "main", &[set("n", number)]).await;
    }
    write(&from, &key, "middle", &[set("n", 7)]).await;
    let title = SessionDescribed { title: Some("third".into()), ..SessionDescribed::default() };
    from.journal().describe(&key, title).await.unwrap();
    lead(&from, &key, "main").await;
    let runtime = tokio::runtime::Handle::current();
    let before = || {
        let (older, key, runtime) = (older.clone(), key.clone(), runtime.clone());
        let fresh = memory();
        let to = fresh.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let (from, to) = (engine(older, Codec::new()), engine(to, Codec::new()));
                copy(&from, &to, &key).await.unwrap();
            });
        })
        .join()
        .unwrap();
        fresh
    };
    stopped_everywhere_from(&origin, &key, &before).await;
}

async fn stopped_everywhere_from(
    origin: &Arc<dyn Store>,
    key: &SessionKey,
    before: &(dyn Fn() -> Arc<dyn Store> + Sync),
) {
    let from = engine(origin.clone(), Codec::new());
    let original = whole(&from, key).await;
    for how in [Stop::Before, Stop::After] {
        for at in 0.. {
            let target = before();
            let sink = stopping(target.clone(), at, how);
            let first = copy(&from, &engine(sink.clone(), Codec::new()), key).await;
            let to = engine(target, Codec::new());
            copy(&from, &to, key).await.unwrap();
            assert_eq!(whole(&to, key).await, original, "{how:?} {at}");
            if first.is_ok() {
                assert!(at > 5 && sink.hook().calls() == at, "{at}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_went_its_own_way_is_refused_skipped_renamed_or_replaced() {
    let (from, to) = (engine(memory(), Codec::new()), engine(memory(), Codec::new()));
    let key = rich(&from, "trip").await;
    copy(&from, &to, &key).await.unwrap();
    write(&from, &key, "main", &[set("n", 1)]).await;
    write(&to, &key, "main", &[set("n", 2)]).await;
    let theirs = whole(&to, &key).await;
    let refused = copy(&from, &to, &key).await.unwrap_err();
    assert_eq!((refused.kind(), refused.session()), (&ErrorKind::AlreadyExists, Some(&key)));
    let skipped = operations::copy(&from, &to, &key, &told(Diverged::Skip), &|_| ()).await.unwrap();
    assert_eq!(skipped.outcome, CopyOutcome::Skipped);
    let renamed = operations::copy(&from, &to, &key, &told(Diverged::Rename), &|_| ()).await.unwrap();
    let name = renamed.renamed.unwrap();
    assert_eq!((renamed.outcome, whole(&to, &key).await == theirs), (CopyOutcome::Copied, true));
    assert!(operations::verify(&to, &name, &Default::default()).await.unwrap().sound);
    let again = operations::copy(&from, &to, &key, &told(Diverged::Rename), &|_| ()).await.unwrap();
    assert_eq!((again.outcome, again.renamed), (CopyOutcome::There, Some(name)));
    let replaced = operations::copy(&from, &to, &key, &told(Diverged::Replace), &|_| ()).await.unwrap();
    assert_eq!(replaced.outcome, CopyOutcome::Replaced);
    assert_eq!(whole(&to, &key).await, whole(&from, &key).await);

    // Longer there, another session of that name, a branch of its own, and too old a copy.
    write(&to, &key, "main", &[set("n", 3)]).await;
    assert!(copy(&from, &to, &key).await.unwrap_err().message().contains("longer"));
    let other = engine(memory(), Codec::new());
    rich(&other, "trip").await;
    assert!(copy(&from, &other, &key).await.unwrap_err().message().contains("another session"));
    let branched = engine(memory(), Codec::new());
    copy(&from, &branched, &key).await.unwrap();
    let head = branched.journal().open(&key).await.unwrap().branch(&BranchId::main()).unwrap().head.seq;
    let at = rekindle::Position::new(BranchId::main(), head);
    branched.journal().fork(&key, &at, BranchId::new("theirs").unwrap()).await.unwrap();
    assert!(copy(&from, &branched, &key).await.unwrap_err().message().contains("theirs"));
}

#[tokio::test]
async fn a_copy_older_than_what_was_pruned_can_only_be_replaced() {
    let (from, to) = (engine(memory(), Codec::new()), engine(memory(), Codec::new()));
    let key = from.key("trip").unwrap();
    from.create("trip").await.unwrap();
    write(&from, &key, "main", &[set("n", 1)]).await;
    copy(&from, &to, &key).await.unwrap();
    for number in 0..4 {
        operations::checkpoint(&from, &key, "by hand", "maria").await.unwrap();
        write(&from, &key, "main", &[set("n", number)]).await;
    }
    from.journal().prune(&key, &Policy::new([Rule::LatestOnly])).await.unwrap();
    let refused = copy(&from, &to, &key).await.unwrap_err();
    assert!(refused.message().contains("pruned"), "{refused:?}");
    operations::copy(&from, &to, &key, &told(Diverged::Replace), &|_| ()).await.unwrap();
    assert_eq!(whole(&to, &key).await, whole(&from, &key).await);
}

#[tokio::test]
async fn no_key_is_needed_and_with_the_key_every_hash_is_checked() {
    let ring = || KeyRing::new("k1", [7; 32]).unwrap();
    let with: [&dyn Fn() -> Codec; 2] =
        [&|| Codec::new().with_encryption(ring()), &|| Codec::new().with_signing(ring())];
    for (codec, signed) in with.into_iter().zip([false, true]) {
        let source = memory();
        let key = rich(&engine(source.clone(), codec()), "trip").await;
        for (keys, unchecked) in [(codec(), false), (Codec::new(), true)] {
            let target = memory();
            let from = engine(source.clone(), keys);
            let options = CopyOptions { verify: true, ..CopyOptions::default() };
            let to = engine(target.clone(), Codec::new());
            let copied = operations::copy(&from, &to, &key, &options, &|_| ()).await.unwrap();
            // The hashes of what is encrypted cover the ciphertext, and need no key.
            assert_eq!(copied.unchecked > 0, unchecked && signed, "{copied:?}");
            assert_eq!(whole(&to, &key).await, whole(&from, &key).await);
            let readable = engine(target, codec());
            assert!(operations::verify(&readable, &key, &Default::default()).await.unwrap().sound);
        }
    }
    let sealed = engine(memory(), Codec::new().with_encryption(ring()));
    let key = rich(&sealed, "trip").await;
    let rename = CopyOptions { rename: Some(sealed.key("other").unwrap()), ..CopyOptions::default() };
    let refused = operations::copy(&sealed, &engine(memory(), Codec::new()), &key, &rename, &|_| ()).await;
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_session_that_runs_is_copied_as_far_as_it_is_durable() {
    let (from, to) = (engine(memory(), Codec::new()), engine(memory(), Codec::new()));
    let key = rich(&from, "trip").await;
    let (store, owner) = (from.journal().store(), OwnerId::new("runner").unwrap());
    let main = BranchId::main();
    let lease = store.acquire(&key, &main, &owner, std::time::Duration::from_secs(60)).await.unwrap();
    let copied = copy(&from, &to, &key).await.unwrap();
    assert!(copied.running);
    assert!(to.journal().open(&key).await.unwrap().live_lease().is_none());
    store.release(&lease).await.unwrap();
    assert_eq!(whole(&to, &key).await, whole(&from, &key).await);
    // A copy that somebody runs is not written to.
    write(&from, &key, "main", &[set("n", 1)]).await;
    to.journal().store().acquire(&key, &main, &owner, std::time::Duration::from_secs(60)).await.unwrap();
    assert!(matches!(copy(&from, &to, &key).await.unwrap_err().kind(), ErrorKind::AlreadyRunning { .. }));
}

#[tokio::test]
async fn a_session_that_is_not_there_is_said() {
    let (from, to) = (engine(memory(), Codec::new()), engine(memory(), Codec::new()));
    let key = from.key("none").unwrap();
    assert_eq!(*copy(&from, &to, &key).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_session_copied_onto_itself_is_not_replaced_by_nothing() {
    let store = memory();
    let plain = engine(store.clone(), Codec::new());
    let key = rich(&plain, "trip").await;
    let busy = engine(kit::busy(store), Codec::new());
    let error = operations::copy(&busy, &busy, &key, &told(Diverged::Replace), &|_| ()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Stale, "{error:?}");
    assert!(operations::verify(&plain, &key, &Default::default()).await.unwrap().sound);
    let again = operations::copy(&busy, &busy, &key, &told(Diverged::Replace), &|_| ()).await.unwrap();
    assert_eq!(again.outcome, CopyOutcome::There);
}

#[tokio::test]
async fn a_new_copy_that_somebody_already_writes_to_stays() {
    let (from, store) = (engine(memory(), Codec::new()), memory());
    let key = rich(&from, "trip").await;
    let busy = engine(kit::busy(store.clone()), Codec::new());
    let error = copy(&from, &busy, &key).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Stale, "{error:?}");
    let to = engine(store, Codec::new());
    let inbox = |info: rekindle::SessionInfo| info.branch(&BranchId::inbox()).unwrap().head.seq.0;
    let (sent, there) = (from.journal().open(&key).await.unwrap(), to.journal().open(&key).await.unwrap());
    assert_eq!(inbox(there), inbox(sent) + 1);
}
