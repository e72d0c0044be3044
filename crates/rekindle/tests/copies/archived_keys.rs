//! Data keys of archived sessions: they follow a change of the main key, and stay until the archive is gone.

use rekindle::core::codec::{Codec, KeyRing};
use rekindle::operations::{self, ArchiveOptions, PrunedKeys, RestoreOptions, RewrappedKeys};
use rekindle::{Engine, ErrorKind, SessionKey};

use crate::kit::{Stop, engine, memory, rich, stopping, whole};
use crate::shelf::Shelf;

fn first() -> Codec {
    Codec::new().with_encryption(KeyRing::new("first", [1; 32]).unwrap())
}

fn rotated() -> Codec {
    Codec::new().with_encryption(KeyRing::new("second", [2; 32]).unwrap().with_old("first", [1; 32]).unwrap())
}

fn second() -> Codec {
    Codec::new().with_encryption(KeyRing::new("second", [2; 32]).unwrap())
}

async fn archive(engine: &Engine, shelf: &Shelf, key: &SessionKey) {
    operations::archive(engine, shelf, key, &ArchiveOptions::default()).await.unwrap();
}

async fn prune(engine: &Engine, shelves: &[&Shelf], dry_run: bool) -> PrunedKeys {
    let places: Vec<&dyn operations::ArchivePlace> = shelves.iter().map(|shelf| *shelf as _).collect();
    operations::prune_keys(engine, engine.namespace(), &places, dry_run).await.unwrap()
}

fn pruned(orphaned: u64, destroyed: u64, archived: u64) -> PrunedKeys {
    PrunedKeys { orphaned, destroyed, archived, ..PrunedKeys::default() }
}

#[tokio::test]
async fn the_key_of_an_archived_session_follows_a_change_of_the_main_key() {
    let (store, shelf) = (memory(), Shelf::new());
    let before = engine(store.clone(), first());
    let (live, archived) = (rich(&before, "live").await, rich(&before, "archived").await);
    let original = whole(&before, &archived).await;
    archive(&before, &shelf, &archived).await;
    let turning = engine(store.clone(), rotated());
    // Without a look at the archive: the note beside the key says whose it is.
    let done = operations::rewrap_keys(&turning, turning.namespace(), &[]).await.unwrap();
    assert_eq!(done, RewrappedKeys { changed: 2, current: 0, unknown: 0 });
    let after = engine(store, second());
    assert!(operations::verify(&after, &live, &Default::default()).await.unwrap().sound);
    operations::restore(&after, &shelf, &archived, &RestoreOptions::default()).await.unwrap();
    assert_eq!(whole(&after, &archived).await, original);
}

#[tokio::test]
async fn an_archive_without_a_note_is_known_by_its_place() {
    // The same session in two stores; it is archived from one of them and put away in the other.
    let (shelf, here, there) = (Shelf::new(), engine(memory(), first()), engine(memory(), first()));
    let key = rich(&here, "trip").await;
    operations::copy(&here, &there, &key, &Default::default(), &|_| ()).await.unwrap();
    archive(&here, &shelf, &key).await;
    let heads = there.journal().open(&key).await.unwrap().heads();
    there.journal().put_away(&key, heads).await.unwrap();
    assert_eq!(prune(&there, &[&shelf], false).await, pruned(0, 0, 1));
    let turning = engine(there.journal().store().clone(), rotated());
    let unknown = operations::rewrap_keys(&turning, turning.namespace(), &[]).await.unwrap();
    assert_eq!(unknown, RewrappedKeys { changed: 0, current: 0, unknown: 1 });
    let known = operations::rewrap_keys(&turning, turning.namespace(), &[&shelf]).await.unwrap();
    assert_eq!(known, RewrappedKeys { changed: 1, current: 0, unknown: 0 });
    let after = engine(there.journal().store().clone(), second());
    operations::restore(&after, &shelf, &key, &RestoreOptions::default()).await.unwrap();
    assert!(operations::verify(&after, &key, &Default::default()).await.unwrap().sound);
}

#[tokio::test]
async fn a_key_is_no_orphan_as_long_as_an_archive_needs_it() {
    let (shelf, other) = (Shelf::new(), Shelf::new());
    let engine = engine(memory(), first());
    let (key, _) = (rich(&engine, "trip").await, rich(&engine, "live").await);
    archive(&engine, &shelf, &key).await;
    assert_eq!(prune(&engine, &[], false).await, pruned(0, 0, 1));
    assert_eq!(prune(&engine, &[&shelf], false).await, pruned(0, 0, 1));
    // What is at another place is not known to be gone.
    let named = other.named("other");
    assert_eq!(prune(&engine, &[&named], false).await, pruned(0, 0, 1));
    let objects = shelf.objects.lock().unwrap().clone();
    let damaged = |name: &String| name.ends_with(".json");
    let entry = objects.keys().find(|name| damaged(name)).unwrap().clone();
    shelf.objects.lock().unwrap().insert(entry, "nonsense".into());
    let refused = operations::prune_keys(&engine, engine.namespace(), &[&shelf], false).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused:?}");
    *shelf.objects.lock().unwrap() = objects;
    operations::restore(&engine, &shelf, &key, &RestoreOptions::default()).await.unwrap();
    archive(&engine, &shelf, &key).await;
    // Gone by hand.
    shelf.objects.lock().unwrap().clear();
    assert_eq!(prune(&engine, &[], false).await, pruned(0, 0, 1));
    assert_eq!(prune(&engine, &[&shelf], true).await, PrunedKeys { dry_run: true, ..pruned(1, 0, 0) });
    assert_eq!(prune(&engine, &[&shelf], false).await, pruned(1, 1, 0));
    assert_eq!(prune(&engine, &[&shelf], false).await, pruned(0, 0, 0));
    let live = engine.key("live").unwrap();
    assert!(operations::verify(&engine, &live, &Default::default()).await.unwrap().sound);
}

#[tokio::test]
async fn a_key_goes_with_the_last_archive_unless_the_session_is_there() {
    let (shelf, engine) = (Shelf::new(), engine(memory(), first()));
    let key = rich(&engine, "trip").await;
    archive(&engine, &shelf, &key).await;
    let remove = RestoreOptions { remove: true, ..RestoreOptions::default() };
    operations::restore(&engine, &shelf, &key, &remove).await.unwrap();
    assert!(operations::verify(&engine, &key, &Default::default()).await.unwrap().sound);
    assert_eq!(prune(&engine, &[&shelf], false).await, pruned(0, 0, 0));
    archive(&engine, &shelf, &key).await;
    let renamed = RestoreOptions { rename: Some(engine.key("other").unwrap()), ..remove };
    operations::restore(&engine, &shelf, &key, &renamed).await.unwrap();
    // Only the key of the session under its new name is left.
    assert_eq!(prune(&engine, &[&shelf], false).await, pruned(0, 0, 0));
    let other = engine.key("other").unwrap();
    assert!(operations::verify(&engine, &other, &Default::default()).await.unwrap().sound);
    let done = operations::rewrap_keys(&engine, engine.namespace(), &[]).await.unwrap();
    assert_eq!(done, RewrappedKeys { changed: 0, current: 1, unknown: 0 });
}

#[tokio::test]
async fn an_encrypted_session_archived_and_pruned_at_any_call_is_readable() {
    for how in [Stop::Before, Stop::After] {
        for at in 0.. {
            let (store, shelf) = (memory(), Shelf::new());
            let whole_engine = engine(store.clone(), first());
            let key = rich(&whole_engine, "trip").await;
            let original = whole(&whole_engine, &key).await;
            let dying = engine(stopping(store.clone(), at, how), first());
            let first_try = operations::archive(&dying, &shelf, &key, &ArchiveOptions::default()).await;
            let later = engine(store, first());
            assert_eq!(prune(&later, &[], false).await.destroyed, 0, "{how:?} {at}");
            if later.journal().open(&key).await.is_ok() {
                archive(&later, &shelf, &key).await;
            }
            assert_eq!(prune(&later, &[&shelf], false).await.destroyed, 0, "{how:?} {at}");
            operations::restore(&later, &shelf, &key, &RestoreOptions::default()).await.unwrap();
            assert_eq!(whole(&later, &key).await, original, "{how:?} {at}");
            if first_try.is_ok() {
                assert!(at > 5, "{at}");
                break;
            }
        }
    }
}
