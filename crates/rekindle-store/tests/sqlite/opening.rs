//! Opening a file: schemas of other versions, foreign and odd files, places that may only be read, many at once.

use super::*;

#[test]
fn a_newer_schema_is_refused() {
    let place = Site::new();
    drop(place.open());
    place.raw().pragma_update(None, "user_version", 99).unwrap();
    for read_only in [false, true] {
        let error = open_error(&place.path(), place.options().with_read_only(read_only));
        assert_eq!(*error.kind(), ErrorKind::VersionTooNew { what: "schema".into(), found: 99, supported: 4 });
    }
}

#[tokio::test]
async fn a_database_of_an_earlier_version_is_brought_up_to_date() {
    const NOT_IN_3: &str = "DROP TABLE small_values; PRAGMA user_version = 3;";
    const NOT_IN_2: &str = "ALTER TABLE branches DROP COLUMN lease_boot; ALTER TABLE branches DROP COLUMN lease_until;
        ALTER TABLE branches DROP COLUMN last_wait; PRAGMA user_version = 2;";
    const NOT_IN_1: &str = "DROP TABLE jobs; DROP TABLE workers; DROP TABLE news; PRAGMA user_version = 1;";
    for undone in [NOT_IN_3.to_owned(), format!("{NOT_IN_3}{NOT_IN_2}"), format!("{NOT_IN_3}{NOT_IN_2}{NOT_IN_1}")] {
        let place = Site::new();
        let store = place.open();
        store.create(&new_session("a")).await.unwrap();
        append_many(&store, &key("a"), genesis(), 3, 10).await;
        let owner = rekindle_core::OwnerId::new("before").unwrap();
        let ttl = std::time::Duration::from_secs(60);
        let lease = store.acquire(&key("a"), &BranchId::main(), &owner, ttl).await.unwrap();
        drop(store);
        place.raw().execute_batch(&undone).unwrap();
        let store = place.open();
        assert_eq!(read_main(&store, &key("a")).await.len(), 3);
        let queue = store.queue().unwrap();
        assert!(!queue.enqueue(&rekindle_core::queue::NewJob::new(key("a"))).await.unwrap().repeated);
        // A lease of before is live by the wall clock, and is bound to the boot clock when it is renewed.
        store.renew(&lease, ttl).await.unwrap();
        let info = store.open(&key("a")).await.unwrap();
        assert_eq!(info.live_lease().map(|(branch, _)| branch.last_wait), Some(Seq::ZERO));
        let value = ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, "a").unwrap();
        let values = store.values().unwrap();
        assert_eq!(values.change(&Change::set(value.clone(), "1").if_is(None)).await.unwrap(), Changed::Done);
        assert_eq!(values.get(&value).await.unwrap().as_deref(), Some(&b"1"[..]));
    }
}

#[test]
fn a_foreign_database_is_refused_and_not_changed() {
    for script in
        ["CREATE TABLE notes (text TEXT)", "PRAGMA user_version = 3", "PRAGMA application_id = 7; CREATE TABLE t (a)"]
    {
        let place = Site::new();
        place.raw().execute_batch(script).unwrap();
        let before = std::fs::read(place.path()).unwrap();
        let error = open_error(&place.path(), place.options());
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{script}");
        assert!(error.message().contains("another program"), "{error}");
        assert_eq!(std::fs::read(place.path()).unwrap(), before, "{script}");
    }
}

#[test]
fn garbage_is_refused_and_not_changed() {
    for size in [1, 90, 600, 20_000] {
        let place = Site::new();
        let garbage: Vec<u8> = (0..size).map(|index| (index * 31 % 251) as u8 + 1).collect();
        std::fs::write(place.path(), &garbage).unwrap();
        assert_eq!(*open_error(&place.path(), place.options()).kind(), ErrorKind::Corrupt, "{size} bytes");
        assert_eq!(std::fs::read(place.path()).unwrap(), garbage);
    }
}

#[test]
fn an_empty_file_becomes_a_database() {
    let place = Site::new();
    std::fs::write(place.path(), b"").unwrap();
    assert_eq!(*open_error(&place.path(), place.options().with_read_only(true)).kind(), ErrorKind::NotFound);
    drop(place.open());
    let raw = place.raw();
    let pragma = |name: &str| raw.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("page_size"), pragma("auto_vacuum"), pragma("user_version")), (8192, 2, 4));
    assert_eq!(pragma("application_id"), i64::from(u32::from_be_bytes(*b"RKJL")));
}

#[test]
fn paths_that_cannot_be_a_database_are_explained() {
    let place = Site::new();
    let error = open_error(place.directory.path(), place.options());
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("is a directory") && error.next_step().contains("rekindle.db"), "{error:?}");
    let error = open_error(&place.directory.path().join("no/such/dir.db"), place.options());
    assert!(*error.kind() == ErrorKind::NotFound && error.message().contains("no directory"), "{error:?}");
    for options in [place.options().with_create(false), place.options().with_read_only(true)] {
        assert_eq!(*open_error(&place.path(), options).kind(), ErrorKind::NotFound);
        assert!(!place.path().exists());
    }
    // Nobody may create files there, not even the superuser.
    if cfg!(target_os = "linux") {
        let error = open_error(Path::new("/proc/rekindle.db"), place.options());
        assert!(
            *error.kind() == ErrorKind::StoreUnavailable && error.message().contains("/proc/rekindle.db"),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_store_reads_and_refuses_to_write() {
    let place = Site::new();
    let writer = place.open();
    writer.create(&new_session("a")).await.unwrap();
    let head = append_many(&writer, &key("a"), genesis(), 3, 10).await;
    let reader = SqliteStore::open(place.path(), place.options().with_read_only(true)).unwrap();
    assert_eq!(read_main(&reader, &key("a")).await.len(), 3);
    let error = reader.append(&appending(&key("a"), head, "no")).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.operation(), error.session()),
        (&ErrorKind::Unsupported, Some("append"), Some(&key("a")))
    );
    append_many(&writer, &key("a"), head, 1, 10).await;
    assert_eq!(read_main(&reader, &key("a")).await.len(), 4, "it follows the writer");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn files_that_may_not_be_written_can_still_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    drop(store);
    let allow = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(&place.path(), 0o444);
    allow(place.directory.path(), 0o555);
    // The superuser is not bound by permissions.
    let enforced = std::fs::OpenOptions::new().write(true).open(place.path()).is_err();
    let opened = SqliteStore::open(place.path(), place.options()).map(drop);
    match opened {
        Err(error) if enforced => assert_eq!(*error.kind(), ErrorKind::PersistFailed, "{error:?}"),
        other => assert!(other.is_ok() && !enforced, "{other:?}"),
    }
    let reader = SqliteStore::open(place.path(), place.options().with_read_only(true)).unwrap();
    assert!(reader.open(&key("a")).await.is_ok());
    drop(reader);
    allow(place.directory.path(), 0o755);
}

#[test]
fn the_first_opening_may_happen_many_times_at_once() {
    for _ in 0..5 {
        let place = Site::new();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let open = || {
                start.wait();
                SqliteStore::open(place.path(), place.options())
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
        let mode: String = place.raw().pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}
