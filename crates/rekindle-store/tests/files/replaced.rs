//! Directories and segments that are deleted, moved or replaced while a store uses them: nothing is acknowledged
//! that went into a file without a name.

use std::fs;
use std::time::Duration;

use rekindle_core::{
    BranchId, DamageKind, ErrorKind, Head, Lease, NewSession, OwnerId, Seq, Store as _, StoreExt as _,
};
use rekindle_store::FileStore;

use crate::damage::{Victim, append, copy, genesis, kinds};
use crate::script::{header, key};

/// A name, and a way to take a session's files away.
type Case = (&'static str, fn(&Victim));

/// A store that has the session open, its head and a lease.
async fn in_use(victim: &Victim) -> (FileStore, Head, Lease) {
    let store = victim.store();
    let owner = OwnerId::new("o").unwrap();
    let head = genesis(&store.open(&key("s")).await.unwrap());
    let head = append(&store, head, "one").await.unwrap();
    let lease = store.acquire(&key("s"), &BranchId::main(), &owner, Duration::from_secs(60)).await.unwrap();
    (store, head, lease)
}

/// Appends under the lease.
async fn write(store: &FileStore, head: Head, lease: &Lease) -> rekindle_core::Result<()> {
    let frame = crate::script::frame(&key("s"), &BranchId::main(), head, "two");
    let mut append = rekindle_core::Append::new(key("s"), BranchId::main(), head, vec![frame]);
    append.fence = Some(lease.info.epoch);
    store.append(&append).await.map(drop)
}

#[tokio::test]
async fn a_directory_that_was_deleted_or_replaced_ends_writing() {
    let cases: [Case; 4] = [
        ("the session is deleted", |victim| fs::remove_dir_all(victim.session()).unwrap()),
        ("the session is replaced by a copy of itself", |victim| {
            let aside = victim.session().with_file_name("aside");
            fs::rename(victim.session(), &aside).unwrap();
            copy(&aside, &victim.session());
            fs::remove_dir_all(aside).unwrap();
        }),
        ("the store is moved", |victim| {
            let root = victim.session().parent().unwrap().parent().unwrap().to_owned();
            fs::rename(&root, root.with_file_name("moved")).unwrap();
        }),
        ("the segment is replaced", |victim| {
            let bytes = fs::read(victim.segment()).unwrap();
            fs::remove_file(victim.segment()).unwrap();
            fs::write(victim.segment(), bytes).unwrap();
        }),
    ];
    for (name, replace) in cases {
        for renews in [false, true] {
            let victim = Victim::new().await;
            let (store, head, lease) = in_use(&victim).await;
            replace(&victim);
            let error = match renews {
                true => store.renew(&lease, Duration::from_secs(60)).await.unwrap_err(),
                false => write(&store, head, &lease).await.unwrap_err(),
            };
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{name}: {error:?}");
            assert!(error.message().contains("deleted, moved or replaced"), "{name}: {error:?}");
            // Readers may look at what is there now; whoever holds the lease is refused all the same.
            let _ = store.open(&key("s")).await;
            let error = write(&store, head, &lease).await.unwrap_err();
            assert!(error.message().contains("deleted, moved or replaced"), "{name}: {error:?}");
            if victim.session().exists() {
                let owner = OwnerId::new("o").unwrap();
                let ttl = Duration::from_secs(60);
                let lease = store.acquire(&key("s"), &BranchId::main(), &owner, ttl).await.unwrap();
                write(&store, lease.head, &lease).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn records_of_a_deleted_segment_are_missing_from_then_on() {
    let victim = Victim::new().await;
    let (store, head, lease) = in_use(&victim).await;
    write(&store, head, &lease).await.unwrap();
    let head = genesis(&store.open(&key("s")).await.unwrap());
    fs::remove_file(victim.segment()).unwrap();
    let error = write(&store, head, &lease).await.unwrap_err();
    assert!(error.message().contains("deleted, moved or replaced"), "{error:?}");
    let info = victim.store().open(&key("s")).await.unwrap();
    assert_eq!((genesis(&info).seq, kinds(&info)), (Seq(8), vec![DamageKind::Missing]));
}

#[tokio::test]
async fn a_session_that_another_store_removed_is_not_there_rather_than_replaced() {
    let victim = Victim::new().await;
    let (store, head, lease) = in_use(&victim).await;
    store.release(&lease).await.unwrap();
    victim.store().remove(&rekindle_core::Removal::Session { session: key("s") }).await.unwrap();
    assert_eq!(*append(&store, head, "two").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_session_without_records_is_watched_too() {
    let victim = Victim::new().await;
    let store = victim.store();
    store.create(&NewSession::new(header("new"))).await.unwrap();
    let (session, owner, ttl) = (key("new"), OwnerId::new("o").unwrap(), Duration::from_secs(60));
    let lease = store.acquire(&session, &BranchId::main(), &owner, ttl).await.unwrap();
    let directory = victim.session().with_file_name("new");
    fs::rename(&directory, directory.with_file_name("aside")).unwrap();
    copy(&directory.with_file_name("aside"), &directory);
    let error = store.renew(&lease, ttl).await.unwrap_err();
    assert!(error.message().contains("deleted, moved or replaced"), "{error:?}");
}
