//! A database that is deleted, moved or replaced while a store uses it: nothing is acknowledged that went into a
//! file without a name.

use std::fs;

use super::*;

const FILES: [&str; 3] = ["rekindle.db", "rekindle.db-wal", "rekindle.db-shm"];

/// A name, and a way to take a database away.
type Case = (&'static str, fn(&Site));

impl Site {
    fn rename(&self, from: &str, to: &str) {
        for name in FILES {
            let path = |folder: &str| self.directory.path().join(folder).join(name);
            fs::create_dir_all(path(to).parent().unwrap()).unwrap();
            fs::rename(path(from), path(to)).unwrap();
        }
    }
}

/// A store in use, and the head of session `a`.
async fn in_use(site: &Site) -> (SqliteStore, Head) {
    let store = site.open();
    store.create(&new_session("a")).await.unwrap();
    let head = append_many(&store, &key("a"), genesis(), 2, 10).await;
    (store, head)
}

fn assert_replaced(error: &Error, name: &str) {
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{name}: {error:?}");
    assert!(error.message().contains("deleted, moved or replaced while it was in use"), "{name}: {error:?}");
    assert_eq!(error.retry(), rekindle_core::Retry::Never, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_deleted_or_replaced_ends_writing() {
    let cases: [Case; 5] = [
        ("deleted", |site| FILES.iter().for_each(|name| fs::remove_file(site.directory.path().join(name)).unwrap())),
        ("only the database deleted", |site| fs::remove_file(site.path()).unwrap()),
        ("only the log deleted", |site| fs::remove_file(site.directory.path().join(FILES[1])).unwrap()),
        ("replaced by an empty file", |site| {
            site.rename(".", "aside");
            fs::write(site.path(), "").unwrap();
        }),
        ("replaced by a copy", |site| {
            site.rename(".", "aside");
            fs::copy(site.directory.path().join("aside/rekindle.db"), site.path()).unwrap();
        }),
    ];
    for (name, replace) in cases {
        let site = Site::new();
        let (store, head) = in_use(&site).await;
        let owner = OwnerId::new("o").unwrap();
        let lease = store.acquire(&key("a"), &BranchId::main(), &owner, Duration::from_secs(60)).await.unwrap();
        replace(&site);
        assert_replaced(&store.renew(&lease, Duration::from_secs(60)).await.unwrap_err(), name);
        let mut append = appending(&key("a"), head, "lost");
        append.fence = Some(lease.info.epoch);
        assert_replaced(&store.append(&append).await.unwrap_err(), name);
        assert_replaced(&store.create(&new_session("b")).await.unwrap_err(), name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_put_back_can_be_written_again() {
    let site = Site::new();
    let (store, head) = in_use(&site).await;
    site.rename(".", "aside");
    let lost = appending(&key("a"), head, "in doubt");
    assert_replaced(&store.append(&lost).await.unwrap_err(), "moved");
    site.rename("aside", ".");
    // What went into it while it was elsewhere is there now, and recognised.
    let head = store.append(&lost).await.unwrap().head;
    append_many(&store, &key("a"), head, 1, 10).await;
    drop(store);
    assert_eq!(read_main(&site.open(), &key("a")).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_in_its_place_is_left_alone() {
    let site = Site::new();
    let (store, head) = in_use(&site).await;
    site.rename(".", "aside");
    let other = site.open();
    other.create(&new_session("b")).await.unwrap();
    append_many(&other, &key("b"), genesis(), 2, 10).await;
    assert_replaced(&store.append(&appending(&key("a"), head, "lost")).await.unwrap_err(), "replaced");
    drop(store);
    assert!(site.directory.path().join(FILES[1]).exists(), "the log of the other database is there");
    // As if that process were killed: its log is all there is of the session.
    let crashed = tempfile::tempdir().unwrap();
    for name in &FILES[..2] {
        fs::copy(site.directory.path().join(name), crashed.path().join(name)).unwrap();
    }
    let left = SqliteStore::open(crashed.path().join(FILES[0]), site.options()).unwrap();
    assert_eq!(read_main(&left, &key("b")).await.len(), 2);
}
