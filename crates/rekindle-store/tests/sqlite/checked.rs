//! The check of a database whose indexes, tables or pages are damaged.

use std::fs;

use rekindle_core::{ErrorKind, Store as _};

use super::*;

/// Where the tree of an index begins in the file, and how long its pages are.
fn page_of(site: &Site, index: &str) -> (usize, usize) {
    let raw = site.raw();
    let root: u32 =
        raw.query_row("SELECT rootpage FROM sqlite_master WHERE name = ?1", [index], |row| row.get(0)).unwrap();
    let size: u32 = raw.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    ((root - 1) as usize * size as usize, size as usize)
}

/// Alters the last letter of `name` in an index, so that the entry is found under no name.
fn damage(site: &Site, index: &str, name: &str) {
    let (at, size) = page_of(site, index);
    let mut bytes = fs::read(site.path()).unwrap();
    let page = &mut bytes[at..at + size];
    let found = page.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    page[found + name.len() - 1] += 1;
    fs::write(site.path(), bytes).unwrap();
}

async fn site() -> Site {
    let site = Site::new();
    let store = site.open();
    for name in ["first", "victim", "last"] {
        store.create(&new_session(name)).await.unwrap();
        append_many(&store, &key(name), genesis(), 3, 10).await;
    }
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_database_has_no_defects() {
    let site = site().await;
    assert_eq!(site.open().check().await.unwrap(), []);
    let read_only = SqliteStore::open(site.path(), site.options().with_read_only(true)).unwrap();
    assert_eq!(read_only.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_index_lacks_is_named() {
    for index in ["sqlite_autoindex_sessions_1", "sessions_by_age"] {
        let site = site().await;
        damage(&site, index, "victim");
        let store = site.open();
        let is_found = store.open(&key("victim")).await.map_err(|error| error.kind().clone());
        match index {
            "sessions_by_age" => assert!(is_found.is_ok()),
            _ => assert_eq!(is_found.unwrap_err(), ErrorKind::NotFound, "the case this is about"),
        }
        let defects = store.check().await.unwrap();
        let named: Vec<_> = defects.iter().filter_map(|defect| defect.session.clone()).collect();
        assert_eq!(named, [key("victim")], "{defects:?}");
        assert!(defects.iter().any(|defect| defect.place.contains(index) && defect.hint.contains("REINDEX")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_make_no_sense_are_defects_and_few_of_them() {
    let site = site().await;
    let (at, size) = page_of(&site, "sqlite_autoindex_branches_1");
    let mut bytes = fs::read(site.path()).unwrap();
    bytes[at..at + size].fill(0xff);
    fs::write(site.path(), bytes).unwrap();
    let defects = site.open().check().await.unwrap();
    assert!((1..=100).contains(&defects.len()), "{defects:?}");
}
