//! Leases go by the clock of the store.

use super::*;

#[tokio::test]
async fn a_lease_without_end_counts_as_expired() {
    let place = Site::new();
    // By the wall clock alone, and by the clock since the machine was started.
    for (options, columns) in [
        (place.options(), "lease_expires = 9223372036854775807"),
        (place.options(), "lease_expires = 86400000000 + 1000001"),
        (StoreOptions::new(), "lease_expires = 9223372036854775807, lease_until = lease_until + 86400000000"),
        (StoreOptions::new(), "lease_expires = 9223372036854775807, lease_boot = NULL, lease_until = NULL"),
    ] {
        let place = Site::new();
        let store = SqliteStore::open(place.path(), options).unwrap();
        let (session, main) = (key("a"), BranchId::main());
        store.create(&new_session("a")).await.unwrap();
        let owner = |name: &str| OwnerId::new(name).unwrap();
        let ttl = Duration::from_secs(60);
        let lease = store.acquire(&session, &main, &owner("one"), ttl).await.unwrap();
        let sql = format!("UPDATE branches SET status = 'running', {columns} WHERE name = 'main'");
        place.raw().execute_batch(&sql).unwrap();
        let mut append = appending(&session, genesis(), "one");
        append.fence = Some(lease.info.epoch);
        let refused = store.append(&append).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{columns}: {refused:?}");
        assert!(matches!(store.renew(&lease, ttl).await.unwrap_err().kind(), ErrorKind::Fenced { .. }), "{columns}");
        let interrupted = SessionQuery::new(Namespace::default()).with_status(Status::Interrupted);
        assert_eq!(store.list(&interrupted).await.unwrap().sessions.len(), 1, "{columns}");
        append.fence = None;
        store.append(&append).await.unwrap();
        let taken = store.acquire(&session, &main, &owner("two"), ttl).await.unwrap();
        assert_eq!(taken.info.epoch, Epoch(lease.info.epoch.0 + 1), "{columns}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_fence_by_the_clock_of_the_store() {
    let place = Site::new();
    let store = place.open();
    let (session, main) = (key("a"), BranchId::main());
    store.create(&new_session("a")).await.unwrap();
    let owner = |name: &str| OwnerId::new(name).unwrap();
    let ttl = Duration::from_micros(100);
    let lease = store.acquire(&session, &main, &owner("one"), ttl).await.unwrap();
    let mut first = appending(&session, genesis(), "one");
    let error = store.append(&first).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AlreadyRunning { .. }), "{error:?}");
    first.fence = Some(lease.info.epoch);
    (first.renew, first.status) = (Some(Duration::from_micros(500)), Some(Status::Running));
    let head = store.append(&first).await.unwrap().head;
    place.clock.advance(400);
    assert_eq!(store.open(&session).await.unwrap().status(), Status::Running, "the append renewed the lease");
    place.clock.advance(100);
    assert_eq!(store.open(&session).await.unwrap().status(), Status::Interrupted);
    let mut second = appending(&session, head, "two");
    second.fence = Some(lease.info.epoch);
    assert_eq!(
        *store.append(&second).await.unwrap_err().kind(),
        ErrorKind::Fenced { held: lease.info.epoch, current: lease.info.epoch }
    );
    let taken = store.acquire(&session, &main, &owner("two"), ttl).await.unwrap();
    assert_eq!((taken.info.epoch, taken.head), (Epoch(lease.info.epoch.0 + 1), head));
    assert_eq!(
        *store.append(&second).await.unwrap_err().kind(),
        ErrorKind::Fenced { held: lease.info.epoch, current: taken.info.epoch }
    );
    assert_eq!(store.append(&first).await.unwrap().head, head, "a repeated append succeeds without its lease");
    store.release(&taken).await.unwrap();
    second.fence = None;
    store.append(&second).await.unwrap();
    assert_eq!(store.open(&session).await.unwrap().branch(&main).unwrap().lease, None);
}
